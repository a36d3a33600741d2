"""Disposing of displaced entries: removed if history has the bytes, else kept in the trash."""

from __future__ import annotations

import os
from enum import Enum

from substrate.model import Kind, Node
from substrate.workspace.apply.apply_context import Item, Site
from substrate.workspace.apply.trash_reasons import Kept, TrashReason
from substrate.workspace.paths import (
    Directory,
    Seen,
    kind_of,
    look,
    nobody_writes,
    open_to_read,
    read_open_file,
)

_NEVER_MADE = (Kind.SOCKET, Kind.CHAR_DEVICE, Kind.BLOCK_DEVICE)


class Verdict(Enum):
    """What to do with a displaced entry that need not be kept."""

    DROP = "drop"
    GONE = "gone"


def drop(site: Site, directory: Directory, name: bytes, item: Item, known: Node) -> None:
    """Remove it if its bytes are the `known` ones and no process can change them any more.

    Otherwise it goes to the trash.
    """
    verdict = item.keep or judge(directory, name, known)
    if verdict is Verdict.DROP:
        directory.unlink(name)
    elif isinstance(verdict, Kept):
        site.to_trash(directory, name, item.path, verdict)


def judge(
    directory: Directory, name: bytes, known: Node, seen: Seen | None = None
) -> Verdict | Kept:
    """Whether to remove the entry, or why it must be kept.

    `seen`: its state when it was read, if it has not been moved since; then its stat may be enough.
    """
    try:
        at = directory.lstat(name)
    except FileNotFoundError:
        return Verdict.GONE
    kind = kind_of(at)
    if kind is Kind.FILE:
        return _judge_file(directory, name, at, known, seen)
    if kind is Kind.DIRECTORY:
        try:
            directory.rmdir(name)
        except OSError:
            return Kept(TrashReason.ADDED)
        return Verdict.GONE
    if kind in _NEVER_MADE:
        return Kept(TrashReason.CANNOT_BE_MADE, kind.value)
    return _compared(look(directory, name).node, known)


def _judge_file(
    directory: Directory, name: bytes, at: os.stat_result, known: Node, seen: Seen | None
) -> Verdict | Kept:
    if not known.oid and known.kind is Kind.FILE:
        return Kept(TrashReason.NEVER_RECORDED)
    fd = open_to_read(directory, name)
    try:
        # Either no writer can reach these bytes any more, or they have another name that stays.
        if at.st_nlink == 1 and nobody_writes(fd) is False:
            return Kept(TrashReason.IN_USE)
        if seen is not None and seen.is_settled and seen.same_inode_untouched(os.fstat(fd)):
            return _compared(seen.node, known)
        found = read_open_file(fd)
    finally:
        os.close(fd)
    return Kept(TrashReason.CHANGED) if found is None else _compared(found.node, known)


def _compared(node: Node, known: Node) -> Verdict | Kept:
    is_known = (node.kind, node.oid) == (known.kind, known.oid)
    return Verdict.DROP if is_known else Kept(TrashReason.CHANGED)
