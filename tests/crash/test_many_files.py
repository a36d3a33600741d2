"""Many files that are rewritten in place: several threads sync them at the same time."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.crash.oracle import Cli, Tree, differences, tree

pytestmark = [pytest.mark.needs("strace", "overlay", "root"), pytest.mark.timeout(0)]

_FILES = 120
#: So many are read by two processes.
_SHARED = 900
_APPEND = 'for f in d/*; do echo more >> "$f"; done'


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    (tmp_path / "project" / "d").mkdir(parents=True)
    (tmp_path / "home").mkdir()
    for number in range(_FILES):
        (tmp_path / "project" / "d" / f"{number:03}").write_text(f"{number}\n" * 9)
    made = Cli(tmp_path / "project", tmp_path / "home")
    made.ok("checkpoint")
    return made


def _struck(cli: Cli, fault: str) -> tuple[int, str]:
    """In every thread at its third sync: of the marks there are two."""
    argv = ["strace", "-f", "-o", os.devnull, "-e", "trace=fsync"]
    argv += ["-e", f"inject=fsync:{fault}:when=3", *cli.argv("--world", "-c", _APPEND)]
    done = cli.spawn(argv)
    return done.returncode, done.stderr.decode(errors="replace")


def _wanted(old: Tree) -> Tree:
    return {
        path: seen._replace(content=seen.content + b"more\n") if seen.kind == "file" else seen
        for path, seen in old.items()
    }


def test_a_disk_that_fails_changes_nothing_or_all_in_the_end(cli: Cli) -> None:
    old = tree(cli.workspace)
    status, said = _struck(cli, "error=EIO")
    assert "Traceback" not in said
    assert status != 0 or "not applied" in said, said
    if differences(tree(cli.workspace), old):  # taking back was struck, too: by then a third sync
        assert "could not take everything back" in said and "the next command tries again" in said
        cli.ok("-c", "true")
    else:
        worlds = cli.json("world", "list")["worlds"]
        assert isinstance(worlds, list)
        assert len(worlds) == 1
        cli.ok("world", "apply", str(worlds[0]["world_id"]))
    assert cli.json("world", "list")["worlds"] == []
    assert not differences(tree(cli.workspace), _wanted(old))


def test_a_kill_while_they_are_synced_is_finished_by_the_next_call(cli: Cli) -> None:
    old = tree(cli.workspace)
    status, _ = _struck(cli, "signal=KILL")
    assert status in (-signal.SIGKILL, 128 + signal.SIGKILL)
    cli.ok("status")
    cli.ok("-c", "true")
    assert not differences(tree(cli.workspace), _wanted(old))
    assert cli.json("world", "list")["worlds"] == []


def test_a_kill_while_two_processes_read_them_loses_nothing(cli: Cli) -> None:
    """Only the first one is struck; the child that it shares the work with ends by itself."""
    before = tree(cli.workspace)
    make = f"mkdir new; for n in $(seq {_SHARED}); do echo $n > new/$n; done"
    argv = ["strace", "-o", os.devnull, "-e", "trace=flistxattr"]
    argv += ["-e", "inject=flistxattr:signal=KILL:when=1", *cli.argv("--world", "-c", make)]
    done = cli.spawn(argv)
    cli.ok("status")
    worlds = cli.json("world", "list")["worlds"]
    assert isinstance(worlds, list)
    if done.returncode:
        assert done.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL)
        assert not differences(tree(cli.workspace), before)
        assert len(worlds) == 1
        cli.ok("world", "apply", str(worlds[0]["world_id"]))
    else:  # the child had read all of them before the first one came to it
        assert not worlds
    after = tree(cli.workspace)
    new = {path: seen.content for path, seen in after.items() if path.startswith(b"new/")}
    assert new == {b"new/%d" % n: b"%d\n" % n for n in range(1, _SHARED + 1)}
    assert not differences({path: after[path] for path in before}, before)
