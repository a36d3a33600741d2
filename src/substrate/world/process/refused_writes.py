"""Writes that `guarded` and `full` refuse, seen in the system calls that ask for them.

Mounts and Landlock refuse without reporting it. So each call that opens a file for writing,
creates, removes or renames one, or sets its mode, owner, times or attributes by name, is shown to
the supervisor first (`seccomp_notify.FILE_CALLS`). It checks in the command's own view whether the
place is read-only, records the path, and lets the call continue, to be refused. It enforces
nothing. A call that would fail for another reason (no such file, exists already, another user's) is
not listed: it would also fail without a world.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from substrate.system.linux import FILE_CALLS, Notification, open_in_root, read_memory

#: A command that tries every path must not fill the trace.
MOST_REFUSED = 1_000
_PATH_BYTES = 4096
_AT_FDCWD = -100
_READ_ONLY = 1
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_TRUNC


class Refused(NamedTuple):
    """One write that was refused: the path as the program named it, made absolute."""

    path: bytes
    #: ``open``, ``mkdir``, ``unlink``, ``rename``, …
    call: str


class _Argument(NamedTuple):
    """Where a call has a path: the index of its directory's argument (or -1), and its own."""

    directory: int
    path: int


#: The paths that each call would change. ``flags`` of ``open`` and ``openat`` follow the path.
_PATHS: dict[str, tuple[_Argument, ...]] = {
    "open": (_Argument(-1, 0),), "creat": (_Argument(-1, 0),), "openat": (_Argument(0, 1),),
    "openat2": (_Argument(0, 1),), "truncate": (_Argument(-1, 0),),
    "mkdir": (_Argument(-1, 0),), "mkdirat": (_Argument(0, 1),),
    "rmdir": (_Argument(-1, 0),), "unlink": (_Argument(-1, 0),), "unlinkat": (_Argument(0, 1),),
    "rename": (_Argument(-1, 0), _Argument(-1, 1)),
    "renameat": (_Argument(0, 1), _Argument(2, 3)),
    "renameat2": (_Argument(0, 1), _Argument(2, 3)),
    "link": (_Argument(-1, 1),), "linkat": (_Argument(2, 3),),
    "symlink": (_Argument(-1, 1),), "symlinkat": (_Argument(1, 2),),
    "mknod": (_Argument(-1, 0),), "mknodat": (_Argument(0, 1),),
    "chmod": (_Argument(-1, 0),), "fchmodat": (_Argument(0, 1),), "fchmodat2": (_Argument(0, 1),),
    "chown": (_Argument(-1, 0),), "lchown": (_Argument(-1, 0),), "fchownat": (_Argument(0, 1),),
    "utime": (_Argument(-1, 0),), "utimes": (_Argument(-1, 0),), "utimensat": (_Argument(0, 1),),
    "setxattr": (_Argument(-1, 0),), "lsetxattr": (_Argument(-1, 0),),
    "removexattr": (_Argument(-1, 0),), "lremovexattr": (_Argument(-1, 0),),
}  # fmt: skip
#: The names that the record uses.
_SHOWN = {
    "creat": "open", "openat": "open", "openat2": "open", "mkdirat": "mkdir",
    "unlinkat": "unlink", "renameat": "rename", "renameat2": "rename", "linkat": "link",
    "symlinkat": "symlink", "mknodat": "mknod", "fchmodat": "chmod", "fchmodat2": "chmod",
    "lchown": "chown", "fchownat": "chown", "utime": "utimensat", "utimes": "utimensat",
    "lsetxattr": "setxattr", "lremovexattr": "removexattr",
}  # fmt: skip
#: Calls that set what a file has beside its content; with the index of the argument that can say
#: AT_SYMLINK_NOFOLLOW, 0 if there is none.
_SETS = {
    "chmod": 0, "fchmodat": 0, "fchmodat2": 3, "chown": 0, "fchownat": 4, "utime": 0, "utimes": 0,
    "utimensat": 3, "setxattr": 0, "removexattr": 0, "lchown": -1, "lsetxattr": -1,
    "lremovexattr": -1,
}  # fmt: skip
_NO_FOLLOW = 0x100
_NAMES = {
    (arch, number): name for arch, all_ in FILE_CALLS.items() for name, number in all_.items()
}


class RefusedWrites:
    """The refused writes of one command. Written by the supervisor's thread."""

    def __init__(self) -> None:
        self._found: dict[Refused, None] = {}
        self.unread = 0
        self.full = False

    def refused(self) -> tuple[Refused, ...]:
        return tuple(self._found)

    @property
    def notice(self) -> str:
        """Why the list may be incomplete; empty if it is complete."""
        if self.full:
            return f"only the first {MOST_REFUSED} refused writes are listed"
        return f"{self.unread} file calls could not be read" if self.unread else ""

    def look(self, note: Notification) -> bool:
        """Whether the call is about a file; if it will be refused, it is recorded."""
        name = _NAMES.get((note.arch, note.number))
        if name is None:
            return False
        try:
            for path in _named_paths(note, name):
                if _is_refused(note, name, path):
                    self._add(Refused(os.path.normpath(path), _SHOWN.get(name, name)))
                    break
        except (OSError, ValueError):
            self.unread += 1
        return True

    def _add(self, one: Refused) -> None:
        if len(self._found) >= MOST_REFUSED and one not in self._found:
            self.full = True
        else:
            self._found.setdefault(one)


