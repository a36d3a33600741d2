from __future__ import annotations

import threading
from pathlib import Path

import pytest

from substrate.system.files import files
from substrate.system.process.thread_fanout import AtOnce


@pytest.mark.parametrize("count", [0, 1, 31, 32, 1000])
def test_each_gets_its_turn_once_and_no_thread_stays(count: int) -> None:
    before = threading.active_count()
    done: list[int] = []
    with AtOnce() as several:
        for _ in range(3):
            several.for_each(done.append, range(count))
            assert len(done) % max(count, 1) == 0  # nothing goes on in the background
    assert sorted(done) == sorted([*range(count)] * 3)
    assert threading.active_count() == before


def test_they_wait_together() -> None:
    """All sixteen are under way before the first may go on."""
    meeting = threading.Barrier(16, timeout=60)
    with AtOnce() as several:
        several.for_each(lambda _: meeting.wait(), range(32))


@pytest.mark.parametrize("count", [5, 100])
def test_a_failure_is_reported_once_all_others_are_done(count: int) -> None:
    done: list[int] = []

    def work(number: int) -> None:
        if number == 3:
            raise OSError(28, "no room")
        done.append(number)

    with AtOnce() as several, pytest.raises(OSError, match="no room"):
        several.for_each(work, range(count))
    assert sorted(done) == [number for number in range(count) if number != 3]


def test_where_no_thread_may_be_started_it_is_done_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_more)
    done: list[int] = []
    with AtOnce() as several:
        several.for_each(done.append, range(100))
    assert done == list(range(100))


def test_a_tree_of_many_files_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "top"
    for directory in ("a", "a/b", "c"):
        (top / directory).mkdir(parents=True)
        for number in range(100):
            (top / directory / str(number)).touch()
    (top / "a" / "link").symlink_to(tmp_path)
    files.remove_tree(top)
    assert list(tmp_path.iterdir()) == []
