"""No conflict without a cause, and no copies left by the undo of a move."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.crash.oracle import Cli

pytestmark = pytest.mark.needs("world-overlay")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    root, home = tmp_path / "project", tmp_path / "home"
    root.mkdir()
    home.mkdir()
    (root / "one").write_text("text\n")
    (root / "one").chmod(0o644)
    os.link(root / "one", root / "two")
    return Cli(root, home)


def mode(path: Path) -> str:
    return f"{path.stat().st_mode & 0o777:o}"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("chmod 600 one two", ("600", "text\n")),
        ("chmod 600 two", ("600", "text\n")),
        ("echo more >> one; chmod 640 two", ("640", "text\nmore\n")),
        ("echo more >> one; echo end >> two", ("644", "text\nmore\nend\n")),
    ],
)
def test_a_file_with_two_names_is_changed_once(
    cli: Cli, command: str, expected: tuple[str, str]
) -> None:
    root = cli.workspace
    cli.ok("-c", "true")
    done = cli("-c", command)
    assert (done.returncode, done.stderr) == (0, b"")
    for name in ("one", "two"):
        assert (mode(root / name), (root / name).read_text()) == expected
    assert (root / "one").stat().st_ino == (root / "two").stat().st_ino
    assert cli.ok("world", "list").count("wld_") == 0
    undone = cli("undo")
    assert undone.returncode == 0 and b"conflict" not in undone.stdout + undone.stderr
    for name in ("one", "two"):
        assert (mode(root / name), (root / name).read_text()) == ("644", "text\n")


def listing(root: Path) -> list[str]:
    return sorted(
        str(path.relative_to(root)) for path in root.rglob("*")
        if path.relative_to(root).parts[0] != ".substrate-git"
    )  # fmt: skip


@pytest.mark.parametrize(
    "command",
    ["mv dist target", "mv pkg pkg2", "mv nested moved", "mv pkg/node_modules pkg/venv; mv pkg p"],
)
def test_the_undo_of_a_move_leaves_no_copies(cli: Cli, command: str) -> None:
    root = cli.workspace
    for name in ("dist/built", "pkg/node_modules/lib/index.js", "pkg/source", "nested/file"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    git = ["git", "-C", str(root / "nested")]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "file"], check=True)
    subprocess.run([*git, "commit", "-qm", "1"], check=True)
    cli.ok("-c", "true")
    before = listing(root)
    cli.ok("-c", command)
    after = listing(root)
    assert after != before
    cli.ok("undo")
    assert listing(root) == before
    cli.ok("redo")
    assert listing(root) == after
    cli.ok("undo")
    assert listing(root) == before