def _named_paths(note: Notification, name: str) -> list[bytes]:
    """Absolute, as the command's process sees them."""
    found = []
    for where in _PATHS[name]:
        raw = read_memory(note.tid, note.args[where.path], _PATH_BYTES)
        if not raw:  # near the end of a mapping less can be read
            raw = read_memory(note.tid, note.args[where.path], 1)
            at = note.args[where.path] + 1
            while raw and not raw.endswith(b"\0") and len(raw) < _PATH_BYTES:
                raw += read_memory(note.tid, at, 1) or b"\0"
                at += 1
        path = raw.partition(b"\0")[0]
        if path[:1] != b"/":
            path = os.path.join(_directory(note, where.directory), path)
        found.append(path)
    return found


def _directory(note: Notification, argument: int) -> bytes:
    number = _AT_FDCWD if argument < 0 else _signed(note.args[argument])
    entry = b"cwd" if number == _AT_FDCWD else b"fd/%d" % number
    return os.readlink(b"/proc/%d/%s" % (note.tid, entry))


def _signed(value: int) -> int:
    low = value & 0xFFFFFFFF
    return low - (1 << 32) if low >= 1 << 31 else low


def _is_refused(note: Notification, name: str, path: bytes) -> bool:
    """Whether the place is read-only for the command, and nothing else makes the call fail."""
    root = os.open(b"/proc/%d/root" % note.tid, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _meets_read_only(note, name, root, path)
    finally:
        os.close(root)


def _meets_read_only(note: Notification, name: str, root: int, path: bytes) -> bool:
    if name in _SETS:
        return _sets_on_read_only(note, name, root, path)
    above = os.path.dirname(path.rstrip(b"/"))
    follows = name in ("open", "openat", "openat2", "creat", "truncate")
    try:
        mode, read_only = _look_at(root, path, follows=follows)
    except FileNotFoundError:
        makes = name.startswith(("mkdir", "mknod", "link", "symlink", "creat")) or (
            name.startswith("open") and _flags(note, name) & os.O_CREAT
        )
        return bool(makes) and _is_read_only(root, above) and _could(above)
    except OSError:
        return False
    if follows:
        flags = _flags(note, name)
        is_file = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
        if not is_file or (flags & os.O_EXCL and flags & os.O_CREAT) or not flags & _WRITES:
            return False  # a device is written to on any mount
        return read_only and _could(path)
    if name.startswith(("mkdir", "mknod", "link", "symlink")):
        return False  # exists already
    return _is_read_only(root, above) and _could(above)


def _sets_on_read_only(note: Notification, name: str, root: int, path: bytes) -> bool:
    flag = _SETS[name]
    follows = flag == 0 or (flag > 0 and not note.args[flag] & _NO_FOLLOW)
    try:
        return _look_at(root, path, follows=follows)[1] and _could_set(path, follows=follows)
    except OSError:
        return False


def _look_at(root: int, path: bytes, *, follows: bool) -> tuple[int, bool]:
    """The mode of `path` for a process with this root, and whether its mount is read-only.

    Symlinks are followed as that process would follow them.
    """
    fd = open_in_root.open_path(root, path, follows=follows)
    try:
        return os.fstat(fd).st_mode, bool(os.fstatvfs(fd).f_flag & _READ_ONLY)
    finally:
        os.close(fd)


def _is_read_only(root: int, path: bytes) -> bool:
    try:
        return _look_at(root, path, follows=True)[1]
    except OSError:
        return False


def _flags(note: Notification, name: str) -> int:
    if name in ("creat", "truncate"):
        return os.O_WRONLY | os.O_TRUNC | (os.O_CREAT if name == "creat" else 0)
    if name == "openat2":  # struct open_how begins with them
        return int.from_bytes(read_memory(note.tid, note.args[2], 8), "little")
    return note.args[1 if name == "open" else 2] & 0xFFFFFFFF


def _could(path: bytes) -> bool:
    """Whether the user may write there outside the world; True if it does not exist there."""
    return not os.path.exists(path) or os.access(path, os.W_OK, effective_ids=True)


def _could_set(path: bytes, *, follows: bool) -> bool:
    """Whether the user may set a mode or a time there: its owner may, without a right to write."""
    try:
        owner = os.stat(path, follow_symlinks=follows).st_uid
    except OSError:
        return True
    return os.geteuid() in (0, owner) or (follows and _could(path))
