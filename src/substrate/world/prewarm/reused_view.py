"""A view that its command left as it was goes to the next command, with all it has looked up.

What is kept is the overlay alone, as a mount that is attached nowhere: namespaces, processes and
every other mount are new for each command. Its layer must say nothing; the kernel then holds
nothing of the one command that the other could see. Whether what it has looked up still holds, the
agent's watcher says (`workspace/still.py`); who knows no token uses it never again.

    one command's process                      the next one's
      its command has ended: `put_by`
      tells the agent, hands the mount over ─▶  `take_over`: the directory is its own now
      `see_off`: it was taken, or it goes       attaches the mount in its world
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
from substrate.workspace import untouched
from substrate.workspace.layer import OVERLAY_MARKS
from substrate.world import aside, layers
from substrate.world.protocol import Layer

#: Not for ever: flags that `chattr` sets are remembered, too, and of those nobody is told.
OLDEST_NS = 600 * 1_000_000_000
_STORE_NAME = ".substrate-git"
_VOLATILE_MARK = "incompat"
#: What the kernel notes on directories that it copies up; none of them changes what is shown.
_KERNELS_MARKS = ("origin", "impure", "uuid", "nlink")
_FLAGS = "flags"
_GET_FLAGS = 0x80086601
#: FS_INDEX_FL and FS_EXTENT_FL: how the file system itself keeps a directory.
_HOW_IT_IS_KEPT = 0x1000 | 0x80000
_WAIT_S, _TICK_S = 0.5, 0.005


class Kept(NamedTuple):
    """Plain values: it is passed between processes, beside the mount's descriptor."""

    #: Of its layer.
    directory: bytes
    root: bytes
    xattr_prefix: bytes
    #: The tree has stood still since before the first look through it, if this is its token.
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
            where.name, where, where / layers.UPPER, root, "overlay", self.xattr_prefix
        )  # fmt: skip


def attributes(layer: Layer) -> tuple[tuple[str, bytes], ...]:
    """Those on the layer itself, which a view shows on its root, and its flags.

    `OSError` if there are marks on it that the kernel did not make.
    """
    upper = os.fsencode(layer.upper)
    _refuse_marks(layer, upper)
    found = untouched.attributes(upper) or {}
    return (*sorted(found.items()), (_FLAGS, _flags(upper)))


def says_nothing(layer: Layer, expected: tuple[tuple[str, bytes], ...]) -> bool:
    """Whether a command has left nothing in the layer: neither in it nor on it, where the
    `expected` attributes were."""
    upper, root = os.fsencode(layer.upper), os.fsencode(layer.lower)
    try:
        at, stood = os.stat(upper), os.stat(root)
        if (at.st_mode, at.st_uid, at.st_gid) != (stood.st_mode, stood.st_uid, stood.st_gid):
            return False
        if at.st_mtime_ns != stood.st_mtime_ns:
            return False
        if attributes(layer) != expected:
            return False
        # What is being copied up lies in the one; of files with several names the other knows.
        for name in ("work", "index"):
            where = layer.directory / "work" / name
            if where.is_dir() and not set(os.listdir(where)) <= {_VOLATILE_MARK}:
                return False
        copied = untouched.copied_directories(upper, root)
        for path in copied or ():
            _refuse_marks(layer, os.path.join(upper, path))
            # Made where the layer was made: they have the same, unless somebody set them.
            if (_FLAGS, _flags(os.path.join(upper, path))) not in expected:
                return False
        return copied is not None
    except OSError:
        return False


def _refuse_marks(layer: Layer, directory: bytes) -> None:
    """A command may set attributes that look like the kernel's marks. They say nothing of the
    tree, but the next command would see them."""
    own = {os.fsdecode(layer.xattr_prefix) + name for name in _KERNELS_MARKS}
    for name in os.listxattr(directory, follow_symlinks=False):
        if name.startswith(OVERLAY_MARKS) and name not in own:
            raise OSError(errno.EEXIST, f"somebody's mark: {name}")


def _flags(directory: bytes) -> bytes:
    """Those that `chattr` sets."""
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
    """As it was before its command; nobody's, but ours to clear away."""
    # Whoever copies the workspace now would come across it.
    (layer.upper / _STORE_NAME).unlink(missing_ok=True)
    return aside.put(layer, layer.directory.parent)


def set_times(layer: Layer) -> None:
    """Directories that an earlier command had copied up look as they do in the tree now."""
    upper, root = os.fsencode(layer.upper), os.fsencode(layer.lower)
    for path in untouched.copied_directories(upper, root) or ():
        stood = os.stat(os.path.join(root, path))
        os.utime(os.path.join(upper, path), ns=(stood.st_atime_ns, stood.st_mtime_ns))


def take_over(kept: Kept) -> Layer:
    """Make its layer ours; `OSError` if it is gone."""
    layer = kept.layer(kept.directory)
    # First whose it is, then the name: nobody who tidies up finds it without an owner.
    layers.note_kind(layer)
    return aside.put(layer, layer.directory.parent)


def see_off(layer: Layer) -> None:
    """After the answer: whoever is to have it takes it at once, or nobody does."""
    deadline = clock.monotonic_ns() + int(_WAIT_S * 1e9)
    while clock.monotonic_ns() < deadline:
        if not layer.directory.is_dir():
            return
        clock.sleep(_TICK_S)
    with suppress(OSError):
        layers.remove(aside.put(layer, layer.directory.parent))


def attach(view: int, root: bytes) -> Callable[[], None]:
    """What puts the kept mount at `root`."""

    def mount_view() -> None:
        mounts.attach_tree(view, root)
        os.close(view)
        if os.statvfs(root).f_flag & mounts.RDONLY:
            raise OSError(30, "the view was made read-only")

    return mount_view
