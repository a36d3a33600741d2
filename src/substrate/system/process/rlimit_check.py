"""Whether the limits that we were started with (``ulimit``) leave room for our own work.

A command shares its limits with us. Stopping half-way for lack of memory or descriptors loses no
data, but the command would have run in vain, and no message could tell the user why. So limits that
are known to be too small are reported before anything begins.
"""

from __future__ import annotations

import sys
from _thread import stack_size, start_new_thread
from collections.abc import Callable
from typing import TYPE_CHECKING

from substrate.errors import RefusedError

if TYPE_CHECKING:
    from threading import Thread

_MIB = 1024 * 1024
#: A small command needs 30 MiB more than Python alone; a command that changes much needs more.
_MEMORY_BYTES = 48 * _MIB
#: The ledger's write-ahead log takes a few MiB, and grows until it is folded into the ledger.
_FILE_BYTES = 16 * _MIB
_DESCRIPTORS = 64
_STACK_BYTES = 1 * _MIB
#: Texts of the ImportError when the loader has no room to map a library.
_NOT_LOADED = ("failed to map segment", "cannot allocate memory", "cannot map zero-fill")


def require() -> None:
    """Raises `RefusedError` if a limit is too small to run a command and record it."""
    try:
        import resource
    except ImportError:  # Windows
        return
    bound = resource.RLIM_INFINITY
    size = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    if size != bound and size < _FILE_BYTES:
        raise _too_small("the size of a file (ulimit -f)", "f", f"{_FILE_BYTES // _MIB} MiB")
    count = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if count != bound and count < _DESCRIPTORS:
        raise _too_small("open files (ulimit -n)", "n", str(_DESCRIPTORS))
    memory = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
    is_limited = any(resource.getrlimit(which)[0] != bound for which in memory)
    stack = resource.getrlimit(resource.RLIMIT_STACK)[0]
    if is_limited or (stack != bound and stack < _STACK_BYTES):
        stack_size(_STACK_BYTES)  # a thread's stack is otherwise as large or small as that limit
    if is_limited and not _has_memory():
        raise no_memory()


def _has_memory() -> bool:
    """Test by allocating: how much Python and its libraries already use differs everywhere."""
    import mmap

    try:
        mmap.mmap(-1, _MEMORY_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS).close()
    except OSError:
        return False
    return True


def start(thread: Thread) -> None:
    """Start the thread; `RefusedError` if no more threads are allowed."""
    try:
        thread.start()
    except RuntimeError as error:
        raise _no_thread() from error


def start_thread(work: Callable[[], None]) -> None:
    """Like `start`, without importing `threading`, for callers that keep track of their threads."""
    try:
        start_new_thread(work, ())
    except RuntimeError as error:
        raise _no_thread() from error


def shortage(error: BaseException) -> RefusedError | None:
    """The `RefusedError` for `error`, if its cause is a limit."""
    if isinstance(error, MemoryError):
        return no_memory()
    text = str(error)
    if isinstance(error, RuntimeError) and "start new thread" in text:
        return _no_thread()
    if isinstance(error, ImportError) and any(part in text.lower() for part in _NOT_LOADED):
        return no_memory()
    return None


def no_memory() -> RefusedError:
    return RefusedError(
        "there is not enough memory: a limit (ulimit -v, ulimit -d) may be too small",
        hint=_hint("v", f"about {2 * _MEMORY_BYTES // _MIB} MiB are enough for a small command"),
    )


def file_size_is_limited() -> bool:
    """Whether the size of a file is limited: a write may fail for that reason alone."""
    if sys.platform == "win32":
        return False
    import resource

    return resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY


def _no_thread() -> RefusedError:
    return RefusedError(
        "no thread can be started: there are too many processes, or too little memory",
        hint=_hint("u", "`ulimit -u` and `ulimit -v` show what is allowed"),
    )


def _too_small(what: str, letter: str, least: str) -> RefusedError:
    return RefusedError(
        f"the limit of {what} is too small to record a command",
        hint=_hint(letter, f"at least {least}"),
    )


def _hint(letter: str, least: str) -> str:
    return (
        f"raise it ({least}), or set it for the command alone: substrate -c 'ulimit -{letter} N; …'"
    )
