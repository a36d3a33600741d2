"""Following the trace while others write, rotate, tear and take back lines."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from substrate.trace.follow import TraceFollower
from substrate.trace.writer import TraceWriter
from tests.daemons import until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "trace.jsonl"


@pytest.fixture
def follower(path: Path) -> Iterator[TraceFollower]:
    with TraceFollower(path) as opened:
        yield opened


def numbers(follower: TraceFollower) -> list[object]:
    return [span["n"] for span in follower.new_spans()]


def test_nothing_yet_then_each_span_once(path: Path, follower: TraceFollower) -> None:
    assert numbers(follower) == []
    writer = TraceWriter(path)
    for n in (1, 2):
        writer.append({"n": n})
    assert numbers(follower) == [1, 2]
    assert numbers(follower) == []
    writer.append({"n": 3})
    assert numbers(follower) == [3]


@pytest.mark.parametrize("every", [1, 3, 7])
def test_rotations_hide_nothing_and_show_nothing_twice(
    path: Path, follower: TraceFollower, every: int
) -> None:
    writer = TraceWriter(path, rotate_bytes=30)  # three or four lines a file
    seen = []
    for n in range(60):
        writer.append({"n": n})
        if n % every == 0:
            seen += numbers(follower)
    assert seen + numbers(follower) == list(range(60))
    assert path.with_name("trace.jsonl.8").exists()


def test_a_reader_that_falls_behind_goes_on_with_the_oldest_that_is_kept(
    path: Path, follower: TraceFollower
) -> None:
    writer = TraceWriter(path, rotate_bytes=1, kept_files=8)  # a file for each line
    writer.append({"n": 0})
    assert numbers(follower) == [0]
    for n in range(1, 30):
        writer.append({"n": n})
    assert numbers(follower) == list(range(21, 30))


def test_a_line_written_late_to_a_file_put_aside(path: Path, follower: TraceFollower) -> None:
    TraceWriter(path).append({"n": 1})
    assert numbers(follower) == [1]
    with path.open("ab") as late:
        path.rename(path.with_name("trace.jsonl.1"))
        TraceWriter(path).append({"n": 2})
        assert numbers(follower) == [2]
        late.write(b'{"n":3}\n')
    assert numbers(follower) == [3]


def test_half_a_line_waits_for_its_end(path: Path, follower: TraceFollower) -> None:
    with path.open("ab", buffering=0) as file:
        file.write(b'{"n":')
        assert numbers(follower) == []
        file.write(b"1}\n")
        assert numbers(follower) == [1]
    assert follower.skipped == 0


def test_a_torn_line_is_skipped_once_the_next_writer_mends_it(
    path: Path, follower: TraceFollower
) -> None:
    path.write_bytes(b'{"n":')
    assert numbers(follower) == []
    TraceWriter(path).append({"n": 2})
    assert numbers(follower) == [2]
    assert follower.skipped == 1


def test_a_write_that_was_taken_back(path: Path, follower: TraceFollower) -> None:
    TraceWriter(path).append({"n": 1})
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b'{"n":')
    assert numbers(follower) == [1]
    os.truncate(path, size)
    TraceWriter(path).append({"n": 2})
    assert numbers(follower) == [2]
    assert follower.skipped == 0


#: All that is written fits into what is kept, so that a slow reader never falls behind.
@pytest.mark.needs("posix")
def test_a_writer_held_up_while_the_file_is_put_aside_goes_on_in_the_current_one(
    path: Path, follower: TraceFollower
) -> None:
    """Rotated twice: a follower would not read such an old file again."""
    TraceWriter(path).append({"n": 1})
    import fcntl

    aside, further = path.with_name("trace.jsonl.1"), path.with_name("trace.jsonl.2")
    with path.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        late = threading.Thread(target=TraceWriter(path).append, args=({"n": 4},))
        late.start()
        until(lambda: times_open(path) == 2, "the late writer")
        path.rename(aside)
        TraceWriter(path).append({"n": 2})
        aside.rename(further)
        path.rename(aside)
        TraceWriter(path).append({"n": 3})
        seen = numbers(follower)
    late.join()
    assert {*seen, *numbers(follower)} == {1, 2, 3, 4}
    assert follower.skipped == 0


def times_open(path: Path) -> int:
    """In this very process."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            count += os.path.samefile(f"/proc/self/fd/{name}", path)
    return count


@pytest.mark.needs("posix")
def test_no_file_is_put_aside_under_a_writer(path: Path) -> None:
    import fcntl

    writer = TraceWriter(path, rotate_bytes=1)
    writer.append({"n": 1})
    with path.open("ab", buffering=0) as writing:
        fcntl.flock(writing, fcntl.LOCK_EX)
        writer.append({"n": 2})  # in the end without the lock, rather than not at all
        writing.write(b'{"n":3}\n')
        assert path.read_bytes() == b'{"n":1}\n{"n":2}\n{"n":3}\n'
    writer.append({"n": 4})
    assert path.read_bytes() == b'{"n":4}\n'


_WRITER = """
import sys
from pathlib import Path
from substrate.trace.writer import TraceWriter
writer = TraceWriter(Path(sys.argv[1]), rotate_bytes=4000, kept_files=20)
for n in range(200):
    writer.append({"n": f"{sys.argv[2]}-{n}", "pad": "x" * 40})
"""


@pytest.mark.needs("posix")
def test_several_processes_write_and_rotate_at_once(path: Path) -> None:
    with TraceFollower(path, kept_files=20) as follower:
        writers = [
            subprocess.Popen([sys.executable, "-c", _WRITER, str(path), name]) for name in "abc"
        ]
        seen: list[object] = []
        while any(writer.poll() is None for writer in writers):
            seen += numbers(follower)
        seen += numbers(follower)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    assert len(seen) == len(set(seen))
    assert set(seen) == {f"{name}-{n}" for name in "abc" for n in range(200)}
    assert follower.skipped == 0
