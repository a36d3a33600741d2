"""The overlay strategy: the kernel's overlayfs over the workspace."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from substrate.system.linux import mounts, namespaces
from substrate.world.interface import Layer, Wanted
from substrate.world.layer import layer_dirs
from substrate.world.process import is_privileged
from substrate.world.strategies.layer_strategy import LayeredWorld

TRUSTED = b"trusted.overlay."
USER = b"user.overlay."
FLAGS = mounts.NOSUID | mounts.NODEV


#: Where the layers of worlds above a world's layer go, in its directory: they go away with it.
_ABOVE = "above"


class OverlayWorld(LayeredWorld):
    strategy = "overlay"
    can_be_ahead = True

    #: The layer of a finished command, whose change this world shows.
    _frozen: Layer | None = None

    @classmethod
    def above(cls, wanted: Wanted, frozen: Layer) -> OverlayWorld:
        """A world over the workspace as a finished command has changed it."""
        world = cls(wanted, frozen.directory / _ABOVE)
        world._frozen = frozen
        world.can_be_ahead = False
        return world

    def make_layer(self, world_id: str) -> Layer:
        return new_layer(self._worlds, world_id, self._root)

    def view(self, layer: Layer) -> Callable[[], None]:
        return overlay_view(layer, self._frozen)


def new_layer(worlds: Path, world_id: str, root: Path, *, ahead: bool = False) -> Layer:
    prefix = TRUSTED if _may_use_trusted() else USER
    return layer_dirs.create(worlds, world_id, root, "overlay", prefix, ahead=ahead)


def overlay_view(layer: Layer, frozen: Layer | None = None) -> Callable[[], None]:
    """A function that mounts the overlay at the workspace's own path.

    `frozen`: a layer between the workspace and this one, which is not changed.
    """

    def mount_view() -> None:
        root = os.fsencode(layer.lower)
        trusted = layer.xattr_prefix == TRUSTED
        directory = os.open(layer.directory, os.O_PATH | os.O_DIRECTORY)
        if frozen is not None:  # hides the store, and with it the name of `directory`
            _mount_frozen(frozen, layer, root, trusted=trusted)
        lower = os.open(root, os.O_PATH | os.O_DIRECTORY)
        mount_overlay(lower, directory, root, trusted=trusted)
        os.close(lower)
        os.close(directory)

    return mount_view


def _mount_frozen(frozen: Layer, layer: Layer, root: bytes, *, trusted: bool) -> None:
    """Show the workspace as a finished command has changed it, read-only, at `root`.

    As an overlay of its own: as a second lower layer it would overlap with the first, because it
    is in a directory of the workspace, and the kernel refuses that.
    """
    work = layer.directory / "frozen-work"  # the frozen layer's own one is used up
    os.mkdir(work, 0o700)
    ends = [os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (root, frozen.upper, work)]
    options = b"lowerdir=/proc/self/fd/%d,upperdir=/proc/self/fd/%d" % tuple(ends[:2])
    options += b",workdir=/proc/self/fd/%d,volatile" % ends[2]
    # No index: the kernel may still be unmounting the command's own overlay, and refuses one then.
    options += b",redirect_dir=off,metacopy=off,index=off" if trusted else b",userxattr"
    mounts.mount(b"substrate", root, b"overlay", FLAGS | mounts.RDONLY, options)
    for fd in ends:
        os.close(fd)


def mount_overlay(lower: int, directory: int, target: bytes, *, trusted: bool) -> None:
    """Mount what is in `directory` (``upper`` and ``work``) over `lower`, at `target`."""
    # By descriptor: so no name can contain a character that the options would have to escape.
    options = b"lowerdir=/proc/self/fd/%d,upperdir=/proc/self/fd/%d/upper" % (lower, directory)
    # volatile: the recorder makes durable what must be; a copy-up need not be.
    options += b",workdir=/proc/self/fd/%d/work,volatile" % directory
    if trusted:
        # The upper must not refer to the lower tree, because it is read alone (with userxattr
        # it never refers). With an index, a changed hard link is known to be a copy of its lower
        # file.
        options += b",redirect_dir=off,metacopy=off,index=on"
    else:
        options += b",userxattr"
    mounts.mount(b"substrate", target, b"overlay", FLAGS, options)
    layer_dirs.open_work(directory)


def _may_use_trusted() -> bool:
    return is_privileged() and namespaces.in_initial_user_namespace()
