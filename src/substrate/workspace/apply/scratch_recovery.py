"""After a crash: what an interrupted attempt left in scratch, and where each entry belongs.

Nothing is removed unless its bytes are those of the plan's old or new state, which the object store
has. Anything else may be the only copy: it goes back to its place if that is free, and to the trash
otherwise.
"""

from __future__ import annotations

import os
import re

from substrate.model import Kind, Node
from substrate.workspace.apply.apply_context import MARKS, Item, Site
from substrate.workspace.apply.dispose_displaced import drop
from substrate.workspace.apply.layer_source import LayerSource
from substrate.workspace.apply.plan import How
from substrate.workspace.apply.trash_reasons import Kept, TrashReason
from substrate.workspace.paths import Directory, Walker, discard, look

_NAME = re.compile(rb"(\d+)(\.part|\.old|\.inplace)?")
_REASON = Kept(TrashReason.INTERRUPTED)


def recover(site: Site, items: list[Item]) -> None:
    """Empty the scratch directory; items whose rewrite in place had begun are marked torn."""
    for number in _marked(site.scratch):
        if number < len(items):
            items[number].torn = True
    _recover_in(site, site.scratch, b"", items)
    for item in items:
        if item.op.how is How.FROM_LAYER and site.layer is not None:
            _recover_in_layer(site, site.layer, item)
    for path in sorted({site.local_place(item.path) for item in items}):
        try:
            directory = Walker(site.top).directory(path)
        except OSError:
            continue  # missing, or not accessible: nothing of ours can be in it
        with directory:
            if directory.is_readable:
                _recover_in(site, directory, site.local_prefix, items)


def _marked(scratch: Directory) -> list[int]:
    """A truncated list was not acted upon yet: it is synced before the first rewrite."""
    try:
        fd = scratch.open(MARKS, os.O_RDONLY)
    except FileNotFoundError:
        return []
    with os.fdopen(fd, "rb") as file:
        return [int(line) for line in file if line.strip().isdigit()]


def _recover_in_layer(site: Site, layer: LayerSource, item: Item) -> None:
    """After an exchange, the old entry is in the layer in the place of the new one."""
    place = layer.place(item.path)
    if place is None or not layer.is_beside(site.scratch) or not place[0].exists(place[1]):
        return
    lies, wanted = look(*place, site.most_bytes).node, item.op.become
    if (lies.kind, lies.oid) == (wanted.kind, wanted.oid):
        return
    try:
        parent, name = Walker(site.top).parent_of(item.path)
    except OSError:
        return
    with parent:
        stands = look(parent, name, site.most_bytes).node
    if (stands.kind, stands.oid) != (wanted.kind, wanted.oid):
        return
    known = _known_as(site, item, lies, place[0].lstat(place[1]))
    if known is not None:
        drop(site, *place, item, known)
    else:
        site.to_trash(*place, item.path, _REASON)


def _recover_in(site: Site, directory: Directory, prefix: bytes, items: list[Item]) -> None:
    for name in directory.names():
        match = _NAME.fullmatch(name.removeprefix(prefix)) if name.startswith(prefix) else None
        if match is None or int(match[1]) >= len(items):
            continue
        item = items[int(match[1])]
        if match[2] == b".part":
            discard(directory, name)  # only ever a partial copy of something that is in the store
        elif match[2] == b".inplace":
            item.torn = True
        else:
            _settle(site, item, directory, name)


def _settle(site: Site, item: Item, directory: Directory, name: bytes) -> None:
    node = look(directory, name, site.most_bytes).node
    if node.kind is Kind.DIRECTORY and _removed_empty(directory, name):
        return
    known = _known_as(site, item, node, directory.lstat(name))
    if known is not None:
        # This is the old entry and its place is free: names could not be exchanged, and the crash
        # came between the two renames. Back in its place, it is an ordinary state to continue from.
        between = name.endswith(b".old") and item.op.become.kind is not Kind.ABSENT
        if not (between and _put_back(site, item, directory, name)):
            drop(site, directory, name, item, known)
    elif not _put_back(site, item, directory, name):
        site.to_trash(directory, name, item.path, _REASON)


def _removed_empty(directory: Directory, name: bytes) -> bool:
    try:
        directory.rmdir(name)
    except OSError:
        return False
    return True


def _known_as(site: Site, item: Item, node: Node, at: os.stat_result) -> Node | None:
    """The state of the plan that has these bytes, so that the object store has them.

    The old state of an excluded path may have been hashed without being stored: not known.
    """
    old, new = item.op.expect, item.op.become
    if node.kind is Kind.DIRECTORY or (node.kind is Kind.FILE and not node.oid):
        return None
    if (node.kind, node.oid) == (new.kind, new.oid):
        return new
    if (node.kind, node.oid) == (old.kind, old.oid) and site.excluded(item.path, at) is None:
        return old
    return None


def _put_back(site: Site, item: Item, directory: Directory, name: bytes) -> bool:
    try:
        parent, own_name = site.walker.parent_of(item.path)
    except OSError:
        return False
    with parent:
        try:
            directory.rename_new(name, parent, own_name)
        except FileExistsError:
            return False
    return True
