from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from substrate.errors import LockedError, WorkspaceError
from substrate.system.process.process_identity import boot_id, process_start_token
from substrate.system.sync import locks
from substrate.system.sync.locks import FileLock

HOLD = """
import sys
from pathlib import Path
from substrate.system.sync import locks
if sys.argv[2] == "file":
    locks.fcntl = locks.msvcrt = None
lock = locks.FileLock(Path(sys.argv[1]))
lock.acquire(5, "holding for a test")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["kernel", "file"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Kernel locks, and the lock file of systems that have none."""
    if request.param == "file":
        monkeypatch.setattr(locks, "fcntl", None)
        monkeypatch.setattr(locks, "msvcrt", None)
    return str(request.param)


def _hold(path: Path, way: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), way],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert child.stdout is not None and child.stdout.readline() == b"held\n"
    return child


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.communicate()


def test_a_second_process_learns_which_process_holds_it_and_why(tmp_path: Path, way: str) -> None:
    child = _hold(tmp_path / "lock", way)
    try:
        with pytest.raises(LockedError) as caught:
            FileLock(tmp_path / "lock").acquire(0.02, "mine")
        assert f"process {child.pid} (holding for a test)" in caught.value.message
        assert caught.value.hint
    finally:
        _end(child)


def test_a_killed_holders_lock_is_free(tmp_path: Path, way: str) -> None:
    _end(_hold(tmp_path / "lock", way))
    lock = FileLock(tmp_path / "lock")
    lock.acquire(0, "after the death")
    assert lock.held
    assert lock.predecessor_died
    lock.release()
    lock.acquire(0, "after a release")
    assert not lock.predecessor_died
    lock.release()


def test_release_and_take_again(tmp_path: Path, way: str) -> None:
    for _ in range(3):
        lock = FileLock(tmp_path / "lock")
        lock.acquire(0, "round")
        holder = lock.holder()
        assert holder is not None and (holder.pid, holder.purpose) == (os.getpid(), "round")
        lock.release()
        lock.release()
        assert not lock.held and lock.holder() is None


def test_two_locks_in_one_process_exclude_each_other(tmp_path: Path, way: str) -> None:
    one, two = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
    one.acquire(0, "first")
    with pytest.raises(LockedError):
        two.acquire(0, "second")
    with pytest.raises(RuntimeError):
        one.acquire(0, "again")
    one.release()
    two.acquire(0, "second")
    two.release()


def test_as_a_context_manager(tmp_path: Path, way: str) -> None:
    lock = FileLock(tmp_path / "lock")
    lock.acquire(0, "with")
    with lock:
        assert lock.held
    assert not lock.held
    with lock:
        assert lock.held


def test_a_removed_lock_file_does_not_let_two_in(tmp_path: Path) -> None:
    one = FileLock(tmp_path / "lock")
    one.acquire(0, "first")
    os.unlink(tmp_path / "lock")
    two = FileLock(tmp_path / "lock")
    two.acquire(0, "second")  # a new file, so a new lock: nothing else can be promised
    three = FileLock(tmp_path / "lock")
    with pytest.raises(LockedError):
        three.acquire(0, "third")
    one.release()
    with pytest.raises(LockedError):
        three.acquire(0, "third")
    two.release()


@pytest.mark.parametrize(
    ("boot", "start", "stale"),
    [
        ("another-boot", "", True),
        (boot_id(), "1-another-start", True),
        (boot_id(), process_start_token(os.getpid()), False),
    ],
    ids=["another-boot", "reused-pid", "still-held"],  # the values differ from worker to worker
)
def test_a_lock_file_of_another_boot_or_of_a_reused_pid_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boot: str, start: str, stale: bool
) -> None:
    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(locks, "msvcrt", None)
    record = {"pid": os.getpid(), "boot": boot, "start": start, "purpose": "old"}
    (tmp_path / "lock.held").write_text(json.dumps(record))
    lock = FileLock(tmp_path / "lock")
    if stale:
        lock.acquire(0, "new")
        lock.release()
    else:
        with pytest.raises(LockedError):
            lock.acquire(0, "new")


