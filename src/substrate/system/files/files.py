"""Small file work that must not tear: atomic writes, directory syncs, removal of our own trees."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path

from substrate.system.at_once import AtOnce

_BY_DESCRIPTOR = os.open in os.supports_dir_fd and os.unlink in os.supports_dir_fd
_DIRECTORY_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
#: To hold on to a file without opening it; 0 where the system cannot.
_BY_PATH = getattr(os, "O_PATH", 0) | getattr(os, "O_CLOEXEC", 0) if sys.platform == "linux" else 0
#: What the kernel adds to the path of a file that has been removed.
_GONE = " (deleted)"
#: How the names begin that `write_atomic` renames away; a kill can leave one behind.
TEMPORARY = ".tmp-"
#: Directories held open at once; anything deeper is moved up and removed from there.
_MAX_DEPTH = 60


def write_atomic(path: Path, data: bytes, *, mode: int = 0o600, durable: bool = True) -> None:
    """Make `path` hold `data`: readers see the old bytes or the new ones, never a mixture.

    `mode` is exact, whatever the umask. With `durable` the bytes and the name survive a power
    cut once this returns. On any error the old file stands and no temporary is left.
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
    """As `os.path.realpath`, but asked of the kernel in one go where it can say.

    Python looks at each part of a path by itself, some twenty paths of them on the way of a
    command.
    """
    if _BY_PATH:
        try:
            fd = os.open(path, _BY_PATH)
            try:
                found = os.readlink(f"/proc/self/fd/{fd}")
            finally:
                os.close(fd)
        except (OSError, ValueError):
            return os.path.realpath(path)  # it is not there, or may not be asked for
        # What is no file has no path, and a file whose name went away meanwhile is told so.
        if found.startswith("/") and not found.endswith(_GONE):
            return found
    return os.path.realpath(path)


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write every byte: a single ``write`` may stop short (a signal, a nearly full disk)."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def fsync_dir(path: Path) -> None:
    """Make the names in a directory durable; silently nothing where the system cannot (Windows)."""
    if os.name == "nt":
        return
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        fsync_fd(fd)
    finally:
        os.close(fd)


def fsync_file(path: Path) -> None:
    """Make the content of a file durable that another program wrote."""
    fd = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        fsync_fd(fd)
    finally:
        os.close(fd)


def fsync_fd(fd: int) -> None:
    """`os.fsync`, for directories too: some file systems answer EINVAL there and mean "no need"."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def sync_filesystem(fd: int) -> bool:
    """Write out everything on the file system that holds `fd`; False where there is no such call.

    For hundreds of new files at once this is one wait instead of hundreds.
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


#: ext4: directories made in this one have nothing to do with each other (`chattr +T`).
_TOP_DIRECTORY = 0x00020000
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602


def spread_subdirectories(path: Path) -> None:
    """Let the file system put each new directory in `path` elsewhere on the disk, if it can.

    ext4 makes new files beside those of the directory above, and there it steps over every inode
    deleted within the last minutes, one by one: after a thousand were removed, making a thousand
    in the next directory takes five times as long.
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
        pass  # another file system: it has no such notion
    finally:
        os.close(fd)


def read_kernel_file(path: str) -> bytes:
    """All of a small file below ``/proc``, of which a file object would ask much that it is not."""
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        said = b""
        while chunk := os.read(fd, 1 << 15):
            said += chunk
        return said
    finally:
        os.close(fd)


def read_bytes_or_none(path: Path, most_bytes: int | None = None) -> bytes | None:
    """The file's bytes, or the first of them, or None when there is no such file.

    Anything but a regular file is an `OSError`: reading a FIFO would wait for ever.
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


def remove_tree(path: Path) -> None:
    """Remove a tree of our own (scratch, worlds, expired trash), whatever its modes.

    Links are removed, never followed; another process removing the same things meanwhile is
    fine; what is mounted inside is left alone (and the error then says so).
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
                # Deeper than we hold descriptors for: hang it under the top and go on there.
                with contextlib.suppress(FileNotFoundError):
                    os.rename(name, f"deep-{os.urandom(8).hex()}", src_dir_fd=fd, dst_dir_fd=top)
            else:
                _remove_child(name, fd, top, depth, device, several)
                moved_up = moved_up or depth == 0
        # Only the top can have gained entries, and only while it had directories to descend.
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
    """A descriptor on the directory, made writable first when its mode is in the way."""
    for attempt in (1, 2):
        try:
            fd = os.open(path, _DIRECTORY_FLAGS, dir_fd=dir_fd)
        except FileNotFoundError:
            return None
        except PermissionError:
            if attempt == 2:
                raise
            # Not followed: a link here would have failed with ELOOP or ENOTDIR, not EACCES.
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
            # Windows refuses to remove a read-only file until the flag is off.
            os.chmod(name, stat.S_IWRITE)
            _unlink(name, None)
    _rmdir(path, None)
