"""Owners that root's commands changed come back with undo, and go again with redo."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.contract.as_user import NOBODY
from tests.contract.program import Program
from tests.crash.oracle import Cli

pytestmark = pytest.mark.needs("world-overlay", "root")

ADA, BEN = 12345, 23456


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    root, home = tmp_path / "project", tmp_path / "home"
    root.mkdir()
    home.mkdir()
    for name in ("a", "b", "c"):
        (root / name).write_text(name)
    os.chown(root / "b", ADA, ADA)
    cli = Cli(root, home)
    cli.ok("-c", "true")
    return cli


def owner(path: Path) -> tuple[int, int]:
    at = path.lstat()
    return at.st_uid, at.st_gid


def test_a_chown_alone(cli: Cli) -> None:
    a = cli.workspace / "a"
    cli.ok("-c", f"chown {ADA}:{BEN} a")
    assert owner(a) == (ADA, BEN)
    planned = cli.ok("undo", "--dry-run")
    assert "give a back to 0:0" in planned and owner(a) == (ADA, BEN)
    for _ in range(2):
        cli.ok("undo")
        assert owner(a) == (0, 0)
        cli.ok("redo")
        assert owner(a) == (ADA, BEN)


def test_a_chown_with_a_change_of_content_and_mode(cli: Cli) -> None:
    a = cli.workspace / "a"
    cli.ok("-c", f"echo new > a; chown {ADA}:{ADA} a; chmod 4711 a")
    cli.ok("undo")
    assert (owner(a), a.read_text(), a.stat().st_mode & 0o7777) == ((0, 0), "a", 0o644)
    cli.ok("redo")
    # Set-id bits that were not there before do not arrive from a world.
    assert (owner(a), a.read_text(), a.stat().st_mode & 0o777) == ((ADA, ADA), "new\n", 0o711)


def test_a_removed_file_comes_back_as_its_owner_s(cli: Cli) -> None:
    b = cli.workspace / "b"
    b.chmod(0o4755)
    cli.ok("-c", "rm b c")
    cli.ok("undo")
    assert (owner(b), stat.S_IMODE(b.stat().st_mode)) == ((ADA, ADA), 0o4755)
    assert owner(cli.workspace / "c") == (0, 0)


def test_directories_links_and_excluded_files(cli: Cli) -> None:
    root = cli.workspace
    (root / "d/node_modules").mkdir(parents=True)
    (root / "d/node_modules/x").write_text("x")
    (root / "d/link").symlink_to("../a")
    paths = [root / name for name in ("d", "d/link", "d/node_modules", "d/node_modules/x")]
    cli.ok("-c", f"chown -hR {ADA}:{ADA} d")
    assert {owner(path) for path in paths} == {(ADA, ADA)}
    cli.ok("undo")
    assert {owner(path) for path in paths} == {(0, 0)} == {owner(root / "a")}


def test_one_path_alone_and_an_owner_that_changed_since(cli: Cli) -> None:
    root = cli.workspace
    cli.ok("-c", f"chown {ADA} a b c")
    command = str(cli.log()[0]["command_id"])
    cli.ok("undo", command, "--path", "a")
    assert [owner(root / name)[0] for name in "abc"] == [0, ADA, ADA]
    os.chown(root / "c", BEN, BEN)
    cli.ok("undo", command, "--path", "c")
    assert owner(root / "c") == (BEN, BEN)


def test_a_caller_that_may_not_give_files_away_gets_a_message_and_lends_no_rights(cli: Cli) -> None:
    """A history of root's that was given to another user."""
    b = cli.workspace / "b"
    b.chmod(0o4755)
    cli.ok("-c", "rm b")
    with tempfile.TemporaryDirectory() as place:
        root, home = Path(place, "project"), Path(place, "home")
        subprocess.run(["cp", "-a", str(cli.workspace), str(root)], check=True)
        home.mkdir()
        subprocess.run(["chown", "-hR", f"{NOBODY}:{NOBODY}", place], check=True)
        env = {"HOME": str(home), "SUBSTRATE_HOME": str(home / "s"), "SUBSTRATE_DAEMON": "off"}
        program = Program(root, env, uid=NOBODY)
        program("history", "adopt").went_well()
        done = program("undo")
        assert done.status == 0, done.errors
        assert f"not given back to their owner: b ({ADA}:{ADA})" in done.errors
        assert stat.S_IMODE((root / "b").stat().st_mode) == 0o755


def test_what_the_new_owner_made_of_it_gets_no_rights_of_root(cli: Cli) -> None:
    """Seen: chown to a user, who writes a program into it and sets set-id bits; undo by root."""
    a = cli.workspace / "a"
    cli.ok("-c", f"chown {ADA}:{ADA} a")
    a.write_text("#!/bin/sh\nid\n")
    a.chmod(0o6755)
    done = cli("undo")
    assert (owner(a), stat.S_IMODE(a.stat().st_mode)) == ((0, 0), 0o755)
    assert b"set-id bits were taken away" in done.stderr
