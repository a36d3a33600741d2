from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from substrate.system.files.parallel_fsync import ManySyncs


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
    # In a child without the files that other tests left open: the limit counts their numbers.
    child = os.fork()
    if child == 0:
        os._exit(_syncs_with_few_descriptors(tmp_path))
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(tmp_path.iterdir())) == 300


def _syncs_with_few_descriptors(directory: Path) -> int:
    import resource

    try:
        os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        resource.setrlimit(resource.RLIMIT_NOFILE, (150, 150))
        syncs = ManySyncs()
        for number in range(300):
            syncs.add(os.open(directory / str(number), os.O_WRONLY | os.O_CREAT))
        syncs.finish()
    except OSError:
        return 1
    return 0


@pytest.mark.needs("linux")
def test_a_failure_is_reported_once_all_others_are_done(tmp_path: Path) -> None:
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
