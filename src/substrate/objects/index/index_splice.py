"""Change a few entries of an index file in place, where that is simple.

``git update-index`` reads, checks and writes a hundred thousand entries to change ten. This module
finds the ten by their names and overwrites them; it leaves unusual cases to git (None).

Every entry contains the result of `lstat` from the last time git read the file. A file that is
renamed into the tree gets a new change time, and a git command that does not compare contents
(`git merge --abort`) treats it as edited: `with_change_times` updates it without reading the file.

    entry   ctime 8  mtime 8  dev 4  ino 4  mode 4  uid 4  gid 4  size 4  oid 20  flags 2  path NUL…
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from substrate.model import ABSENT, Kind, Node, RelPath, ancestors
from substrate.objects.index.index_format import HEADER, SHA1_BYTES, extensions

_STAT = struct.Struct(">10I")
_HEAD_BYTES, _OID_AT, _FLAGS_AT, _PATH_AT = 12, 40, 60, 62
#: Change and modification time, device, inode, mode, owner, group, size; id; flags.
_ENTRY = struct.Struct(">10I20sH")
_CHANGED = struct.Struct(">2I")
_EXTENDED, _LONGEST = 0x4000, 0xFFF
_SECOND_NS = 1_000_000_000
_MAX_CHANGES = 200
_SHORT_NAME = 0xFF
_ATTRIBUTES = b".gitattributes"
#: How far from the end to search for the cached trees.
_TAIL = 1 << 20
#: Extensions that stay valid; the others only speed git up, and git rebuilds them.
_KEPT = (b"REUC",)
_KNOWN = (b"TREE", b"REUC", b"UNTR", b"FSMN", b"EOIE", b"IEOT")
_MASK = 0xFFFFFFFF


class Change(NamedTuple):
    old: Node
    new: Node
    #: The stat of a file with the new entry's content; None: git must compare.
    stat: os.stat_result | None


class Glance(NamedTuple):
    """What an index says without parsing its entries."""

    #: As `is_plain` defines it: then no entry is hidden.
    plain: bool
    #: Whether any attribute file is tracked.
    attributes: bool
    #: The tree that git cached for the whole index: then every entry is as in that tree, none is
    #: in conflict, none is intent-to-add. Empty if git cached none.
    tree: bytes


def glance(data: bytes) -> Glance:
    # name (none: it is the root) NUL entries SP subtrees LF oid; -1 entries: not valid
    head, _, rest = _cached_trees(data).partition(b"\n")
    valid = head[:1] == b"\0" and head[1:2].isdigit()
    return Glance(is_plain(data), _ATTRIBUTES in data, rest[:20] if valid else b"")


def _cached_trees(data: bytes) -> bytes:
    """The cached tree extension, if it can be found quickly."""
    if data[-52:-44] == b"EOIE\0\0\0\x18":  # has their offset; git writes it at the very end
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
    """The index with these entries replaced, or None if git must do it."""
    if not is_plain(data) or len(changes) > _MAX_CHANGES:
        return None
    from substrate.system.process import Asked

    whole = memoryview(data)
    sound = Asked(lambda: _sha1([whole[:-20]]) == data[-20:])  # in parallel: it takes longer
    parts = _spliced(whole, data, changes)
    if not sound.answer() or parts is None:
        return None
    return b"".join([*parts, _sha1(parts)])


def _spliced(
    whole: memoryview, data: bytes, changes: Mapping[RelPath, Change]
) -> list[bytes | memoryview] | None:
    parts: list[bytes | memoryview] = []
    done = 0
    for path, change in sorted(changes.items()):  # the order of the index
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
    """The offset of the entry of `path`, if it is a plain entry with the expected content.

    The length of its name is stored in two bytes, and the first is zero. No name contains a zero
    byte, so a match cannot be a part of another entry's name.
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
    """Where the entries end, and the extensions after them. Git writes the cached trees first, so
    search for their name; only a chain of known extensions up to the very end is accepted."""
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
    try:
        for name, start, end in extensions(data, at):
            if name not in _KNOWN:
                return None  # including `link` and `sdir`: a split or a sparse index
            parts.append((name, data[start:end]))
    except ValueError:
        return None
    return parts


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
    """Invalidate the cached trees that contain a changed path. Each tree is followed by its
    subtrees: ``name NUL entries SP subtrees LF oid``, without an id if it is not valid."""
    touched = {b"", *(above for path in changes for above in ancestors(path))}
    out = []
    stack: list[list[int]] = []  # for each open directory, how many subtrees follow
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


def with_change_times(data: bytes, files: Mapping[bytes, os.stat_result]) -> bytes | None:
    """The index `data` with the change times of `files`; None if none of them needs it.

    An entry is updated only if all of its other stat data is still right. Reads only an index of
    version 2 or 3 with SHA-1.
    """
    body = len(data) - SHA1_BYTES
    if body < HEADER.size or hashlib.sha1(data[:body]).digest() != data[body:]:
        return None
    signature, version, count = HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3):
        return None
    out, at, is_changed = bytearray(data), HEADER.size, False
    for _ in range(count):
        noted = _ENTRY.unpack_from(data, at)
        name_at = at + _ENTRY.size + (2 if noted[-1] & _EXTENDED else 0)
        length = noted[-1] & _LONGEST
        end = name_at + length if length < _LONGEST else data.index(b"\0", name_at)
        found = files.get(data[name_at:end])
        if found is not None and _is_of(found, noted):
            changed = divmod(found.st_ctime_ns, _SECOND_NS)
            _CHANGED.pack_into(out, at, changed[0] & _MASK, changed[1])
            is_changed = is_changed or out[at : at + 8] != data[at : at + 8]
        at += (end - at + 8) & ~7
    if not is_changed:
        return None
    out[body:] = hashlib.sha1(out[:body]).digest()
    return bytes(out)


def _is_of(found: os.stat_result, noted: tuple[object, ...]) -> bool:
    """Whether this is the recorded file, apart from its change time and device."""
    seconds, rest = divmod(found.st_mtime_ns, _SECOND_NS)
    stands = (seconds & _MASK, rest, found.st_ino & _MASK, found.st_uid, found.st_gid)
    _, _, *modified, _, inode, _, owner, group, size = noted[:10]
    return (*modified, inode, owner, group, size) == (*stands, found.st_size & _MASK)
