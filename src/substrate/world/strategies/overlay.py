"""The overlay strategy: the kernel's overlayfs over the workspace."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from substrate.system.linux import mounts, namespaces
from substrate.world.interface import Layer
from substrate.world.layer import layer_dirs
from substrate.world.process import is_privileged
from substrate.world.strategies.layer_strategy import LayeredWorld

TRUSTED = b"trusted.overlay."
USER = b"user.overlay."
FLAGS = mounts.NOSUID | mounts.NODEV


class OverlayWorld(LayeredWorld):
    strategy = "overlay"
    can_be_ahead = True

    def make_layer(self, world_id: str) -> Layer:
        return new_layer(self._worlds, world_id, self._root)

    def view(self, layer: Layer) -> Callable[[], None]:
        return overlay_view(layer)


def new_layer(worlds: Path, world_id: str, root: Path, *, ahead: bool = False) -> Layer:
    prefix = TRUSTED if _may_use_trusted() else USER
    return layer_dirs.create(worlds, world_id, root, "overlay", prefix, ahead=ahead)


def overlay_view(layer: Layer) -> Callable[[], None]:
    """A function that mounts the overlay at the workspace's own path."""

    def mount_view() -> None:
        root = os.fsencode(layer.lower)
        lower = os.open(root, os.O_PATH | os.O_DIRECTORY)
        directory = os.open(layer.directory, os.O_PATH | os.O_DIRECTORY)
        mount_overlay(lower, directory, root, trusted=layer.xattr_prefix == TRUSTED)
        os.close(lower)
        os.close(directory)

    return mount_view


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
