"""Paths that must not leave a directory: openat2(2), Linux 5.6."""

from __future__ import annotations

import os
import struct

from substrate.system.linux import syscalls

_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_RESOLVE_IN_ROOT = 0x10


def open_path(root: int, path: bytes, *, follows: bool) -> int:
    """An O_PATH descriptor of `path`, where ``/`` is the directory `root`.

    Symlinks that lead through ``/proc`` (``/dev/stdout``) are refused with ELOOP.
    """
    flags = os.O_PATH | os.O_CLOEXEC | (0 if follows else os.O_NOFOLLOW)
    return _open(root, path, flags, _RESOLVE_IN_ROOT)


def open_directory(root: int, path: bytes) -> int:
    """The directory at `path` below `root`, opened to read; a symlink on the way raises ELOOP."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    return _open(root, path, flags, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS)


def _open(root: int, path: bytes, flags: int, resolve: int) -> int:
    import ctypes

    how = ctypes.create_string_buffer(struct.pack("QQQ", flags, 0, resolve), 24)
    name = ctypes.create_string_buffer(path)
    return syscalls.syscall("openat2", root, syscalls.address(name), syscalls.address(how), 24)
