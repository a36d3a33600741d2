"""The caller's umask: for the command, but not for our own files.

A umask that takes rights from the owner (0377, 0777) would lock us out of our own directories as
soon as they are made. So only its other bits apply in this process; the programs that we start for
the caller get all of it. The thin client imports this module, so it imports next to nothing.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from nt import umask as _set
else:
    from posix import umask as _set

_OWNERS_BITS = 0o700


class _Caller:
    """The caller's umask, if this process now has another one."""

    __slots__ = ("umask",)

    def __init__(self) -> None:
        self.umask: int | None = None


_caller = _Caller()


def take(callers: int | None = None) -> None:
    """Adopt the caller's umask; None: the one that this process was started with."""
    found = _in_force() if callers is None else callers & 0o777
    _caller.umask = found if found & _OWNERS_BITS else None
    _set(found & ~_OWNERS_BITS)


def current() -> int:
    """The umask that a command we start gets."""
    return _in_force() if _caller.umask is None else _caller.umask


def give() -> None:
    """In a child that is about to exec the caller's program: set the caller's umask."""
    if _caller.umask is not None:
        _set(_caller.umask)


def _in_force() -> int:
    # A umask can only be read by setting it; use a strict one for that moment.
    found = _set(0o077)
    _set(found)
    return found
