"""Change a few entries of an index file in place, where that is plainly possible.

``git update-index`` reads, checks and writes a hundred thousand entries to change ten. Here the ten
are found by their names and overwritten; whatever is unusual is left to git (None).

    entry   ctime 8  mtime 8  dev 4  ino 4  mode 4  uid 4  gid 4  size 4  oid 20  flags 2  path NUL…
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from substrate.model.nodes import ABSENT, Kind, Node
from substrate.model.paths import RelPath, ancestors
from substrate.rewrite.sweep import Asked

_STAT = struct.Struct(">10I")
_HEAD_BYTES, _OID_AT, _FLAGS_AT, _PATH_AT = 12, 40, 60, 62
_MAX_CHANGES = 200
_SHORT_NAME = 0xFF
_ATTRIBUTES = b".gitattributes"
#: How far from the end the cached trees are looked for.
_TAIL = 1 << 20
#: Extensions that stay true; what else is there only speeds git up, and is made again.
_KEPT = (b"REUC",)
_KNOWN = (b"TREE", b"REUC", b"UNTR", b"FSMN", b"EOIE", b"IEOT")
_MASK = 0xFFFFFFFF


class Change(NamedTuple):
    old: Node
    new: Node
    #: Of a file that is the new entry's content; None: git shall compare.
    stat: os.stat_result | None


class Glance(NamedTuple):
    """What an index tells without a look at its entries."""

    #: As `is_plain` has it: then no entry is hidden.
    plain: bool
    #: Whether any attribute file is tracked.
    attributes: bool
    #: The tree that git noted for the whole index, if it did: then every entry is as that has it,
    #: none is in conflict, none is only intended. Empty if it did not.
    tree: bytes


def glance(data: bytes) -> Glance:
    # name (none: it is the root) NUL entries SP subtrees LF oid; -1 entries: not valid
    head, _, rest = _cached_trees(data).partition(b"\n")
    valid = head[:1] == b"\0" and head[1:2].isdigit()
    return Glance(is_plain(data), _ATTRIBUTES in data, rest[:20] if valid else b"")


def _cached_trees(data: bytes) -> bytes:
    """The extension of that name, if it is where it can be found quickly."""
    if data[-52:-44] == b"EOIE\0\0\0\x18":  # says where they begin; git puts it at the very end
        found = _chain(data, int.from_bytes(data[-44:-40], "big")) or []
        return dict(found).get(b"TREE", b"")
    start = data.find(b"TREE", max(0, len(data) - _TAIL))
    while start >= 0:
        parts = _chain(data, start)
        if parts:
            return parts[0][1]
        start = data.find(b"TREE", start + 1)
    return b""


def is_plain(data: bytes) -> bool:
    """Version 2: whole paths, no extended flags, so neither skip-worktree nor intent-to-add."""
    return data[:8] == b"DIRC\0\0\0\2"


def splice(data: bytes, changes: Mapping[RelPath, Change]) -> bytes | None:
    """The index with these entries replaced, or None where git has to do it."""
    if not is_plain(data) or len(changes) > _MAX_CHANGES:
        return None
    whole = memoryview(data)
    sound = Asked(lambda: _sha1([whole[:-20]]) == data[-20:])  # beside the rest: it is the longer
    parts = _spliced(whole, data, changes)
    if not sound.answer() or parts is None:
        return None
    return b"".join([*parts, _sha1(parts)])


def _spliced(
    whole: memoryview, data: bytes, changes: Mapping[RelPath, Change]
) -> list[bytes | memoryview] | None:
    parts: list[bytes | memoryview] = []
    done = 0
    for path, change in sorted(changes.items()):  # as the index has them
        at = _find(data, path, change.old, done)
        if at is None or change.new == ABSENT:
            return None
        parts += [whole[done:at], _fields(change)]
        done = at + _FLAGS_AT
    extensions = _extensions(data, done)
    if extensions is None:
        return None
    start, found = extensions
    parts.append(whole[done:start])
    for name, content in found:
        if name == b"TREE":
            content = _invalidated(content, changes)  # noqa: PLW2901
        elif name not in _KEPT:
            continue
        parts.append(name + struct.pack(">I", len(content)) + content)
    return parts


def _sha1(parts: Iterable[bytes | memoryview]) -> bytes:
    digest = hashlib.sha1(usedforsecurity=False)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _find(data: bytes, path: RelPath, old: Node, start: int) -> int | None:
    """Where the entry of `path` begins, if it is the plain one that is expected there.

    Its name's length is two bytes of which the first is zero, and no name holds a zero: so what
    looks like this entry can be no part of another one's name.
    """
    if old == ABSENT or len(path) > _SHORT_NAME:
        return None
    found = data.find(old.oid + struct.pack(">H", len(path)) + path + b"\0", start)
    at = found - _OID_AT
    if found < 0 or at < _HEAD_BYTES or at % 4:
        return None
    mode = int.from_bytes(data[at + 24 : at + 28], "big")
    return at if mode == _mode(old) else None


def _mode(node: Node) -> int:
    if node.kind is Kind.SYMLINK:
        return 0o120000
    return 0o100755 if node.mode & 0o100 else 0o100644


def _fields(change: Change) -> bytes:
    mode, at = _mode(change.new), change.stat
    if at is None:
        return _STAT.pack(0, 0, 0, 0, 0, 0, mode, 0, 0, 0) + change.new.oid
    seconds, rest = divmod(at.st_ctime_ns, 1_000_000_000)
    m_seconds, m_rest = divmod(at.st_mtime_ns, 1_000_000_000)
    numbers = (
        seconds, rest, m_seconds, m_rest, at.st_dev, at.st_ino, mode, at.st_uid, at.st_gid,
        at.st_size,
    )  # fmt: skip
    return _STAT.pack(*(number & _MASK for number in numbers)) + change.new.oid


def _extensions(data: bytes, at: int) -> tuple[int, list[tuple[bytes, bytes]]] | None:
    """Where the entries end, and what follows. Git puts the cached trees first, so their name is
    looked for, behind an entry; only a chain of known extensions up to the very end counts."""
    start = data.find(b"TREE", at)
    while start >= 0:
        parts = _chain(data, start)
        if parts is not None:
            return start, parts
        start = data.find(b"TREE", start + 1)
    walked = _end_of_entries(data)
    parts = _chain(data, walked) if walked is not None else None
    return (walked, parts) if walked is not None and parts is not None else None


def _chain(data: bytes, at: int) -> list[tuple[bytes, bytes]] | None:
    parts = []
    end = len(data) - 20
    while at + 8 <= end:
        name = data[at : at + 4]
        (size,) = struct.unpack_from(">I", data, at + 4)
        if name not in _KNOWN or at + 8 + size > end:
            return None  # `link` and `sdir` among them: a split or a sparse index
        parts.append((name, data[at + 8 : at + 8 + size]))
        at += 8 + size
    return parts if at == end else None


def _end_of_entries(data: bytes) -> int | None:
    (count,) = struct.unpack_from(">I", data, 8)
    at, find = _HEAD_BYTES, data.find
    for _ in range(count):
        end = find(b"\0", at + _PATH_AT)
        if end < 0:
            return None
        at += (end - at + 8) & ~7
    return at


def _invalidated(content: bytes, changes: Mapping[RelPath, Change]) -> bytes:
    """The cached trees without those that a changed path lies in. Each is followed by its own
    subtrees: ``name NUL entries SP subtrees LF oid``, no id where it is not valid."""
    touched = {b"", *(above for path in changes for above in ancestors(path))}
    out = []
    stack: list[list[int]] = []  # of each open directory, how many subtrees are still to come
    paths: list[bytes] = []
    at = 0
    while at < len(content):
        nul = content.index(b"\0", at)
        line = content.index(b"\n", nul)
        name, (count, subtrees) = content[at:nul], map(int, content[nul + 1 : line].split(b" "))
        oid = content[line + 1 : line + 21] if count >= 0 else b""
        at = line + 1 + len(oid)
        while stack and not stack[-1][0]:
            stack.pop()
            paths.pop()
        if stack:
            stack[-1][0] -= 1
        path = paths[-1] + b"/" + name if paths and paths[-1] else name
        if path in touched:
            count, oid = -1, b""
        out.append(b"%s\0%d %d\n%s" % (name, count, subtrees, oid))
        stack.append([subtrees])
        paths.append(path)
    return b"".join(out)
