"""Output passes through unchanged and at once; what is kept is exact."""

from __future__ import annotations

import hashlib
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from substrate.world.interface import Capture, Captured, RunOutcome, RunRequest
from substrate.world.strategies.direct import DirectWorld

pytestmark = pytest.mark.needs("posix")


class Pipe:
    """A pipe read by a thread, so that no command ever waits for us."""

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        self.chunks: list[tuple[float, bytes]] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while data := os.read(self._reader, 1 << 20):
            self.chunks.append((time.monotonic(), data))
        os.close(self._reader)

    def close(self) -> bytes:
        os.close(self.writer)
        self._thread.join()
        return b"".join(data for _, data in self.chunks)


@pytest.fixture
def pipes() -> Iterator[list[Pipe]]:
    made = [Pipe(), Pipe()]
    yield made
    for pipe in made:
        if pipe._thread.is_alive():
            pipe.close()


def run(tmp_path: Path, line: str, out: int, err: int, cap_bytes: int = 1 << 20) -> RunOutcome:
    capture = Capture(tmp_path / "kept", cap_bytes)
    return DirectWorld().run(
        RunRequest(tmp_path, shell=line, stdout=out, stderr=err, capture=capture)
    )


def test_each_stream_arrives_and_is_kept(tmp_path: Path, pipes: list[Pipe]) -> None:
    out, err = pipes
    outcome = run(tmp_path, "printf 'a\\377\\000b'; echo oops >&2", out.writer, err.writer)
    assert (out.close(), err.close()) == (b"a\xff\0b", b"oops\n")
    for captured, data in ((outcome.stdout, b"a\xff\0b"), (outcome.stderr, b"oops\n")):
        assert captured is not None
        assert captured.path is not None
        assert captured.path.read_bytes() == data
        assert stat.S_IMODE(captured.path.stat().st_mode) == 0o600
        assert captured == Captured(
            hashlib.sha256(data).hexdigest(), len(data), captured.path, False
        )


def test_the_hash_is_of_all_and_the_file_of_the_beginning(
    tmp_path: Path, pipes: list[Pipe]
) -> None:
    outcome = run(tmp_path, "seq 1 100000", pipes[0].writer, pipes[1].writer, cap_bytes=1000)
    whole = b"".join(b"%d\n" % n for n in range(1, 100001))
    assert pipes[0].close() == whole
    captured = outcome.stdout
    assert captured is not None
    assert captured.path is not None
    assert captured.path.read_bytes() == whole[:1000]
    assert captured[:2] == (hashlib.sha256(whole).hexdigest(), len(whole))
    assert captured.truncated


def test_nothing_printed_leaves_no_file(tmp_path: Path, pipes: list[Pipe]) -> None:
    outcome = run(tmp_path, "true", pipes[0].writer, pipes[1].writer)
    empty = Captured(hashlib.sha256().hexdigest(), 0, None, False)
    assert (outcome.stdout, outcome.stderr) == (empty, empty)
    assert not (tmp_path / "kept").exists()


def test_it_streams(tmp_path: Path, pipes: list[Pipe]) -> None:
    """The command waits until what it printed has arrived: no buffer may hold it back."""
    mark = tmp_path / "go"
    line = f"printf first; while ! test -e {mark}; do sleep 0.01; done; printf second"

    def let_go() -> None:
        while not pipes[0].chunks:
            time.sleep(0.005)
        mark.touch()

    thread = threading.Thread(target=let_go)
    thread.start()
    run(tmp_path, line, pipes[0].writer, pipes[1].writer)
    thread.join()
    assert pipes[0].close() == b"firstsecond"


def test_lines_of_both_keep_their_order_where_both_are_one(
    tmp_path: Path, pipes: list[Pipe]
) -> None:
    line = "for i in $(seq 200); do echo out$i; echo err$i >&2; done"
    outcome = run(tmp_path, line, pipes[0].writer, pipes[0].writer)
    expected = b"".join(b"out%d\nerr%d\n" % (i, i) for i in range(1, 201))
    assert pipes[0].close() == expected
    assert outcome.stdout is not None
    assert outcome.stdout.size_bytes == len(expected)
    assert outcome.stderr is None


