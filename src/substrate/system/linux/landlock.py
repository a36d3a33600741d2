"""Landlock: a process gives up access to files, for itself and every process it starts."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable

from substrate.system.linux import syscalls

_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_SCOPE_ABSTRACT_UNIX_SOCKET = 1
_SCOPE_SIGNAL = 2

#: Rights by bit, as in landlock(7): execute, write, read, … Later ABI versions added some.
_WRITE_FILE = 1 << 1
_REMOVE_DIR = 1 << 4
_REMOVE_FILE = 1 << 5
_MAKE_CHAR = 1 << 6
_MAKE_DIR = 1 << 7
_MAKE_REG = 1 << 8
_MAKE_SOCK = 1 << 9
_MAKE_FIFO = 1 << 10
_MAKE_BLOCK = 1 << 11
_MAKE_SYM = 1 << 12
_REFER = 1 << 13
_TRUNCATE = 1 << 14
_CHANGES = (
    _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_CHAR | _MAKE_DIR | _MAKE_REG
    | _MAKE_SOCK | _MAKE_FIFO | _MAKE_BLOCK | _MAKE_SYM
)  # fmt: skip
_FILE_RIGHTS = _WRITE_FILE | _TRUNCATE


def abi_version() -> int:
    """Raises `OSError` where the kernel has no Landlock or has it switched off."""
    return syscalls.syscall("landlock_create_ruleset", None, 0, _CREATE_RULESET_VERSION)


def allow_writes_only_below(paths: Iterable[bytes]) -> None:
    """From now on, only files below `paths` can be changed; reading is not restricted.

    Where the kernel supports it (ABI 6), abstract sockets and signals to other processes are
    blocked, too. Needs `privileges.forbid_new_privileges`, or CAP_SYS_ADMIN in our user namespace.
    """
    import ctypes
    import struct

    version = abi_version()
    handled = _CHANGES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    scoped = _SCOPE_ABSTRACT_UNIX_SOCKET | _SCOPE_SIGNAL if version >= 6 else 0
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    attributes = ctypes.create_string_buffer(struct.pack("QQQ", handled, 0, scoped)[:size], size)
    ruleset = syscalls.syscall("landlock_create_ruleset", syscalls.address(attributes), size, 0)
    try:
        for path in paths:
            _allow(ruleset, path, handled)
        syscalls.syscall("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def shut_abstract_sockets() -> None:
    """From now on, no connection to abstract sockets that were made outside.

    Needs ABI 6 (Linux 6.12), and what `allow_writes_only_below` needs.
    """
    import ctypes
    import struct

    if abi_version() < 6:
        raise OSError(errno.EOPNOTSUPP, "Landlock cannot hold abstract sockets here")
    raw = struct.pack("QQQ", 0, 0, _SCOPE_ABSTRACT_UNIX_SOCKET)
    attributes = ctypes.create_string_buffer(raw, len(raw))
    ruleset = syscalls.syscall("landlock_create_ruleset", syscalls.address(attributes), len(raw), 0)
    try:
        syscalls.syscall("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: bytes, rights: int) -> None:
    import ctypes
    import struct

    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not os.path.isdir(path):
            rights &= _FILE_RIGHTS
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, fd), 12)
        syscalls.syscall(
            "landlock_add_rule", ruleset, _RULE_PATH_BENEATH, syscalls.address(rule), 0
        )
    finally:
        os.close(fd)
