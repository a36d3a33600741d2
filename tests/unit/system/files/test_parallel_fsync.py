from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from substrate.system.many_syncs import ManySyncs


def _open_count() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.needs("linux")
def test_every_descriptor_is_closed_and_no_thread_stays(tmp_path: Path) -> None:
    import resource

    before = _open_count(), threading.active_count()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, limits[1]))
    try:
        syncs, most = ManySyncs(), 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for number in range(900):
        fd = os.open(tmp_path / str(number), os.O_WRONLY | os.O_CREAT)
        os.write(fd, b"x")
        syncs.add(fd)
        most = max(most, _open_count() - before[0])
    syncs.finish()
    assert (_open_count(), threading.active_count()) == before
    assert most <= 400  # never so many open that a usual limit would be met
    syncs.finish()


@pytest.mark.needs("linux")
def test_a_low_limit_of_open_files_is_kept(tmp_path: Path) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_open_count() + 150, hard))
    try:
        syncs = ManySyncs()
        for number in range(300):
            syncs.add(os.open(tmp_path / str(number), os.O_WRONLY | os.O_CREAT))
        syncs.finish()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(list(tmp_path.iterdir())) == 300


@pytest.mark.needs("linux")
def test_a_failure_is_told_once_all_others_are_done(tmp_path: Path) -> None:
    syncs = ManySyncs()
    unfit = os.open(tmp_path, os.O_PATH)  # cannot be synced
    syncs.add(unfit)
    fd = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    syncs.add(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        syncs.finish()
    for closed in (unfit, fd):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(closed)


@pytest.mark.needs("linux")
def test_where_no_thread_may_be_started_it_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_more)
    before = _open_count()
    syncs = ManySyncs()
    for number in range(30):
        syncs.add(os.open(tmp_path / str(number), os.O_WRONLY | os.O_CREAT))
    syncs.finish()
    assert _open_count() == before
