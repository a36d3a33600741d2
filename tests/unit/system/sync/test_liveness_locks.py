"""Locks that show that a process lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from substrate.system.sync import liveness_locks
from tests.daemons import until

pytestmark = pytest.mark.needs("linux")

_HOLDER = """
import os, sys
from pathlib import Path
from substrate.system.sync import liveness_locks as alive
token = alive.hold(Path(sys.argv[1]))
if sys.argv[2:]:
    started, tell = os.pipe()
    if os.fork() == 0:
        os.write(tell, b"1")  # by now it has closed its copy of the lock
        sys.stdin.read()  # a helper that outlives a killed holder
        os._exit(0)
    os.read(started, 1)
print(token, flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(
    place: Path, *words: str, before: tuple[str, ...] = ()
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that holds a lock until its stdin ends, and the token."""
    process = subprocess.Popen(
        [*before, sys.executable, "-c", _HOLDER, str(place), *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.communicate()


def test_held_until_the_process_is_killed(tmp_path: Path) -> None:
    with holder(tmp_path) as (process, token):
        assert liveness_locks.is_held(tmp_path, token)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not liveness_locks.is_held(tmp_path, token)


@pytest.mark.needs("root")
def test_seen_from_another_pid_namespace(tmp_path: Path) -> None:
    container = ("unshare", "-pf", "--mount-proc", "--kill-child")
    with holder(tmp_path, before=container) as (process, token):
        assert liveness_locks.is_held(tmp_path, token)
        process.kill()
        process.wait()
        until(lambda: not liveness_locks.is_held(tmp_path, token), "the end of the holder")


def test_a_child_of_the_holder_does_not_hold_it(tmp_path: Path) -> None:
    """A helper that outlives a killed recorder must not make its command look alive."""
    with holder(tmp_path, "with a child") as (process, token):
        assert liveness_locks.is_held(tmp_path, token)
        process.kill()
        process.wait()
        assert not liveness_locks.is_held(tmp_path, token)


def test_two_of_one_process_are_apart(tmp_path: Path) -> None:
    one, other = liveness_locks.hold(tmp_path), liveness_locks.hold(tmp_path)
    liveness_locks.release(tmp_path, one)
    assert not liveness_locks.is_held(tmp_path, one)
    assert liveness_locks.is_held(tmp_path, other)
    liveness_locks.release(tmp_path, other)
    assert not liveness_locks.is_held(tmp_path, other)


def test_no_command_inherits_it(tmp_path: Path) -> None:
    token = liveness_locks.hold(tmp_path)
    listed = subprocess.run(
        ["sh", "-c", "ls -l /proc/self/fd"], capture_output=True, text=True, check=True,
        close_fds=False,
    )  # fmt: skip
    assert liveness_locks.NAME not in listed.stdout
    liveness_locks.release(tmp_path, token)


def test_handed_over_it_lives_with_the_other_process(tmp_path: Path) -> None:
    lock = liveness_locks.handle(tmp_path)
    other = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(lock.fd,))
    lock.close()
    assert liveness_locks.is_held(tmp_path, lock.token)
    other.communicate(b"")
    assert not liveness_locks.is_held(tmp_path, lock.token)


def test_a_place_that_was_made_again(tmp_path: Path) -> None:
    liveness_locks.ensure(tmp_path)
    before = liveness_locks.own(tmp_path)
    (tmp_path / liveness_locks.NAME).unlink()
    assert liveness_locks.own(tmp_path) == "", "the user may be removing the place"
    assert not (tmp_path / liveness_locks.NAME).exists()
    liveness_locks.ensure(tmp_path)
    assert liveness_locks.own(tmp_path) == before
    asked = "from substrate.system.sync import liveness_locks as alive; import sys, pathlib;"
    asked += "sys.exit(not alive.is_held(pathlib.Path(sys.argv[1]), sys.argv[2]))"
    done = subprocess.run([sys.executable, "-c", asked, str(tmp_path), before], check=False)
    assert done.returncode == 0


def test_where_nothing_can_be_locked_there_is_no_token(tmp_path: Path) -> None:
    assert liveness_locks.hold(tmp_path / "missing") == ""
    assert liveness_locks.handle(tmp_path / "missing").token == ""
    assert not liveness_locks.is_held(tmp_path, "")
    assert not liveness_locks.is_held(tmp_path, "00000000000001")


def test_a_mark_names_a_process_by_its_lock(tmp_path: Path) -> None:
    liveness_locks.ensure(tmp_path)
    mine = liveness_locks.mark(tmp_path)
    assert mine.startswith(f"{os.getpid()}-")
    assert liveness_locks.is_marked_alive(tmp_path, f"{mine}-wld_x")
    # The pid is ours, the lock is not: in another namespace another process has that pid.
    assert not liveness_locks.is_marked_alive(tmp_path, f"{os.getpid()}-00000000000001-wld_x")
    assert liveness_locks.is_marked_alive(tmp_path, f"{os.getpid()}-wld_x"), (
        "as older versions name them"
    )
