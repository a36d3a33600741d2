"""Mounting, in the mount namespace of this process."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import NamedTuple

from substrate.system.files import files
from substrate.system.linux import syscalls

RDONLY = 0x1
NOSUID = 0x2
NODEV = 0x4
NOEXEC = 0x8
REMOUNT = 0x20
BIND = 0x1000
MOVE = 0x2000
REC = 0x4000
PRIVATE = 1 << 18
SLAVE = 1 << 19
SHARED = 1 << 20

_MNT_DETACH = 2
_AT_FDCWD = -100
_ENOSYS = 38
_AT_RECURSIVE = 0x8000
_AT_EMPTY_PATH = 0x1000
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT_F_EMPTY_PATH = 4
_MOVE_MOUNT_BENEATH = 0x200
#: Flags that a remount must repeat; otherwise the kernel treats it as an attempt to clear them.
_KEPT_FLAGS = RDONLY | NOSUID | NODEV | NOEXEC | 0x400 | 0x800
_RELATIME = 1 << 21


class Mount(NamedTuple):
    """One line of mountinfo(5)."""

    #: Absolute path, as bytes.
    target: bytes
    fstype: bytes
    options: frozenset[bytes]
    device: bytes


def mount(source: bytes, target: bytes, fstype: bytes, flags: int = 0, data: bytes = b"") -> None:
    syscalls.call("mount", source, target, fstype or None, flags, data or None)


def bind(source: bytes, target: bytes, *, recursive: bool = False) -> None:
    syscalls.call("mount", source, target, None, BIND | (REC if recursive else 0), None)


def unmount(target: bytes) -> None:
    """Lazily: it disappears here now, and is released when no process uses it."""
    syscalls.call("umount2", target, _MNT_DETACH)


def unmount_if_unused(target: bytes) -> None:
    """Raises `OSError` (EBUSY) if a process is inside, or has a file of it open."""
    syscalls.call("umount2", target, 0)


def move(source: bytes, target: bytes) -> None:
    """Move the mount at `source` to `target`; processes inside it stay in it."""
    syscalls.call("mount", source, target, None, MOVE, None)


def make_private(target: bytes = b"/") -> None:
    """Later mounts here are not visible elsewhere, and later mounts elsewhere not here."""
    syscalls.call("mount", None, target, None, REC | PRIVATE, None)


def make_shared(target: bytes) -> None:
    """Later mounts on `target` also appear in copies of this namespace."""
    syscalls.call("mount", None, target, None, SHARED, None)


def make_follower(target: bytes = b"/") -> None:
    """Other namespaces' mounts on shared mount points still appear here; our mounts stay here."""
    syscalls.call("mount", None, target, None, REC | SLAVE, None)


def forget_names(target: bytes, flags: int) -> None:
    """Make the file system at `target` look up again every name that is not in use.

    A remount with its current `flags`: the kernel then drops its cached names.
    """
    syscalls.call("mount", None, target, None, REMOUNT | flags, None)


def restrict(target: bytes, flags: int, *, recursive: bool = False) -> None:
    """Add `flags` (`RDONLY`, `NOSUID`, `NODEV`, `NOEXEC`) to a mount point.

    Raises `OSError` if `target` is not a mount point.
    """
    try:
        _set_attributes(target, flags, 0, recursive)
    except OSError as error:
        if error.errno != _ENOSYS or recursive:  # before Linux 5.12
            raise
        kept = os.statvfs(target).f_flag & _KEPT_FLAGS
        syscalls.call("mount", None, target, None, BIND | REMOUNT | kept | flags, None)


def relax(target: bytes) -> None:
    """Clear `RDONLY` on a mount point where we set it."""
    _set_attributes(target, 0, RDONLY, False)


def _set_attributes(target: bytes, added: int, removed: int, recursive: bool) -> None:
    import ctypes
    import struct

    # struct mount_attr: attr_set, attr_clr, propagation, userns_fd. The bits are the same as MS_*.
    attributes = ctypes.create_string_buffer(struct.pack("QQQQ", added, removed, 0, 0), 32)
    syscalls.syscall(
        "mount_setattr", _AT_FDCWD, target, _AT_RECURSIVE if recursive else 0,
        syscalls.address(attributes), 32,
    )  # fmt: skip


def clone_tree(path: bytes) -> int:
    """A descriptor of a detached copy of the mounts at and below `path`."""
    flags = _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC
    return syscalls.syscall("open_tree", _AT_FDCWD, path, flags)


def clone_mount(path: bytes) -> int:
    """A descriptor of a detached copy of the mount at `path` alone; keeps its file system alive."""
    return syscalls.syscall("open_tree", _AT_FDCWD, path, _OPEN_TREE_CLONE | os.O_CLOEXEC)


def attach_tree(tree: int, target: bytes) -> None:
    """Attach the result of `clone_tree` at `target`."""
    syscalls.syscall("move_mount", tree, b"", _AT_FDCWD, target, _MOVE_MOUNT_F_EMPTY_PATH)


def take_mount(path: bytes) -> int:
    """A descriptor of the mount at `path` itself and those below it, to move elsewhere."""
    return syscalls.syscall("open_tree", _AT_FDCWD, path, os.O_CLOEXEC)


def attach_beneath(tree: int, target: bytes) -> None:
    """Attach `tree` below the mount at `target`, where it shows once that is unmounted.

    Raises `OSError` before Linux 6.5.
    """
    flags = _MOVE_MOUNT_F_EMPTY_PATH | _MOVE_MOUNT_BENEATH
    syscalls.syscall("move_mount", tree, b"", _AT_FDCWD, target, flags)


def pivot_root(new_root: bytes) -> None:
    """Make `new_root` (a mount point) the root, and detach the old one."""
    os.chdir(new_root)
    syscalls.syscall("pivot_root", b".", b".")
    # The old root is now mounted on top of the new one, at ".".
    syscalls.call("umount2", b".", _MNT_DETACH)
    os.chdir("/")


def mounts() -> list[Mount]:
    """The mounts here, in order: a later one on the same target covers an earlier one."""
    return list(_parsed(_table()))


def file_system_of(path: bytes) -> bytes:
    """The type of the file system that holds `path` (absolute, without symlinks)."""
    return _file_system_of(_table(), path)


@lru_cache(maxsize=8)
def _file_system_of(table: bytes, path: bytes) -> bytes:
    best, fstype = b"", b""
    for mount in _parsed(table):
        target = mount.target.rstrip(b"/")
        if (path == mount.target or path.startswith(target + b"/")) and len(target) >= len(best):
            best, fstype = target, mount.fstype
    return fstype


def _table() -> bytes:
    return files.read_kernel_file("/proc/self/mountinfo")


@lru_cache(maxsize=1)
def _parsed(text: bytes) -> tuple[Mount, ...]:
    return tuple(_parse(line) for line in text.split(b"\n") if line)


def below(root: bytes, found: list[Mount]) -> list[bytes]:
    """The targets of `found` strictly below `root`, outermost first, each once."""
    prefix = root.rstrip(b"/") + b"/"
    return sorted({mount.target for mount in found if mount.target.startswith(prefix)})


def _parse(line: bytes) -> Mount:
    fields = line.split(b" ")
    separator = fields.index(b"-")
    return Mount(
        _unescape(fields[4]), fields[separator + 1], frozenset(fields[5].split(b",")), fields[2]
    )


def _unescape(text: bytes) -> bytes:
    """The kernel writes blank, tab, newline and backslash as ``\\ooo``."""
    if b"\\" not in text:
        return text
    head, *rest = text.split(b"\\")
    return head + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in rest)