def test_nonsense_in_the_lock_file_does_not_matter_to_kernel_locks(tmp_path: Path) -> None:
    (tmp_path / "lock").write_bytes(b"\xff{not json")
    lock = FileLock(tmp_path / "lock")
    assert lock.holder() is None
    lock.acquire(0, "x")
    lock.release()


def test_no_directory_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError) as caught:
        FileLock(tmp_path / "none" / "lock").acquire(0, "x")
    assert caught.value.hint


def test_a_caller_that_makes_no_file_takes_a_lock_that_is_there_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = FileLock(tmp_path / "lock")
    with pytest.raises(WorkspaceError):
        lock.acquire(0, "", makes_file=False)
    assert os.listdir(tmp_path) == []
    lock.acquire(0, "")
    lock.release()
    lock.acquire(0, "", makes_file=False)
    lock.release()
    monkeypatch.setattr(locks, "_kernel_lock", lambda *_: None)
    with pytest.raises(LockedError):
        lock.acquire(0, "", makes_file=False)
    assert os.listdir(tmp_path) == ["lock"]


def test_a_link_in_the_lock_files_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("keep")
    (tmp_path / "lock").symlink_to("victim")
    with pytest.raises(WorkspaceError):
        FileLock(tmp_path / "lock").acquire(0, "x")
    assert (tmp_path / "victim").read_text() == "keep"


def test_many_processes_never_hold_it_together(tmp_path: Path, way: str) -> None:
    program = f"""
import os, sys, time
from pathlib import Path
from substrate.system.sync import locks
if {way!r} == "file":
    locks.fcntl = locks.msvcrt = None
base = Path(sys.argv[1])
for _ in range(15):
    lock = locks.FileLock(base / "lock")
    lock.acquire(60, "count")
    os.close(os.open(base / "inside", os.O_CREAT | os.O_EXCL))
    os.unlink(base / "inside")
    lock.release()
"""
    children = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    failures = [child.communicate()[1] for child in children]
    assert [child.returncode for child in children] == [0] * 4, failures


def test_sharers_share_and_keep_others_out(tmp_path: Path) -> None:
    one, two, alone = (FileLock(tmp_path / "lock") for _ in range(3))
    one.acquire(0, "packing", shared=True)
    two.acquire(0, "packing", shared=True)
    with pytest.raises(LockedError):
        alone.acquire(0, "collecting")
    one.release()
    with pytest.raises(LockedError):
        alone.acquire(0, "collecting")
    two.release()
    alone.acquire(0, "collecting")
    with pytest.raises(LockedError, match="collecting"):
        one.acquire(0, "packing", shared=True)
    alone.release()


IDLE_HOLDER = """
import signal, sys, time
from pathlib import Path
from substrate.system.sync import locks
class GiveWay(BaseException): pass
def give_way(*_): raise GiveWay
signal.signal(signal.SIGTERM, give_way)
try:
    with locks.FileLock(Path(sys.argv[1])) as lock:
        lock.release()
        lock.acquire(0, "work", is_idle=sys.argv[2] == "idle")
        print("held", flush=True)
        time.sleep(60)
except GiveWay:
    print("gave way", flush=True)
"""


@pytest.mark.needs("posix")
@pytest.mark.parametrize("is_idle", [True, False])
def test_idle_work_gives_way(tmp_path: Path, is_idle: bool) -> None:
    path = tmp_path / "lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", IDLE_HOLDER, str(path), "idle" if is_idle else ""],
        stdout=subprocess.PIPE,
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(LockedError):
            FileLock(path).acquire(0.2, "other idle work", is_idle=True)
        assert holder.poll() is None
        lock = FileLock(path)
        if is_idle:
            lock.acquire(30, "record a command")
            lock.release()
            assert holder.stdout.readline() == b"gave way\n"
        else:
            with pytest.raises(LockedError):
                lock.acquire(0.2, "record a command")
    finally:
        holder.kill()
        holder.communicate()
