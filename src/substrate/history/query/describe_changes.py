"""A change as users and programs see it: what kind, how many lines, binary or not."""

from __future__ import annotations

from typing import NamedTuple

from substrate.history.record import changed_paths
from substrate.history.store import HistoryStore
from substrate.model import ABSENT, Change, Kind, Node, RelPath

_BINARY_PROBE_BYTES = 8000


class FileChange(NamedTuple):
    path: RelPath
    #: added, modified, deleted, mode (or attributes only), type
    change: str
    binary: bool
    additions: int
    deletions: int
    old: Node
    new: Node


def file_changes(store: HistoryStore, changes: list[Change]) -> list[FileChange]:
    """One change per file. A directory is listed only if nothing below it changed."""
    shown = set(changed_paths(changes))
    return [_file_change(store, c) for c in changes if c.path in shown]


def _file_change(store: HistoryStore, change: Change) -> FileChange:
    kind = _kind_of(change)
    old_data, new_data = _content(store, change.old), _content(store, change.new)
    binary = _is_binary(old_data) or _is_binary(new_data)
    added = deleted = 0
    if not binary and change.old.oid != change.new.oid:
        added, deleted = _count_lines(old_data, new_data)
    return FileChange(change.path, kind, binary, added, deleted, change.old, change.new)


def _kind_of(change: Change) -> str:
    if change.old == ABSENT:
        return "added"
    if change.new == ABSENT:
        return "deleted"
    if change.old.kind is not change.new.kind:
        return "type"
    return "modified" if change.old.oid != change.new.oid else "mode"


def _content(store: HistoryStore, node: Node) -> bytes:
    return store.objects.read_blob(node.oid) if node.kind in (Kind.FILE, Kind.SYMLINK) else b""


def _is_binary(data: bytes) -> bool:
    return b"\0" in data[:_BINARY_PROBE_BYTES]


def _count_lines(old: bytes, new: bytes) -> tuple[int, int]:
    """Lines added and deleted, as a line diff counts them."""
    if not old:
        return len(new.splitlines()), 0
    if not new:
        return 0, len(old.splitlines())
    import difflib

    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    head = _common_prefix(before, after)
    tail = _common_prefix(before[head:][::-1], after[head:][::-1])
    before = before[head : len(before) - tail]
    after = after[head : len(after) - tail]
    if not before or not after:
        return len(after), len(before)
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=True)
    same = sum(block.size for block in matcher.get_matching_blocks())
    return len(after) - same, len(before) - same


def _common_prefix(a: list[bytes], b: list[bytes]) -> int:
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n
