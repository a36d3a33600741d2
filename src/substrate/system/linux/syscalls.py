"""Calling libc and the kernel; errors are raised as `OSError`."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes

#: Numbers that x86-64 and the generic table (arm64, riscv64) do not share.
_NUMBERS = {
    "x86_64": {"pivot_root": 155, "seccomp": 317, "kcmp": 312, "capset": 126, "capget": 125},
    "generic": {"pivot_root": 41, "seccomp": 277, "kcmp": 272, "capset": 91, "capget": 90},
}
#: The same number everywhere: these were added after the tables were unified.
_SHARED = {
    "open_tree": 428,
    "move_mount": 429,
    "mount_setattr": 442,
    "openat2": 437,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}
#: Above this, a C integer that should be passed as such needs its own type.
Argument = int | bytes | None


@cache
def libc() -> ctypes.CDLL:
    """The C library that Python itself uses."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: Argument) -> int:
    """Call a libc function that returns -1 on failure."""
    return _checked(name, getattr(libc(), name)(*map(_wide, arguments)))


def syscall(name: str, *arguments: Argument) -> int:
    """Make a system call that libc may have no wrapper for."""
    return _checked(name, libc().syscall(_wide(number(name)), *map(_wide, arguments)))


def number(name: str) -> int:
    if name in _SHARED:
        return _SHARED[name]
    machine = os.uname().machine
    return _NUMBERS["x86_64" if machine == "x86_64" else "generic"][name]


def address(buffer: object) -> int:
    """The memory address of a ctypes object, to pass as an argument."""
    import ctypes

    return ctypes.addressof(buffer)  # type: ignore[arg-type]


def _wide(argument: Argument) -> object:
    """Variadic functions read whole registers: widen an int to fill one."""
    import ctypes

    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def _checked(name: str, result: int) -> int:
    if result == -1:
        import ctypes

        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result
