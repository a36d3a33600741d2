"""The copy-diff strategy: the command works on a whole copy of the workspace.

For places where no overlay is available. Its cost grows with the project, so it is refused for
large ones. Afterwards the copy is turned into what an overlay's upper would be: what did not change
is removed from it, and what is gone gets a whiteout. Code that reads layers sees no difference.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from substrate.errors import RefusedError
from substrate.system import clock
from substrate.system.files import xattrs
from substrate.system.linux import mounts
from substrate.world.interface import Isolation, Layer, RunRequest
from substrate.world.layer import layer_dirs
from substrate.world.prepare_command import with_reason
from substrate.world.process import Limits
from substrate.world.strategies.layer_strategy import LayeredWorld
from substrate.world.strategies.overlay import USER

MOST_FILES = 50_000
MOST_BYTES = 2 * 1024**3
_STORE = b".substrate-git"
#: Two changes in one tick of the clock have the same time: wait one tick before the command.
_TICK_S = 0.02
_FICLONE = 0x40049409
_OPAQUE = (USER + b"opaque").decode()


class _Mark(NamedTuple):
    """Enough of a file's status to see whether anything at all was done to it."""

    inode: int
    changed_ns: int
    is_directory: bool


Marks = dict[bytes, _Mark]


class CopyWorld(LayeredWorld):
    strategy = "copy-diff"
    shares_processes = False
    remembers_names = False

    @property
    def isolation(self) -> Isolation:
        return with_reason(super().isolation, "what a command leaves running is ended with it")

    def make_layer(self, world_id: str) -> Layer:
        layer = layer_dirs.create(self._worlds, world_id, self._root, "copy", USER)
        try:
            self._marks = copy_tree(os.fsencode(self._root), os.fsencode(layer.upper))
        except BaseException:
            layer_dirs.remove(layer)
            raise
        # Once settled it is an overlay; a crash before leaves "copy", which is never applied.
        return layer._replace(kind="overlay")

    def view(self, layer: Layer) -> Callable[[], None]:
        def mount_view() -> None:
            root = os.fsencode(layer.lower)
            mounts.bind(os.fsencode(layer.upper), root)
            mounts.restrict(root, mounts.NOSUID | mounts.NODEV)

        return mount_view

    def settle(self, layer: Layer) -> None:
        reduce_to_changes(os.fsencode(layer.upper), self._marks)
        layer_dirs.note_kind(layer)

    def limits(self, request: RunRequest) -> Limits:
        # Leftover processes would write into a copy that is not read again.
        return Limits(request.timeout_s, kill_children=True)


def copy_tree(source: bytes, target: bytes) -> Marks:
    """Copy everything but the store; returns what each copy looked like when it was made.

    Raises `RefusedError` if there is too much of it. Other file systems inside stay empty.
    """
    marks: Marks = {}
    links: dict[tuple[int, int], bytes] = {}
    room = [MOST_FILES, MOST_BYTES]
    device = os.lstat(source).st_dev
    pending = [b""]
    for relative in pending:
        with os.scandir(os.path.join(source, relative) or b".") as entries:
            for entry in entries:
                path = os.path.join(relative, entry.name)
                found = entry.stat(follow_symlinks=False)
                if path == _STORE or stat.S_ISSOCK(found.st_mode):
                    continue
                _spend(room, found)
                _copy_one(os.path.join(source, path), os.path.join(target, path), found, links)
                if stat.S_ISDIR(found.st_mode) and found.st_dev == device:
                    pending.append(path)
                marks[path] = _Mark(0, 0, stat.S_ISDIR(found.st_mode))
    # Times of directories change while they are filled: from the leaves to the root.
    for path in reversed(pending):
        _copy_status(os.path.join(source, path), os.path.join(target, path))
    for path in marks:
        marks[path] = _mark(os.path.join(target, path))
    clock.sleep(_TICK_S)
    return marks


def reduce_to_changes(upper: bytes, marks: Marks) -> None:
    """Remove from a copy what did not change, and add what an overlay would have added."""
    children: dict[bytes, set[bytes]] = {}
    for path in marks:
        children.setdefault(os.path.dirname(path), set()).add(os.path.basename(path))
    _Reduction(upper, marks, _marks_of(upper), children).reduce(b"")


