"""Three-way merges of one path: content line by line, modes and attributes as single values."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple, TypeVar

from substrate.model.nodes import ABSENT, Kind, Node

Value = TypeVar("Value")

#: ``(base, ours, theirs, favour) -> merged bytes``, or None when lines collide or it is binary.
TextMerge = Callable[[bytes, bytes, bytes, "Take | None"], "bytes | None"]


class Take(Enum):
    """Whose side a collision is decided for."""

    OURS = "ours"  # what stands in the workspace now
    THEIRS = "theirs"  # what the undo or rollback brings back


class Merged(NamedTuple):
    node: Node
    #: Both sides contributed something (as opposed to one side simply winning).
    both: bool = False


class Collision(NamedTuple):
    why: str


class Blobs(NamedTuple):
    """How a merge reads, writes and combines contents."""

    read: Callable[[bytes], bytes]
    add: Callable[[bytes], bytes]
    text_merge: TextMerge


def merge_node(
    base: Node, ours: Node, theirs: Node, blobs: Blobs, take: Take | None
) -> Merged | Collision:
    """Bring the step base → theirs to `ours`.

    base == ours     the path is as the command left it: theirs, as it is
    base == theirs   nothing to bring; ours == theirs: it is there already
    otherwise        all three differ: files merge by content, mode and attributes
    """
    if ours in (base, theirs):
        return Merged(theirs)
    if base == theirs:
        return Merged(ours)
    if base.kind == ours.kind == theirs.kind and base.kind in (Kind.FILE, Kind.DIRECTORY):
        return _merge_same_kind(base, ours, theirs, blobs, take)
    if ours.kind is Kind.DIRECTORY and theirs.kind is Kind.DIRECTORY:
        return Merged(ours)  # two directories hold no contradiction
    if ours.kind is base.kind is Kind.DIRECTORY and theirs == ABSENT:
        return Merged(theirs)  # it is only removed if it is empty by then
    if take is not None:
        return Merged(ours if take is Take.OURS else theirs)
    return Collision(_describe(base, ours, theirs))


def _merge_same_kind(
    base: Node, ours: Node, theirs: Node, blobs: Blobs, take: Take | None
) -> Merged | Collision:
    mode = _merge_value(base.mode, ours.mode, theirs.mode, take)
    xattrs = _merge_value(base.xattrs, ours.xattrs, theirs.xattrs, take)
    if mode is None:
        return Collision(f"mode is {ours.mode:04o} now, would become {theirs.mode:04o}")
    if xattrs is None:
        return Collision("extended attributes were changed on both sides")
    oid = _merge_value(base.oid, ours.oid, theirs.oid, None)
    if oid is None:
        contents = (blobs.read(base.oid), blobs.read(ours.oid), blobs.read(theirs.oid))
        merged = blobs.text_merge(*contents, take)
        if merged is not None:
            oid = blobs.add(merged)
        elif take is not None:  # binary: one side or the other, whole
            oid = ours.oid if take is Take.OURS else theirs.oid
        else:
            return Collision("the same lines were changed since")
    return Merged(Node(ours.kind, mode, oid, xattrs), both=True)


def _merge_value(base: Value, ours: Value, theirs: Value, take: Take | None) -> Value | None:
    if ours in (base, theirs):
        return theirs
    if base == theirs:
        return ours
    if take is None:
        return None
    return ours if take is Take.OURS else theirs


def _describe(base: Node, ours: Node, theirs: Node) -> str:
    if theirs == ABSENT:
        return "would be removed, but was changed since"
    if ours == ABSENT:
        return "would be changed, but was removed since"
    if base == ABSENT:
        return "would be put there, but something else stands there now"
    return f"is a {ours.kind.value} now, would become a {theirs.kind.value}"
