"""Work shared with forked children that inherit our memory and answer over a pipe.

A child reads and answers, nothing more. If a child fails, its answer is missing, and the caller
does that part itself or goes on without it.
"""

from __future__ import annotations

import marshal
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TypeVar, cast

from substrate.system.process.process import fork_child

_NUMBER_BYTES = 2
#: This many numbers fit into a pipe of one page, the smallest there is.
MOST_PORTIONS = 2000
_PIPE_BYTES = 1 << 20
_MOST_BY_WEIGHT = 200
#: Niceness of a child after its answer: on a single processor, the parent runs first.
_LATER_IS_NICER = 5

T = TypeVar("T")


def can_fork() -> bool:
    """A fork is safe only without other threads in this process, and never quite on macOS."""
    if not hasattr(os, "fork") or sys.platform == "darwin":
        return False
    return threading.active_count() == 1


def processors() -> int:
    """How many processes can really run at the same time here."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def by_weight(weights: Mapping[T, int], least: int) -> list[list[T]]:
    """The keys in portions of similar weight: at least `least` each, about 200 portions at most."""
    portion = max(least, sum(weights.values()) // _MOST_BY_WEIGHT)
    portions: list[list[T]] = [[]]
    filled = 0
    for key, weight in weights.items():
        if filled >= portion:
            portions.append([])
            filled = 0
        portions[-1].append(key)
        filled += weight
    return portions


class Portions:
    """Numbers below `count`, each given once, to the process that asks next.

    On a busy machine no fixed share would be fair. Make it before the fork; close it in the parent.
    A child whose parent has ended gets none: its work would be wasted, and it would keep what it
    inherited, such as a lock, from the next process.
    """

    def __init__(self, count: int) -> None:
        if count > MOST_PORTIONS:
            raise ValueError(f"{count} portions are too many")
        self._maker = os.getpid()
        self._reader, writer = os.pipe()
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(b"".join(number.to_bytes(_NUMBER_BYTES, "big") for number in range(count)))

    def claims(self) -> Iterator[int]:
        is_child = os.getpid() != self._maker
        while number := os.read(self._reader, _NUMBER_BYTES):
            if is_child and os.getppid() != self._maker:
                return
            yield int.from_bytes(number, "big")

    def close(self) -> None:
        os.close(self._reader)


class Forked:
    """A child at work. Call `answer` once; or `early_answer` and then `late_answer`."""

    def __init__(self, pid: int, reader: int, aside: int | None = None) -> None:
        self._pid = pid
        self._reader = reader
        self._aside = aside

    def fileno(self) -> int:
        """Readable as soon as the child has answered or ended."""
        return self._reader

    def answer_within(self, timeout_s: float) -> object:
        """Like `answer`, but a child that takes longer is killed, and its answer is None."""
        import select
        import signal

        if not select.select([self._reader], [], [], timeout_s)[0]:
            os.kill(self._pid, signal.SIGKILL)
        return self.answer()

    def answer(self) -> object:
        """The result of its work; None if the child failed."""
        said = self.early_answer()
        return said if self._has_ended_well() else None

    def early_answer(self) -> object:
        """The same, but the child may still be busy with its `then` work."""
        with os.fdopen(self._reader, "rb") as pipe:
            return _loaded(pipe.read())

    def late_answer(self) -> object:
        """The result of its `then` work, once done; None if the child failed."""
        assert self._aside is not None
        with os.fdopen(self._aside, "rb") as file:
            if not self._has_ended_well():
                return None
            file.seek(0)
            return _loaded(file.read())

    def _has_ended_well(self) -> bool:
        try:
            return os.waitpid(self._pid, 0)[1] == 0
        except ChildProcessError:
            return True  # SIGCHLD is ignored, so there is no status: judge by the answer alone


def _loaded(said: bytes) -> object:
    """An incomplete answer counts as none."""
    try:
        return cast(object, marshal.loads(said)) if said else None
    except (ValueError, TypeError, EOFError):
        return None


def widen(pipe: int) -> None:
    """Make room for a whole answer, if allowed: a writer to a full pipe must wait."""
    import fcntl  # only where there is fork

    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def fork(
    work: Callable[[], object], then: Callable[[], object] | None = None, *, alone: bool = False
) -> Forked | None:
    """Do `work` in a child; None if the system cannot fork now.

    The results must be plain values (what `marshal` takes). `then` runs after the answer is sent,
    so the parent does not wait for it. None of the parent's code runs in the child afterwards: no
    handler and no ``finally``. `alone`: the child closes all inherited descriptors, so that a
    process that waits for the end of one of them does not wait for the child.
    """
    opened: list[int] = []
    try:
        opened += os.pipe()
        aside = None
        if then is not None:
            aside = _file_without_name()
            opened.append(aside)
        reader, writer = opened[:2]
        widen(writer)
        child = fork_child(lambda: _work(work, then, opened, alone=alone))
    except OSError:
        for fd in opened:
            os.close(fd)
        return None
    os.close(writer)
    return Forked(child, reader, aside)


def _work(
    work: Callable[[], object],
    then: Callable[[], object] | None,
    opened: list[int],
    *,
    alone: bool,
) -> None:
    """In the child."""
    reader, writer, *aside = opened
    os.close(reader)
    if alone:
        _close_all_but(writer)
    # If the parent has ended, no process reads the pipe: EPIPE then ends this process as well.
    with os.fdopen(writer, "wb") as pipe:
        pipe.write(marshal.dumps(work(), 2))  # type: ignore[arg-type]
    if then is not None:
        os.nice(_LATER_IS_NICER)
        with os.fdopen(aside[0], "wb") as file:
            file.write(marshal.dumps(then(), 2))  # type: ignore[arg-type]


def share(
    count: int,
    children: int,
    in_child: Callable[[Iterator[int]], object],
    here: Callable[[int], object],
) -> list[object]:
    """Give each number below `count` to one of so many children or to this process.

    Returns the children's answers. What a failed child took is in no answer: the caller must do
    it, or go on without it.
    """
    try:
        portions = Portions(count)
    except OSError:  # no descriptors left
        for number in range(count):
            here(number)
        return []
    started = [fork(lambda: in_child(portions.claims())) for _ in range(children)]
    try:
        for number in portions.claims():
            here(number)
    finally:
        portions.close()
        answers = [child.answer() for child in started if child is not None]
    return [answer for answer in answers if answer is not None]


def _close_all_but(kept: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in {0, 1, 2} - {kept}:
        os.dup2(nothing, stream)
    os.closerange(3, kept)
    os.closerange(max(3, kept + 1), os.sysconf("SC_OPEN_MAX"))


def end_with_parent(parent: int) -> bool:
    """In a child (Linux): ignore the terminal's signals, and do not outlive `parent`.

    False if `parent` has already ended.
    """
    import signal

    from substrate.system.linux import syscalls

    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    syscalls.call("prctl", 1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    return os.getppid() == parent


def _file_without_name() -> int:
    """In memory; on disk where the system lacks such files or a sandbox forbids them."""
    if hasattr(os, "memfd_create"):
        with suppress(OSError):
            return os.memfd_create("substrate", os.MFD_CLOEXEC)
    import tempfile

    fd, path = tempfile.mkstemp()
    os.unlink(path)
    return fd
