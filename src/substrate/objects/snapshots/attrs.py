"""What git cannot store about a directory: one small record beside its tree.

The attrs tree is parallel to the main tree, for the directories that need a record:

    attrs         the record: exact modes, xattrs, special files
    =NAME         the attrs tree of subdirectory NAME; without a counterpart in the main tree
                  it is what keeps an otherwise empty directory
    !NAME         an entry whose name git forbids, with the mode and id it would have had
    #NAME ?NAME   the same two where even the prefix leaves the name forbidden (``a\\.git``):
                  backslash and percent sign are written ``%5C`` and ``%25``

A record depends only on the directory's current content, so that equal states have equal ids.
"""

from __future__ import annotations

import binascii
import json
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from substrate.errors import DamagedStoreError
from substrate.model import Kind
from substrate.objects.snapshots.trees import (
    MODE_DIR,
    MODE_EXEC,
    MODE_FILE,
    MODE_LINK,
    Entry,
    Tree,
    is_forbidden_name,
)

RECORD_NAME = b"attrs"
DIR_MODE = 0o755
FILE_MODE = 0o644
EXEC_MODE = 0o755

Xattrs = tuple[tuple[bytes, bytes], ...]


class EntryAttrs(NamedTuple):
    """What the record says about one entry; `mode` None means the directory's default."""

    mode: int | None = None
    xattrs: Xattrs = ()
    #: Set only for special files, which have no entry in any tree.
    kind: Kind | None = None


class Record(NamedTuple):
    dir_mode: int = DIR_MODE
    dir_xattrs: Xattrs = ()
    file_mode: int = FILE_MODE
    exec_mode: int = EXEC_MODE
    entries: Mapping[bytes, EntryAttrs] = {}

    def mode_of(self, name: bytes, git_mode: int) -> int:
        """The exact mode of a file whose git mode is 100644 or 100755."""
        entry = self.entries.get(name)
        if entry is not None and entry.mode is not None:
            return entry.mode
        return self.exec_mode if git_mode == MODE_EXEC else self.file_mode


PLAIN = Record()


def git_mode_of(mode: int) -> int:
    return MODE_EXEC if mode & 0o100 else MODE_FILE


def commonest(modes: Counter[int], implicit: int) -> int:
    """The default mode for a directory's record: the commonest, the smallest among equals."""
    if not modes:
        return implicit
    return min(modes, key=lambda mode: (-modes[mode], mode))


def serialize_record(record: Record) -> bytes:
    """Canonical JSON, without default values."""
    document: dict[str, object] = {"v": 1}
    directory = _described(
        record.dir_mode if record.dir_mode != DIR_MODE else None, record.dir_xattrs, None
    )
    if directory:
        document["dir"] = directory
    if record.file_mode != FILE_MODE:
        document["file"] = f"{record.file_mode:04o}"
    if record.exec_mode != EXEC_MODE:
        document["exec"] = f"{record.exec_mode:04o}"
    if record.entries:
        document["entries"] = {_text(name): _described(*e) for name, e in record.entries.items()}
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _described(mode: int | None, xattrs: Xattrs, kind: Kind | None) -> dict[str, object]:
    out: dict[str, object] = {}
    if mode is not None:
        out["mode"] = f"{mode:04o}"
    if xattrs:
        out["xattrs"] = {_text(key): _base64(value) for key, value in xattrs}
    if kind is not None:
        out["kind"] = kind.value
    return out


@lru_cache(maxsize=1024)  # under one umask most directories share one record
def parse_record(data: bytes) -> Record:
    """Parse a record; `DamagedStoreError` for an unknown format."""
    try:
        document = json.loads(data)
        version = document["v"]
        if version != 1:
            raise DamagedStoreError(
                f"an attrs record has version {version}, this Substrate knows 1",
                hint="this history was written by a newer Substrate: update",
            )
        directory = _entry_attrs(document.get("dir", {}))
        return Record(
            DIR_MODE if directory.mode is None else directory.mode,
            directory.xattrs,
            int(document.get("file", "0644"), 8),
            int(document.get("exec", "0755"), 8),
            {_name(key): _entry_attrs(value) for key, value in document.get("entries", {}).items()},
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedStoreError(
            "an attrs record is malformed", hint="run `substrate fsck`"
        ) from error


def _entry_attrs(value: dict[str, object]) -> EntryAttrs:
    mode, kind, xattrs = value.get("mode"), value.get("kind"), value.get("xattrs") or {}
    if not isinstance(xattrs, dict):
        raise ValueError("xattrs must be a mapping")
    return EntryAttrs(
        None if mode is None else int(str(mode), 8) & 0o7777,
        tuple(sorted((_name(key), _from_base64(text)) for key, text in xattrs.items())),
        None if kind is None else Kind(kind),
    )


def _base64(value: bytes) -> str:
    return binascii.b2a_base64(value, newline=False).decode()


def _from_base64(text: str) -> bytes:
    return binascii.a2b_base64(text, strict_mode=True)


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _name(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


class AttrsTree(NamedTuple):
    """A parsed attrs tree, with the names of the workspace."""

    record_oid: bytes
    subdirs: Mapping[bytes, bytes]
    forbidden: Mapping[bytes, Entry]


NO_ATTRS = AttrsTree(b"", {}, {})


def split_attrs_tree(tree: Tree) -> AttrsTree:
    record_oid, subdirs, forbidden = b"", {}, {}
    for name, entry in tree.items():
        mark, rest = name[:1], name[1:]
        if mark in (b"#", b"?"):
            rest = rest.replace(b"%5C", b"\\").replace(b"%25", b"%")
        if mark in (b"=", b"#") and entry[0] == MODE_DIR:
            subdirs[rest] = entry[1]
        elif mark in (b"!", b"?") and entry[0] in (MODE_DIR, MODE_FILE, MODE_EXEC, MODE_LINK):
            forbidden[rest] = entry
        elif name == RECORD_NAME:
            record_oid = entry[1]
        else:
            raise DamagedStoreError("an attrs tree is malformed", hint="run `substrate fsck`")
    return AttrsTree(record_oid, subdirs, forbidden)


def join_attrs_tree(attrs: AttrsTree) -> dict[bytes, Entry]:
    tree: dict[bytes, Entry] = {}
    if attrs.record_oid:
        tree[RECORD_NAME] = (MODE_FILE, attrs.record_oid)
    for name, oid in attrs.subdirs.items():
        tree[_marked(b"=", b"#", name)] = (MODE_DIR, oid)
    for name, entry in attrs.forbidden.items():
        tree[_marked(b"!", b"?", name)] = entry
    return tree


def _marked(mark: bytes, escaped_mark: bytes, name: bytes) -> bytes:
    if b"\\" in name and is_forbidden_name(mark + name):
        return escaped_mark + name.replace(b"%", b"%25").replace(b"\\", b"%5C")
    return mark + name
