"""Letting go of what was displaced: removed if history has its bytes, else kept in the trash."""

from __future__ import annotations

import os

from substrate.model.nodes import Kind, Node
from substrate.workspace.dirwalk import Directory
from substrate.workspace.probe import (
    Seen,
    kind_of,
    look,
    nobody_writes,
    open_to_read,
    read_open_file,
)
from substrate.workspace.site import Item, Site

_NEVER_MADE = (Kind.SOCKET, Kind.CHAR_DEVICE, Kind.BLOCK_DEVICE)
_IN_USE = "another program still has it open for writing"


def drop(site: Site, directory: Directory, name: bytes, item: Item, known: Node) -> None:
    """Remove it if its bytes are the `known` ones and nobody can add to them; otherwise it goes
    to the trash."""
    why = item.keep or why_not_droppable(directory, name, known)
    if why is None:
        directory.unlink(name)
    elif why:
        site.to_trash(directory, name, item.path, why)


def why_not_droppable(
    directory: Directory, name: bytes, known: Node, seen: Seen | None = None
) -> str | None:
    """None: remove it. Empty: it is gone already. Otherwise the reason to keep it.

    `seen`: as it was read before, if it has not been moved since; then its stat may suffice.
    """
    try:
        at = directory.lstat(name)
    except FileNotFoundError:
        return ""
    kind = kind_of(at)
    if kind is Kind.FILE:
        return _why_not_file(directory, name, at, known, seen)
    if kind is Kind.DIRECTORY:
        try:
            directory.rmdir(name)
        except OSError:
            return "something was put into it while it was replaced"
        return ""
    if kind in _NEVER_MADE:
        return f"a {kind.value} cannot be made again from history"
    return _compared(look(directory, name).node, known)


def _why_not_file(
    directory: Directory, name: bytes, at: os.stat_result, known: Node, seen: Seen | None
) -> str | None:
    if not known.oid and known.kind is Kind.FILE:
        return "its content was never recorded"
    fd = open_to_read(directory, name)
    try:
        # Either no writer can reach these bytes any more, or they have another name that stays.
        if at.st_nlink == 1 and nobody_writes(fd) is False:
            return _IN_USE
        if seen is not None and seen.is_settled and seen.same_inode_untouched(os.fstat(fd)):
            return _compared(seen.node, known)
        found = read_open_file(fd)
    finally:
        os.close(fd)
    return "changed meanwhile" if found is None else _compared(found.node, known)


def _compared(node: Node, known: Node) -> str | None:
    return None if (node.kind, node.oid) == (known.kind, known.oid) else "changed meanwhile"
