"""Small file operations that must be atomic: writes, directory syncs, removal of our own trees."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path

from substrate.system.process import AtOnce

_BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.unlink in os.supports_dir_fd
_DIRECTORY_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
#: To refer to a file without opening it; 0 where the system cannot.
_BY_PATH = getattr(os, "O_PATH", 0) | getattr(os, "O_CLOEXEC", 0) if sys.platform == "linux" else 0
#: Suffix that the kernel adds to the path of a removed file.
_GONE = " (deleted)"
#: Prefix of the temporary names that `write_atomic` renames into place; a kill can leave one.
TEMPORARY = ".tmp-"
#: Directories held open at once; deeper ones are moved to the top and removed from there.
_MAX_DEPTH = 60


#: The error that `lacks_inodes` detects, and the hint for it.
NO_INODES = (
    "no free inodes on the file system",
    "remove some files there (`df -i` shows how many it can hold), then try again",
)


def lacks_inodes(path: str | bytes | Path) -> bool:
    """Whether the file system of `path` has free space but no free inode."""
    try:
        found = os.statvfs(os.path.dirname(path) or os.curdir)
    except (OSError, AttributeError):  # AttributeError: Windows
        return False
    return found.f_files > 0 and found.f_ffree == 0


def write_atomic(path: Path, data: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Make `path` hold `data`: readers see the old bytes or the new ones, never a mixture.

    `mode` is exact, whatever the umask. With `durable` the bytes and the name survive a power cut
    once this returns. On any error the old file is unchanged and no temporary file is left.
    """
    temporary = path.parent / f"{TEMPORARY}{os.getpid():x}-{os.urandom(6).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    fd = os.open(temporary, flags, 0o600)
    try:
        try:
            write_all(fd, data)
            if hasattr(os, "fchmod"):
                os.fchmod(fd, mode)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if durable:
        fsync_dir(path.parent)


def real_path(path: str | os.PathLike[str]) -> str:
    """Like `os.path.realpath`, but with one kernel lookup where possible.

    Python checks each component of a path separately, and a command resolves about twenty paths.
    """
    if _BY_PATH:
        try:
            fd = os.open(path, _BY_PATH)
            try:
                found = os.readlink(f"/proc/self/fd/{fd}")
            finally:
                os.close(fd)
        except (OSError, ValueError):
            return os.path.realpath(path)  # missing, or no permission to look it up
        # A descriptor that is not a file has no path; a file removed in between ends in
        # "(deleted)".
        if found.startswith("/") and not found.endswith(_GONE):
            return found
    return os.path.realpath(path)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write every byte: a single ``write`` may stop short (a signal, a nearly full disk)."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def fsync_dir(path: Path) -> None:
    """Make the names in a directory durable; a no-op where the system cannot (Windows)."""
    if os.name == "nt":
        return
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        fsync_fd(fd)
    finally:
        os.close(fd)


def fsync_file(path: Path) -> None:
    """Make durable the content of a file that another program wrote."""
    fd = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        fsync_fd(fd)
    finally:
        os.close(fd)


def fsync_fd(fd: int) -> None:
    """`os.fsync`, for directories too: some file systems answer EINVAL there, meaning "no need"."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def sync_filesystem(fd: int) -> bool:
    """Write out everything on the file system that holds `fd`; False where there is no such call.

    For hundreds of new files, this is one wait instead of hundreds.
    """
    if sys.platform != "linux":
        return False
    try:
        import ctypes
    except ImportError:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syncfs(fd) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return True


#: ext4: subdirectories of this directory are unrelated to each other (`chattr +T`).
_TOP_DIRECTORY = 0x00020000
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602


def spread_subdirectories(path: Path) -> None:
    """Let the file system place each new directory in `path` elsewhere on the disk, if it can.

    ext4 puts new files near those of the parent directory, and there it skips, one by one, every
    inode deleted within the last minutes: after a thousand removals, creating a thousand files in
    the next directory takes five times as long.
    """
    if sys.platform != "linux":
        return
    import fcntl

    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        flags = int.from_bytes(fcntl.ioctl(fd, _GET_FLAGS, bytes(8))[:4], sys.byteorder)
        if not flags & _TOP_DIRECTORY:
            wanted = (flags | _TOP_DIRECTORY).to_bytes(8, sys.byteorder)
            fcntl.ioctl(fd, _SET_FLAGS, wanted)
    except OSError:
        pass  # another file system without such a flag
    finally:
        os.close(fd)


def read_kernel_file(path: str) -> bytes:
    """All of a small file below ``/proc``; a file object would make extra system calls."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        said = b""
        while chunk := os.read(fd, 1 << 15):
            said += chunk
        return said
    finally:
        os.close(fd)


