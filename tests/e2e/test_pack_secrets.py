"""Secrets in packs are named with their place, replaced on request, and a replay knows that."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.crash.oracle import Cli

CTX = [sys.executable, "-c", "import sys; from substrate.cli.ctx import ctx; sys.exit(ctx())"]
TOKEN = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    root, home = tmp_path / "project", tmp_path / "home"
    root.mkdir()
    home.mkdir()
    cli = Cli(root, home)
    (root / "keys").write_text(f"{TOKEN}\n")
    cli.ok("-c", "cat keys; echo plain")
    return cli


def ctx(cli: Cli, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*CTX, *words], cwd=cli.workspace, env=cli.environment, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    return done


def answer(cli: Cli, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ctx(cli, *words, "--json").stdout)
    return found


def files_with(top: Path, text: str) -> list[Path]:
    return [p for p in top.rglob("*") if p.is_file() and text.encode() in p.read_bytes()]


def test_packing_names_the_place_and_not_the_secret(cli: Cli) -> None:
    ctx(cli, "init")
    done = ctx(cli, "pack", "--session", "@")
    assert "steps[0].output" in done.stderr and "keys" in done.stderr
    assert "--redact" in done.stderr and TOKEN not in done.stderr + done.stdout
    found = answer(cli, "pack", "--session", "@")["secrets"]
    assert {(one["place"], one["file"]) for one in found} == {
        ("steps[0].output", False),
        ("inputs[1] (keys)", True),
    }


def test_a_redacted_pack_replays_exactly(cli: Cli) -> None:
    ctx(cli, "init")
    made = answer(cli, "pack", "--session", "@", "--redact")
    assert [one["file"] for one in made["secrets"]] == [True]
    shown = ctx(cli, "show", made["pack"], "--step", "0", "--content").stdout
    assert "[redacted]" in shown and TOKEN not in shown
    assert answer(cli, "log")["total"] == 1  # the one with the secret is not listed
    [file] = files_with(cli.workspace / ".ctx", TOKEN)
    assert file.read_text() == f"{TOKEN}\n"  # the file itself, not what was printed
    assert answer(cli, "replay", made["pack"])["fidelity"] == "exact"


def test_exporting_names_or_redacts_and_the_bundle_is_private(cli: Cli, tmp_path: Path) -> None:
    ctx(cli, "init")
    ctx(cli, "pack", "--session", "@")
    plain, clean = tmp_path / "plain.tar", tmp_path / "clean.tar"
    assert "steps[0].output" in ctx(cli, "export", "latest", str(plain)).stderr
    assert stat.S_IMODE(plain.stat().st_mode) == 0o600
    assert f"{TOKEN}\nplain".encode() in plain.read_bytes()
    ctx(cli, "export", "latest", str(clean), "--redact")
    assert f"{TOKEN}\nplain".encode() not in clean.read_bytes()
    assert b"[redacted]\nplain" in clean.read_bytes()


def test_redacted_command_text_keeps_exact_words_out_of_the_store(cli: Cli) -> None:
    (cli.workspace / ".substrate-git" / "config.toml").write_text(
        '[history]\ncommand_text = "redacted"\n'
    )
    cli.ok("-c", "TOKEN=hunter2-xyzzy; echo one > a")
    cli.ok("-c", "TOKEN=hunter2-xyzzy true")
    cli.ok("--no-world", "-c", "TOKEN=hunter2-xyzzy; echo two > a")
    assert files_with(cli.workspace, "hunter2-xyzzy") == []
    assert files_with(cli.home, "hunter2-xyzzy") == []
    done = cli("replay", "@")
    assert b"[redacted]" in done.stdout + done.stderr or b"redacted" in done.stderr


def test_a_wrong_setting_names_the_choices(cli: Cli) -> None:
    config = cli.workspace / ".substrate-git" / "config.toml"
    config.write_text('[history]\ncommand_text = "none"\n')
    done = cli("log")
    assert done.returncode == 2 and b'"full" or "redacted"' in done.stderr
