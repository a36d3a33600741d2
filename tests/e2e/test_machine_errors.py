"""Troubles of the machine that are named as what they are."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.contract.program import Done, Program
from tests.mounts import mounted, tmpfs_words

pytestmark = pytest.mark.needs("root", "mounts")


def _program(project: Path, base: Path) -> Program:
    project.mkdir()
    (project / "a").write_text("1\n")
    return Program(project, {"HOME": str(base), "SUBSTRATE_HOME": str(base / "home")})


def _use_up_inodes(directory: Path) -> None:
    with suppress(OSError):
        for number in range(10_000):
            (directory / f"f{number}").touch()


@pytest.mark.parametrize("is_first", [True, False])
def test_no_free_inodes(tmp_path: Path, is_first: bool) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted(disk, *tmpfs_words(size="20m", nr_inodes="300")):
        program = _program(disk / "project", tmp_path)
        if not is_first:
            program.sh("echo 2 > a")
        _use_up_inodes(disk)
        done = program("-c", "echo 3 > a")
        done.is_clear(125, "no free inodes", "df -i")
        assert "check the owner" not in done.errors
        if not is_first:  # seen: half a minute of waiting, then "another process is busy"
            program("log").is_clear(5, "no free inodes", "df -i")


@pytest.mark.parametrize("length", [600, 4070])
def test_a_path_that_is_too_long(tmp_path: Path, length: int) -> None:
    """For SQLite, and for the kernel. Reached step by step: no single call takes the longer one."""
    here = os.getcwd()
    argv = [sys.executable, "-m", "substrate", "-c", "echo 2 > a"]
    env = {**os.environ, "SUBSTRATE_DAEMON": "off", "SUBSTRATE_HOME": str(tmp_path / "home")}
    try:
        os.chdir(tmp_path)
        while (left := length - len(os.getcwd()) - 1) > 1:
            name = "d" * min(200, left)
            os.mkdir(name)
            os.chdir(name)
        done = subprocess.run(argv, env=env, capture_output=True, check=False)
    finally:
        os.chdir(here)
        subprocess.run(["rm", "-rf", *tmp_path.glob("d*")], check=True)
    said = Done(done.returncode, done.stdout, done.stderr).is_clear(125, "too long", "shorter")
    assert "check the owner" not in said.errors


def test_a_read_only_copy_is_checked(tmp_path: Path) -> None:
    program = _program(tmp_path / "project", tmp_path)
    program.sh("echo 2 > a")
    copy = tmp_path / "copy"
    copy.mkdir()
    with mounted(copy, "--bind", str(program.cwd)):
        subprocess.run(["mount", "-o", "remount,ro,bind", str(copy)], check=True)
        program("fsck", cwd=copy).went_well()
        program("fsck", "--repair", "--dry-run", cwd=copy).went_well()


@pytest.mark.parametrize("words", [(), ("--no-world",)])
def test_a_full_home_stops_the_command_before_it_starts(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Seen: the command never ran, and `log` called it interrupted while it ran."""
    home = tmp_path / "home"
    home.mkdir()
    program = _program(tmp_path / "project", tmp_path)
    program.sh("true")
    with mounted(home, *tmpfs_words(size="64k")):
        with suppress(OSError):
            (home / "fill").write_bytes(b"x" * 100_000)
        program(*words, "-c", "echo 2 > a").is_clear(125, "No space left", "SUBSTRATE_HOME")
    done = program("log").went_well()
    assert "interrupted" not in done.text + done.errors
    assert program("fsck").went_well().out == b"the history is sound\n"
    shown = program("show", "@").went_well().text.split()
    assert (shown[1], *shown[shown.index("outcome") + 1 :][:2]) == ("echo", "not", "started")
    assert (program.cwd / "a").read_text() == "1\n"