def read_bytes_or_none(path: Path, most_bytes: int | None = None) -> bytes | None:
    """The file's bytes (at most `most_bytes`), or None if there is no such file.

    Anything but a regular file is an `OSError`: reading a FIFO would block forever.
    """
    try:
        with open(path, "rb", buffering=0, opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", str(path))
            return file.readall() if most_bytes is None else file.read(most_bytes)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def make_directory(path: str | Path, mode: int = 0o777) -> None:
    """Create one directory unless it exists; its parent must exist."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, mode)


def remove_tree(path: Path) -> None:
    """Remove a tree of our own (scratch, worlds, expired trash), whatever its modes.

    Symlinks are removed, never followed. Another process may remove the same files at the same
    time. Anything mounted inside is left alone, and the error then says so.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        _unlink(path, None)
    elif _BY_DESCRIPTOR:
        _remove_by_descriptor(path)
    else:
        _remove_by_path(path)


def _remove_by_descriptor(path: Path) -> None:
    top = _open_for_removal(path, None)
    if top is None:
        return
    try:
        with AtOnce() as several:
            _empty(top, top, 0, several)
    finally:
        os.close(top)
    _rmdir(path, None)


def _empty(fd: int, top: int, depth: int, several: AtOnce) -> None:
    device = os.fstat(top).st_dev
    while True:
        with os.scandir(fd) as found:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
        moved_up = False
        plain = [name for name, is_directory in entries if not is_directory]
        several.for_each(lambda name: _unlink(name, fd), plain)
        for name in [name for name, is_directory in entries if is_directory]:
            if depth >= _MAX_DEPTH:
                # Too deep to hold a descriptor per level: move it to the top and continue there.
                with contextlib.suppress(FileNotFoundError):
                    os.rename(name, f"deep-{os.urandom(8).hex()}", src_dir_fd=fd, dst_dir_fd=top)
            else:
                _remove_child(name, fd, top, depth, device, several)
                moved_up = moved_up or depth == 0
        # Only the top can have gained entries, and only if it had subdirectories to descend into.
        if not moved_up or not _has_entries(fd):
            return


def _has_entries(fd: int) -> bool:
    with os.scandir(fd) as found:
        return next(found, None) is not None


def _remove_child(name: str, fd: int, top: int, depth: int, device: int, several: AtOnce) -> None:
    child = _open_for_removal(name, fd)
    if child is None:
        return
    try:
        if os.fstat(child).st_dev != device:
            raise OSError(errno.EBUSY, "something is mounted inside", name)
        _empty(child, top, depth + 1, several)
    finally:
        os.close(child)
    _rmdir(name, fd)


def _open_for_removal(path: Path | str, dir_fd: int | None) -> int | None:
    """A descriptor on the directory; makes it writable first if its mode forbids removal."""
    for attempt in (1, 2):
        try:
            fd = os.open(path, _DIRECTORY_FLAGS, dir_fd=dir_fd)
        except FileNotFoundError:
            return None
        except PermissionError:
            if attempt == 2:
                raise
            # chmod follows no symlink here: a symlink would have failed with ELOOP or ENOTDIR, not
            # EACCES.
            os.chmod(path, 0o700, dir_fd=dir_fd)
            continue
        if hasattr(os, "geteuid") and os.geteuid() != 0 and os.fstat(fd).st_mode & 0o300 != 0o300:
            with contextlib.suppress(PermissionError):
                os.fchmod(fd, 0o700)
        return fd
    raise AssertionError("unreachable")


def _unlink(path: Path | str, dir_fd: int | None) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path, dir_fd=dir_fd)


def _rmdir(path: Path | str, dir_fd: int | None) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(path, dir_fd=dir_fd)


def _remove_by_path(path: Path) -> None:
    with os.scandir(path) as found:
        entries = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in found]
    for name, is_directory in entries:
        if is_directory and not os.path.islink(name):
            _remove_by_path(Path(name))
            continue
        try:
            _unlink(name, None)
        except PermissionError:
            # Windows does not remove a read-only file until the flag is cleared.
            os.chmod(name, stat.S_IWRITE)
            _unlink(name, None)
    _rmdir(path, None)
