"""Work shared with forked children that inherit what is in memory and answer over a pipe.

A child reads and answers, nothing more. Whatever goes wrong with one, its answer is missing and
the caller does that part itself, or does without.
"""

from __future__ import annotations

import marshal
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TypeVar, cast

_NUMBER_BYTES = 2
#: So many numbers fit into a pipe of one page, the smallest there is.
MOST_PORTIONS = 2000
_PIPE_BYTES = 1 << 20
_MOST_BY_WEIGHT = 200
#: Who has answered leaves the processor to who goes on with the answer, if there is no other.
_LATER_IS_NICER = 5

T = TypeVar("T")


def can_fork() -> bool:
    """A fork is safe while nobody else runs in this process; on macOS it never quite is."""
    if not hasattr(os, "fork") or sys.platform == "darwin":
        return False
    return threading.active_count() == 1


def processors() -> int:
    """How many processes can really run at once here."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def by_weight(weights: Mapping[T, int], least: int) -> list[list[T]]:
    """The keys in portions of about as much weight: at least `least`, at most some hundred."""
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
    """Numbers below `count`, each given once to whichever process asks next.

    On a busy machine no fixed share would be fair. Made before the fork; close it in the parent.
    A child whose parent is gone gets none: it would do in vain what may take long, and keep what
    it inherited, such as a lock, from whoever comes next.
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
    """A child at work; `answer` must be called, once; or `early_answer` and then `late_answer`."""

    def __init__(self, pid: int, reader: int, aside: int | None = None) -> None:
        self._pid = pid
        self._reader = reader
        self._aside = aside

    def fileno(self) -> int:
        """Readable as soon as it has answered, or is gone."""
        return self._reader

    def answer_within(self, timeout_s: float) -> object:
        """Like `answer`, but a child that takes longer is ended, and its answer is None."""
        import select
        import signal

        if not select.select([self._reader], [], [], timeout_s)[0]:
            os.kill(self._pid, signal.SIGKILL)
        return self.answer()

    def answer(self) -> object:
        """What its work returned; None if it could not say."""
        said = self.early_answer()
        return said if self._has_ended_well() else None

    def early_answer(self) -> object:
        """The same, but the child may still be at what it was to do `then`."""
        with os.fdopen(self._reader, "rb") as pipe:
            return _loaded(pipe.read())

    def late_answer(self) -> object:
        """What it did `then`, when it is done; None if it could not say."""
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
            return True  # somebody ignores SIGCHLD: the answer must speak for itself


def _loaded(said: bytes) -> object:
    """What is not all of an answer is none."""
    try:
        return cast(object, marshal.loads(said)) if said else None
    except (ValueError, TypeError, EOFError):
        return None


def widen(pipe: int) -> None:
    """Room for a whole answer, where the system grants it: who fills a pipe must wait."""
    import fcntl  # only where there is fork

    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def fork(
    work: Callable[[], object], then: Callable[[], object] | None = None, *, alone: bool = False
) -> Forked | None:
    """Do `work` in a child; None if the system has no process to spare.

    The results must be plain values (what `marshal` takes). What it does `then` keeps nobody
    waiting who has got its answer. Nothing of the parent's runs in the child afterwards, no handler
    and no ``finally``. `alone`: nor does it have anything of the parent's open, so that whoever
    waits for an end of one of those does not wait for the child.
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
        child = os.fork()
    except OSError:
        for fd in opened:
            os.close(fd)
        return None
    if child:
        os.close(writer)
        return Forked(child, reader, aside)
    try:
        os.close(reader)
        if alone:
            _close_all_but(writer)
        # Nobody reads any more if the parent is gone: EPIPE then ends this process as well.
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(marshal.dumps(work(), 2))  # type: ignore[arg-type]
        if then is not None and aside is not None:
            os.nice(_LATER_IS_NICER)
            with os.fdopen(aside, "wb") as file:
                file.write(marshal.dumps(then(), 2))  # type: ignore[arg-type]
        os._exit(0)
    finally:
        os._exit(1)


def _close_all_but(kept: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in {0, 1, 2} - {kept}:
        os.dup2(nothing, stream)
    os.closerange(3, kept)
    os.closerange(max(3, kept + 1), os.sysconf("SC_OPEN_MAX"))


def end_with_parent(parent: int) -> bool:
    """In a child (Linux): what a terminal sends is not for it, and it does not outlive `parent`.

    False if that is gone already.
    """
    import signal

    from substrate.system.linux import calls

    os.setsid()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    calls.call("prctl", 1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    return os.getppid() == parent


def _file_without_name() -> int:
    """In memory, or where a system has no such files (or a sandbox none to spare) on the disk."""
    if hasattr(os, "memfd_create"):
        with suppress(OSError):
            return os.memfd_create("substrate", os.MFD_CLOEXEC)
    import tempfile

    fd, path = tempfile.mkstemp()
    os.unlink(path)
    return fd