class _Reduction(NamedTuple):
    upper: bytes
    before: Marks
    #: All are read first: removing one hard link changes the others.
    after: Marks
    children: dict[bytes, set[bytes]]

    def reduce(self, relative: bytes) -> bool:
        """Reduce a directory that existed before; returns whether anything in it is left."""
        here = os.path.join(self.upper, relative)
        names = set(os.listdir(here))
        kept = [self._keep(os.path.join(relative, name)) for name in names]
        left = any(kept)
        # A new directory in the place of a removed one may have got its inode, and counts as the
        # same: its old children then get whiteouts one by one, which has the same meaning.
        for name in self.children.get(relative, set()) - names:
            os.mknod(os.path.join(here, name), stat.S_IFCHR, 0)
            left = True
        return left

    def _keep(self, path: bytes) -> bool:
        place = os.path.join(self.upper, path)
        was, now = self.before.get(path), self.after[path]
        if was is None:
            return True  # new, with all that is in it
        if was.is_directory and now.is_directory and was.inode == now.inode:
            if self.reduce(path) or now != was:
                with suppress(OSError):  # the command's mark: removed files would count as gone
                    os.removexattr(place, _OPAQUE)
                return True
            os.rmdir(place)
            return False
        if now != was:
            if now.is_directory:  # a different directory: nothing of the old one is visible
                os.setxattr(place, _OPAQUE, b"y")
            return True
        os.unlink(place)
        return False


def _marks_of(upper: bytes) -> Marks:
    marks: Marks = {}
    pending = [b""]
    for relative in pending:
        for name in os.listdir(os.path.join(upper, relative)):
            path = os.path.join(relative, name)
            marks[path] = _mark(os.path.join(upper, path))
            if marks[path].is_directory:
                pending.append(path)
    return marks


def _mark(place: bytes) -> _Mark:
    found = os.lstat(place)
    return _Mark(found.st_ino, found.st_ctime_ns, stat.S_ISDIR(found.st_mode))


def _spend(room: list[int], found: os.stat_result) -> None:
    room[0] -= 1
    room[1] -= found.st_size if stat.S_ISREG(found.st_mode) else 0
    if min(room) < 0:
        raise RefusedError(
            f"the workspace is too large to be copied for each command: more than "
            f"{MOST_FILES} files or {MOST_BYTES // 1024**3} GiB",
            hint="`substrate doctor` says what an overlay needs here; --no-world runs without one",
        )


def _copy_one(
    source: bytes, target: bytes, found: os.stat_result, links: dict[tuple[int, int], bytes]
) -> None:
    key = (found.st_dev, found.st_ino)
    if stat.S_ISDIR(found.st_mode):
        os.mkdir(target, 0o700)
        return
    if found.st_nlink > 1 and key in links:
        os.link(links[key], target, follow_symlinks=False)
        return
    links[key] = target
    if stat.S_ISLNK(found.st_mode):
        os.symlink(os.readlink(source), target)
    elif stat.S_ISREG(found.st_mode):
        _copy_content(source, target)
    elif stat.S_ISFIFO(found.st_mode):
        os.mkfifo(target, 0o600)
    else:
        return  # a device: nodev would disable it anyway
    _copy_status(source, target)


def _copy_content(source: bytes, target: bytes) -> None:
    import fcntl

    reader = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    writer = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.ioctl(writer, _FICLONE, reader)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
            while os.sendfile(writer, reader, None, 1 << 24):
                pass
    finally:
        os.close(reader)
        os.close(writer)


def _copy_status(source: bytes, target: bytes) -> None:
    found = os.lstat(source)
    if os.geteuid() == 0 or (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):
            os.chown(target, found.st_uid, found.st_gid, follow_symlinks=False)
    if not stat.S_ISLNK(found.st_mode):
        with suppress(OSError):
            xattrs.write_what_can_be(target, xattrs.read_xattrs(source), ())
        os.chmod(target, stat.S_IMODE(found.st_mode))
    times = (found.st_atime_ns, found.st_mtime_ns)
    os.utime(target, ns=times, follow_symlinks=False)
