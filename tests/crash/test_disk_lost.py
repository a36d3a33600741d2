"""A disk that goes without a reboot: the next command mends the history and says so."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.oracle import Cli, store_problems
from tests.crash.test_power_cut import Disk, synced

pytestmark = [pytest.mark.needs("linux", "loop-devices"), pytest.mark.timeout(0)]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path)
    made.mount()
    try:
        yield made
    finally:
        made.unmount()


@pytest.fixture
def cli(disk: Disk, private_environment: Path) -> Cli:
    workspace = disk.mount_point / "project"
    workspace.mkdir()
    (workspace / "f").write_text("start\n")
    cli = Cli(workspace, private_environment)
    cli.ok("-c", "true")
    subprocess.run(["sync", "-f", str(workspace)], check=True)
    return cli


def test_the_next_command_mends_the_history_and_says_so(disk: Disk, cli: Cli) -> None:
    cli.ok("-c", synced("one"))
    cli.ok("-c", synced("two"))
    disk.cut_power()
    empty = [path for path in cli.workspace.glob(".substrate-git/.git/objects/??/*")
             if path.stat().st_size == 0]  # fmt: skip
    assert empty, "the premise: objects were lost"
    done = cli("-c", "echo three > f")
    assert done.returncode == 0, done.stderr
    assert b"were lost with the disk" in done.stderr
    assert store_problems(cli) == []
    assert b"lost" not in cli("-c", "true").stderr
    cli.ok("undo")
    assert (cli.workspace / "f").read_text() == "two\n"


def test_a_file_that_the_cut_emptied_is_reported_as_that(disk: Disk, cli: Cli) -> None:
    cli.ok("-c", "printf 'not synced\\n' > new")
    disk.cut_power()
    assert (cli.workspace / "new").read_text() == "", "the premise: it was not on the disk yet"
    done = cli("-c", "true")
    assert done.returncode == 0 and b"emptied when the disk was lost: new" in done.stderr
    entry = cli.log()[1]
    assert entry["kind"] == "external" and entry["changed_files"] == ["new"]
    assert "emptied when the disk was lost" in cli.ok("log")
    assert store_problems(cli) == []
    cli.ok("undo", str(entry["command_id"]))
    assert (cli.workspace / "new").read_text() == "not synced\n"


def test_a_question_is_answered_right_after_it(disk: Disk, cli: Cli) -> None:
    cli.ok("-c", synced("one"))
    disk.cut_power()
    assert "one" in cli.ok("show")
    assert cli("fsck").returncode == 0
