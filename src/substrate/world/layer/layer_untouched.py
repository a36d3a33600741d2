"""Whether a command left its layer alone: most do, and then nothing has to be read."""

from __future__ import annotations

import os

from substrate.workspace.apply import layer_is_noop
from substrate.workspace.paths import temporary_chmod
from substrate.world.interface import Layer
from substrate.world.layer import layer_dirs
from substrate.world.strategies import fuse_marks

_STORE = b".substrate-git"


def is_untouched(layer: Layer) -> bool:
    """Whether the command changed nothing at all."""
    with os.scandir(os.fsencode(layer.upper)) as names:
        return all(entry.name == _STORE for entry in names)


def says_nothing(layer: Layer) -> bool:
    """Whether there is nothing to record or apply, though directories may have been copied up."""
    upper, root = os.fsencode(layer.upper), os.fsencode(layer.lower)
    if layer_dirs.new_look(layer):  # it is not applied, and the user must be informed
        return False
    if is_untouched(layer):
        return True
    if temporary_chmod.has_notes(layer.directory):
        return False  # modes in the layer are not those that the command gave
    by_kernel = layer.kind == "overlay" and layer.xattr_prefix != fuse_marks.PREFIX
    return by_kernel and layer_is_noop.copied_directories(upper, root) is not None
