"""The journal of a rewrite is in the workspace: a command or a cloned repository can write there.

What is carried out from it must not lead out of the workspace or into `.git`.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.crash.oracle import Cli

pytestmark = pytest.mark.needs("posix")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    made = Cli(tmp_path / "project", tmp_path / "home")
    made.workspace.mkdir(exist_ok=True)
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "one"]):
        who = ["-c", "user.name=t", "-c", "user.email=t@t"]
        subprocess.run(["git", *who, "-C", made.workspace, *words], check=True)
    (made.workspace / "a").write_text("a\n")
    subprocess.run(["git", "-C", made.workspace, "add", "a"], check=True)
    return made


def plant(cli: Cli, **fields: Any) -> Path:
    """An announced rewrite that only moves on to the index; `fields` replace some of its own."""
    directory = cli.workspace / ".manifold" / "journal" / "c-0forged"
    directory.mkdir(parents=True)
    index = (cli.workspace / ".git" / "index").read_bytes()
    document = {
        "format": 1, "operation_id": "c-0forged", "operation": "rewrite",
        "plan": json.dumps({"format": 1, "ops": []}), "index": [], "late": [], "head": {},
        "old_index": f"{len(index)}-{index[-20:].hex()}", "index_file": "payload",
    } | fields  # fmt: skip
    (directory / "payload").write_bytes(b"the attacker's\n")
    (directory / "intent.json").write_text(json.dumps(document))
    return directory


def test_a_link_in_it_is_not_written_through(cli: Cli, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("the user's\n")
    (plant(cli) / "index.new").symlink_to(outside)
    cli("fsck", "--repair")
    assert outside.read_text() == "the user's\n"


@pytest.mark.parametrize("name", ["../../../a", "/etc/passwd", "..", 3])
def test_an_index_from_elsewhere_is_not_taken(cli: Cli, name: object) -> None:
    before = (cli.workspace / ".git" / "index").read_bytes()
    plant(cli, index_file=name)
    cli("fsck", "--repair")
    assert (cli.workspace / ".git" / "index").read_bytes() == before


def test_it_plants_no_hook(cli: Cli) -> None:
    oid = subprocess.run(
        ["git", "-C", cli.workspace, "rev-parse", ":a"], check=True, capture_output=True, text=True
    ).stdout.strip()
    op = {
        "expect": {"kind": "absent"}, "become": {"kind": "file", "mode": 0o755, "oid": oid},
        "how": "replace", "path": ".git/hooks/post-checkout",
    }  # fmt: skip
    plan = json.dumps({"format": 1, "ops": [op], "beyond_history": True})
    plant(cli, plan=plan, index_file="")
    cli("fsck", "--repair")
    assert not (cli.workspace / ".git" / "hooks" / "post-checkout").exists()


def test_a_linked_journal_is_not_read(cli: Cli, tmp_path: Path) -> None:
    real = plant(cli).parent
    real.rename(tmp_path / "journal")
    real.symlink_to(tmp_path / "journal")
    before = (cli.workspace / ".git" / "index").read_bytes()
    cli("fsck", "--repair")
    assert (cli.workspace / ".git" / "index").read_bytes() == before


@pytest.mark.needs("root")
def test_root_carries_out_nothing_of_another_user(cli: Cli) -> None:
    before = (cli.workspace / ".git" / "index").read_bytes()
    for path in (plant(cli), cli.workspace / ".manifold", cli.workspace / ".manifold" / "journal"):
        os.chown(path, 65534, 65534)
    cli("fsck", "--repair")
    assert (cli.workspace / ".git" / "index").read_bytes() == before
