"""Whether a command left its layer alone: most do, and then nothing has to be read."""

from __future__ import annotations

import os

from substrate.workspace import untouched
from substrate.world import fuse_marks, layers
from substrate.world.protocol import Layer

_STORE = b".substrate-git"


def is_untouched(layer: Layer) -> bool:
    """Whether the command changed nothing at all: most do not, and need no reading."""
    with os.scandir(os.fsencode(layer.upper)) as names:
        return all(entry.name == _STORE for entry in names)


def says_nothing(layer: Layer) -> bool:
    """Whether there is nothing to record or apply, though directories may have been copied up."""
    upper, root = os.fsencode(layer.upper), os.fsencode(layer.lower)
    if layers.new_look(layer):  # it does not arrive, and that is to be told
        return False
    if is_untouched(layer):
        return True
    by_kernel = layer.kind == "overlay" and layer.xattr_prefix != fuse_marks.PREFIX
    return by_kernel and untouched.copied_directories(upper, root) is not None
