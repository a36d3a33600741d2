"""A view that its command left unchanged goes to the next command, with all it has looked up.

Only the overlay is kept, as a mount that is attached nowhere: namespaces, processes and every
other mount are new for each command. Its layer must hold no change; then the kernel holds nothing
of the one command that the other could see. The daemon's watcher says whether what the view has
looked up is still valid (`workspace/watch/inotify_quiet_proof.py`); without a token from it, a view
is never used again.

    one command's process                      the next one's
    its command has ended: `put_by`
    reports to the daemon with the mount  ─▶  `take_over`: the directory is its own now
    `see_off`: it was taken, or is removed    attaches the mount in its world
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from substrate.system import clock
from substrate.system.linux import mounts
from substrate.workspace.apply import OVERLAY_MARKS, layer_is_noop
from substrate.world.interface import Layer
from substrate.world.layer import layer_dirs
from substrate.world.prewarm import parked_layers

#: Not for ever: the view also remembers flags that `chattr` sets, and no event reports those.
OLDEST_NS = 600 * 1_000_000_000
_STORE_NAME = ".substrate-git"
_VOLATILE_MARK = "incompat"
#: The kernel's marks on directories that it copies up; none of them changes what is shown.
_KERNELS_MARKS = ("origin", "impure", "uuid", "nlink")
_FLAGS = "flags"
_GET_FLAGS = 0x80086601
#: FS_INDEX_FL and FS_EXTENT_FL: how the file system itself keeps a directory.
_HOW_IT_IS_KEPT = 0x1000 | 0x80000
_WAIT_S, _TICK_S = 0.5, 0.005


class Kept(NamedTuple):
    """Plain values: it is passed between processes, beside the mount's descriptor."""

    #: The directory of its layer.
    directory: bytes
    root: bytes
    xattr_prefix: bytes
    #: If the tree still has this token, it has been quiet since before the first look.
    token: bytes
    #: The machine as it was then.
    looks: bytes
    born_ns: int

    @property
    def is_old(self) -> bool:
        return clock.monotonic_ns() - self.born_ns > OLDEST_NS

    def layer(self, directory: bytes) -> Layer:
        where = Path(os.fsdecode(directory))
        root = Path(os.fsdecode(self.root))
        return Layer(
            where.name, where, where / layer_dirs.UPPER, root, "overlay", self.xattr_prefix
        )  # fmt: skip


def attributes(layer: Layer) -> tuple[tuple[str, bytes], ...]:
    """The attributes of the layer itself, which a view shows on its root, and its flags.

    `OSError` if there are marks on it that the kernel did not make.
    """
    upper = os.fsencode(layer.upper)
    _refuse_marks(layer, upper)
    found = layer_is_noop.attributes(upper) or {}
    return (*sorted(found.items()), (_FLAGS, _flags(upper)))


def says_nothing(layer: Layer, expected: tuple[tuple[str, bytes], ...]) -> bool:
    """Whether a command has left nothing in the layer, and nothing on it but the `expected`
    attributes."""
    upper, root = os.fsencode(layer.upper), os.fsencode(layer.lower)
    try:
        at, stood = os.stat(upper), os.stat(root)
        if (at.st_mode, at.st_uid, at.st_gid) != (stood.st_mode, stood.st_uid, stood.st_gid):
            return False
        if at.st_mtime_ns != stood.st_mtime_ns:
            return False
        if attributes(layer) != expected:
            return False
        # "work" has what is being copied up; "index" has files with several names.
        for name in ("work", "index"):
            where = layer.directory / "work" / name
            if where.is_dir() and not set(os.listdir(where)) <= {_VOLATILE_MARK}:
                return False
        copied = layer_is_noop.copied_directories(upper, root)
        for path in copied or ():
            _refuse_marks(layer, os.path.join(upper, path))
            # They were made with the layer and have the same flags, unless a program changed them.
            if (_FLAGS, _flags(os.path.join(upper, path))) not in expected:
                return False
        return copied is not None
    except OSError:
        return False


def _refuse_marks(layer: Layer, directory: bytes) -> None:
    """A command may set attributes that look like the kernel's marks. They mean nothing for the
    tree, but the next command would see them."""
    own = {os.fsdecode(layer.xattr_prefix) + name for name in _KERNELS_MARKS}
    for name in os.listxattr(directory, follow_symlinks=False):
        if name.startswith(OVERLAY_MARKS) and name not in own:
            raise OSError(errno.EEXIST, f"somebody's mark: {name}")


def _flags(directory: bytes) -> bytes:
    """The flags that `chattr` sets."""
    import fcntl

    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        said = fcntl.ioctl(fd, _GET_FLAGS, bytes(8))
    except OSError as error:
        if error.errno in (errno.ENOTTY, errno.EOPNOTSUPP, errno.ENOSYS):
            return b"0"  # a file system without them
        raise
    finally:
        os.close(fd)
    return b"%d" % (int.from_bytes(said[:4], sys.byteorder) & ~_HOW_IT_IS_KEPT)


def put_by(layer: Layer) -> Layer:
    """Keep it as it was before its command; it has no command now, and we must remove it."""
    # A process that copies the workspace now would find it.
    (layer.upper / _STORE_NAME).unlink(missing_ok=True)
    return parked_layers.put(layer, layer.directory.parent)


def set_times(layer: Layer) -> None:
    """Directories that an earlier command had copied up get the times of the tree's."""
    upper, root = os.fsencode(layer.upper), os.fsencode(layer.lower)
    for path in layer_is_noop.copied_directories(upper, root) or ():
        stood = os.stat(os.path.join(root, path))
        os.utime(os.path.join(upper, path), ns=(stood.st_atime_ns, stood.st_mtime_ns))


def take_over(kept: Kept) -> Layer:
    """Make its layer ours; `OSError` if it is gone."""
    layer = kept.layer(kept.directory)
    # First the owner, then the name: a process that tidies up never finds it without an owner.
    layer_dirs.note_kind(layer)
    return parked_layers.put(layer, layer.directory.parent)


def see_off(layer: Layer) -> None:
    """After the answer: the next process takes it at once; otherwise remove it."""
    deadline = clock.monotonic_ns() + int(_WAIT_S * 1e9)
    while clock.monotonic_ns() < deadline:
        if not layer.directory.is_dir():
            return
        clock.sleep(_TICK_S)
    with suppress(OSError):
        layer_dirs.remove(parked_layers.put(layer, layer.directory.parent))


def attach(view: int, root: bytes) -> Callable[[], None]:
    """A function that mounts the kept view at `root`."""

    def mount_view() -> None:
        mounts.attach_tree(view, root)
        os.close(view)
        if os.statvfs(root).f_flag & mounts.RDONLY:
            raise OSError(30, "the view was made read-only")

    return mount_view