def test_a_reader_that_goes_away_ends_the_command_as_it_would(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    other = os.open(os.devnull, os.O_WRONLY)
    # A program with pipes' default disposition dies of it, however long it would have run.
    outcome = run(tmp_path, "exec yes", writer, other)
    os.close(writer)
    os.close(other)
    assert outcome.signal == signal.SIGPIPE


def test_a_file_as_stdout_is_written_where_it_was(tmp_path: Path) -> None:
    target = tmp_path / "log"
    target.write_bytes(b"before\n")
    fd = os.open(target, os.O_WRONLY | os.O_APPEND)
    outcome = run(tmp_path, "echo after", fd, fd)
    os.close(fd)
    assert target.read_bytes() == b"before\nafter\n"
    assert outcome.stdout is not None


def test_a_terminal_is_the_commands_own_and_not_captured(tmp_path: Path) -> None:
    import pty

    ours, theirs = pty.openpty()
    outcome = run(tmp_path, "test -t 1 && test -t 2", theirs, theirs)
    os.close(ours)
    os.close(theirs)
    assert outcome.exit == 0
    assert (outcome.stdout, outcome.stderr) == (None, None)


def test_the_null_device_stays_one(tmp_path: Path) -> None:
    """grep and tar do less if their output is not read."""
    fd = os.open(os.devnull, os.O_WRONLY)
    outcome = run(tmp_path, "test -c /dev/fd/1", fd, fd)
    os.close(fd)
    assert (outcome.exit, outcome.stdout) == (0, None)


def test_what_is_left_running_keeps_its_output(tmp_path: Path, pipes: list[Pipe]) -> None:
    mark = tmp_path / "go"
    line = f"(while ! test -e {mark}; do sleep 0.01; done; echo late) & echo now"
    outcome = run(tmp_path, line, pipes[0].writer, pipes[1].writer)
    assert outcome.stdout is not None
    assert outcome.stdout.size_bytes == len("now\n")
    mark.touch()
    assert pipes[0].close() == b"now\nlate\n"


def test_output_that_cannot_be_kept_still_arrives(tmp_path: Path, pipes: list[Pipe]) -> None:
    (tmp_path / "kept").write_text("in the way")
    outcome = run(tmp_path, "echo hi", pipes[0].writer, pipes[1].writer)
    assert pipes[0].close() == b"hi\n"
    assert outcome.stdout == Captured(hashlib.sha256(b"hi\n").hexdigest(), 3, None, True)


@pytest.mark.long
def test_a_gigabyte_stays_out_of_memory(tmp_path: Path) -> None:
    import resource

    fd = os.open(tmp_path / "big", os.O_WRONLY | os.O_CREAT)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = run(tmp_path, "head -c 1000000000 /dev/zero", fd, fd)
    os.close(fd)
    assert outcome.stdout is not None
    assert outcome.stdout.size_bytes == 10**9
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


_NO_THREAD = """
import resource, sys
from pathlib import Path
from substrate.errors import RefusedError
from substrate.world.process.capture import Capturing
from substrate.world.strategies.direct import DirectWorld
from substrate.world.interface import Capture, RunRequest
kept = Path(sys.argv[1])
capturing = Capturing(Capture(kept, 100), None, None)
pages = int(open("/proc/self/statm").read().split()[0])
room = (pages + 256) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (room, room))
for work in (
    capturing.start,
    lambda: DirectWorld().run(RunRequest(kept, shell="sleep 1000", capture=Capture(kept, 100))),
):
    try:
        work()
    except RefusedError as error:
        assert "ulimit" in error.hint, error.hint
    else:
        raise AssertionError("there was room for a thread")
print(capturing.finish())
"""


@pytest.mark.needs("linux")
def test_where_no_thread_can_be_started_it_is_reported(tmp_path: Path) -> None:
    """Nothing waits for the thread, nor for the command, which must not continue alone."""
    done = subprocess.run(
        [sys.executable, "-c", _NO_THREAD, str(tmp_path)], capture_output=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"size_bytes=0" in done.stdout
