"""Moving a file or a whole directory between two open directories: by rename, or by copy."""

from __future__ import annotations

import errno
import os
import stat

from substrate.system.files import read_xattrs, write_all, write_what_can_be
from substrate.workspace.paths.nofollow_path import Directory
from substrate.workspace.paths.read_node import open_to_read

_CHUNK_BYTES = 1 << 20


def move(source: Directory, name: bytes, target: Directory, target_name: bytes) -> None:
    """Move `name` to a free name elsewhere; `FileExistsError` if that is taken.

    Between file systems it is copied in full, made durable, and only then removed.
    """
    try:
        rename_whatever_mode(source, name, target, target_name)
        return
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
    if target.exists(target_name):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target_name)
    temporary = b".tmp-" + os.urandom(8).hex().encode()
    try:
        copy(source, name, target, temporary)
        target.rename_new(temporary, target, target_name)
    except BaseException:
        discard(target, temporary)
        raise
    discard(source, name)


def rename_whatever_mode(
    source: Directory, name: bytes, target: Directory, target_name: bytes
) -> None:
    """`rename_new`, for a read-only directory of ours too.

    A directory that moves gets a new ``..``, so its owner needs write permission for it; the mode
    is changed for the moment of the move only.
    """
    try:
        source.rename_new(name, target, target_name)
        return
    except PermissionError:
        if os.name == "nt":
            raise
        at = source.lstat(name)
        mode = stat.S_IMODE(at.st_mode)
        if not stat.S_ISDIR(at.st_mode) or mode & 0o200 or at.st_uid != os.geteuid():
            raise
    source.chmod(name, mode | 0o200)
    try:
        source.rename_new(name, target, target_name)
    except BaseException:
        source.chmod(name, mode)
        raise
    target.chmod(target_name, mode)


def discard(directory: Directory, name: bytes) -> None:
    """Remove a file or a tree that is ours to remove."""
    try:
        is_directory = stat.S_ISDIR(directory.lstat(name).st_mode)
    except FileNotFoundError:
        return
    if not is_directory:
        directory.unlink(name)
        return
    with directory.child(name) as child:
        for below in child.names():
            discard(child, below)
    directory.rmdir(name)


def copy(source: Directory, name: bytes, target: Directory, target_name: bytes) -> None:
    """Copy a file, symlink, FIFO or tree with modes, times and attributes, durably."""
    at = source.lstat(name)
    if stat.S_ISREG(at.st_mode):
        _copy_file(source, name, target, target_name)
    elif stat.S_ISLNK(at.st_mode):
        target.symlink(source.readlink(name), target_name)
    elif stat.S_ISDIR(at.st_mode):
        _copy_directory(source, name, target, target_name)
    elif stat.S_ISFIFO(at.st_mode):
        target.mkfifo(target_name)
        target.chmod(target_name, stat.S_IMODE(at.st_mode))
    else:
        raise OSError(errno.EXDEV, "a socket or device cannot be copied", name)
    _copy_owner(target, target_name, at)


def _copy_file(source: Directory, name: bytes, target: Directory, target_name: bytes) -> None:
    read_fd = open_to_read(source, name)
    try:
        at = os.fstat(read_fd)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        write_fd = target.open(target_name, flags)
        try:
            while chunk := os.read(read_fd, _CHUNK_BYTES):
                write_all(write_fd, chunk)
            _copy_attributes(read_fd, write_fd)
            if hasattr(os, "fchmod"):
                os.fchmod(write_fd, stat.S_IMODE(at.st_mode))
            if os.utime in os.supports_fd:
                os.utime(write_fd, ns=(at.st_atime_ns, at.st_mtime_ns))
            os.fsync(write_fd)
        finally:
            os.close(write_fd)
    finally:
        os.close(read_fd)


def _copy_directory(source: Directory, name: bytes, target: Directory, target_name: bytes) -> None:
    target.mkdir(target_name)
    with source.child(name) as old, target.child(target_name) as new:
        for below in old.names():
            copy(old, below, new, below)
        at = old.own_stat()
        if old.fd is not None and new.fd is not None:
            _copy_attributes(old.fd, new.fd)
            os.fchmod(new.fd, stat.S_IMODE(at.st_mode))
            os.utime(new.fd, ns=(at.st_atime_ns, at.st_mtime_ns))
            new.sync()


def _copy_attributes(read_fd: int, write_fd: int) -> None:
    # If the other file system has no attributes, a copy without them is better than none.
    write_what_can_be(write_fd, read_xattrs(read_fd), read_xattrs(write_fd))


def _copy_owner(target: Directory, name: bytes, at: os.stat_result) -> None:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return
    target.chown(name, at.st_uid, at.st_gid)
    if not stat.S_ISLNK(at.st_mode):
        target.chmod(name, stat.S_IMODE(at.st_mode))  # chown cleared setuid bits
