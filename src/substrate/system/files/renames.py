"""The two renames Python lacks: swap two names, and rename only onto a free name.

Both are one system call on Linux (renameat2) and macOS (renameatx_np). ctypes is imported on first
use, because most runs change nothing.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable
from functools import cache

_AT_FDCWD = -2 if sys.platform == "darwin" else -100
#: The flag values differ between systems: (only onto a free name, exchange).
_FLAGS = (0x4, 0x2) if sys.platform == "darwin" else (0x1, 0x2)
#: For a libc without the wrapper function.
_SYSCALL_NUMBERS = {"x86_64": 316, "aarch64": 276, "riscv64": 276, "loongarch64": 276}
#: The kernel, or the file system in question, does not know the flag.
_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})

_RawRename = Callable[[int, bytes, int, bytes, int], int]


def exchange(
    src: bytes, dst: bytes, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
) -> bool:
    """Swap the entries at two names, atomically and whatever their kinds.

    False if the system cannot do that here; nothing has changed then.
    """
    return _flagged(src, dst, src_dir_fd, dst_dir_fd, _FLAGS[1])


def rename_new(
    src: bytes, dst: bytes, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
) -> None:
    """Rename onto a free name; `FileExistsError` if the name is taken.

    Where no single system call does this, a file is linked and unlinked, which is just as safe. A
    directory is checked and then renamed, which at worst replaces an *empty* directory.
    """
    if os.name == "nt":
        os.rename(src, dst)  # never replaces on Windows
        return
    if _flagged(src, dst, src_dir_fd, dst_dir_fd, _FLAGS[0]):
        return
    kind = os.stat(src, dir_fd=src_dir_fd, follow_symlinks=False).st_mode
    if not stat.S_ISDIR(kind) and _by_link(src, dst, src_dir_fd, dst_dir_fd):
        return
    try:
        os.stat(dst, dir_fd=dst_dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), dst)


def _by_link(src: bytes, dst: bytes, src_dir_fd: int | None, dst_dir_fd: int | None) -> bool:
    try:
        os.link(src, dst, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno in _UNSUPPORTED | {errno.EPERM, errno.EMLINK}:
            return False
        raise
    os.unlink(src, dir_fd=src_dir_fd)
    return True


def _flagged(
    src: bytes, dst: bytes, src_dir_fd: int | None, dst_dir_fd: int | None, flags: int
) -> bool:
    call = _system_call()
    if call is None:
        return False
    import ctypes

    at_src = _AT_FDCWD if src_dir_fd is None else src_dir_fd
    at_dst = _AT_FDCWD if dst_dir_fd is None else dst_dir_fd
    if call(at_src, src, at_dst, dst, flags) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), src, None, dst)


@cache
def _system_call() -> _RawRename | None:
    if sys.platform not in ("linux", "darwin"):
        return None
    try:
        import ctypes
    except ImportError:
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    name = "renameatx_np" if sys.platform == "darwin" else "renameat2"
    types = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    if hasattr(libc, name):
        function = getattr(libc, name)
        function.argtypes = types
        return lambda *args: int(function(*args))
    number = _SYSCALL_NUMBERS.get(os.uname().machine)
    if number is None or sys.platform != "linux":
        return None
    syscall = libc.syscall
    syscall.argtypes = (ctypes.c_long, *types)
    return lambda *args: int(syscall(number, *args))
