"""Older snapshots, stored as their difference to another snapshot (a fold).

When a commit is indexed from a neighbour's snapshot, only a few sections differ. It is enough to
keep those sections of the older snapshot: they go into `folded/<commit>`, compressed, and its
files are removed once there are enough newer snapshots. Opening it splices it together again.

    snapshots/c   plain
    folded/b      { base: c, sections that differ }
    folded/a      { base: b, sections that differ }     a = c + b's sections + a's sections

Only a snapshot that has no fold yet is folded, and only against another such snapshot: so the
chain of bases always ends in a plain snapshot and never forms a cycle.
"""

from __future__ import annotations

import os
from pathlib import Path

import zstandard
from msgspec import Struct, msgpack

from substrate.errors import DamagedStoreError
from substrate.graph.checked_read import read_whole
from substrate.graph.index.graph_paths import (
    FILES,
    FOLDED,
    MARKER,
    VERSION,
    Layout,
    read_marker,
    write_marker,
)
from substrate.graph.index.path_section import Section
from substrate.graph.index.splice import Sections, read_section, splice
from substrate.system.files import read_bytes_or_none, remove_tree, write_atomic

_NOTE = """\
This snapshot is not empty: it is kept compressed in ../../folded/{commit}.
`ctx index --commit {commit}` writes its files here again.
"""
#: How many snapshots stay plain: the newest, and the last used.
KEEP_PLAIN = 3


class Fold(Struct, array_like=True):
    version: int
    base: bytes
    counts: dict[str, int]
    #: Path -> its section here; None: the base has it and this one does not.
    edits: list[tuple[bytes, Section | None]]


def read_fold(layout: Layout, commit: bytes) -> Fold | None:
    raw = read_bytes_or_none(layout.fold(commit))
    if raw is None:
        return None
    try:
        fold = msgpack.decode(_unpacked(raw), type=Fold)
    except (ValueError, zstandard.ZstdError):
        return None  # damaged: the snapshot is indexed again
    return fold if fold.version == VERSION else None


def _unpacked(raw: bytes) -> bytes:
    """As a stream: a damaged header may claim any size, and nothing is allocated for it ahead."""
    stream = zstandard.ZstdDecompressor().decompressobj()
    data = stream.decompress(raw)
    if not stream.eof or stream.unused_data:
        raise zstandard.ZstdError("the frame is not complete")
    return data


def is_damaged(path: Path) -> bool:
    raw = read_bytes_or_none(path)
    try:
        if raw is not None:
            msgpack.decode(_unpacked(raw))
    except (ValueError, zstandard.ZstdError):
        return True
    return False


def write_fold(
    layout: Layout, commit: bytes, base: bytes, edits: list[tuple[bytes, Section | None]],
    counts: dict[str, int],
) -> None:  # fmt: skip
    raw = msgpack.encode(Fold(VERSION, base, counts, edits))
    packed = zstandard.ZstdCompressor(level=9, write_checksum=True).compress(raw)
    write_atomic(layout.fold(commit), packed, durable=False)


def unfold(layout: Layout, commit: bytes, scratch: Path) -> bool:
    """Write the files of a folded snapshot into `scratch`; False if that is not possible."""
    edits: dict[bytes, Section | None] = {}
    counts: dict[str, int] | None = None
    at = commit
    seen = set()
    while read_marker(layout.snapshot(at)) is None or at == commit:
        fold = read_fold(layout, at) if at not in seen else None
        if fold is None:
            return False
        seen.add(at)
        counts = counts if counts is not None else fold.counts
        for path, section in fold.edits:
            edits.setdefault(path, section)
        at = fold.base
    base = layout.snapshot(at)
    try:
        splice(base, Sections.load(base), edits, scratch, share=layout.shares)
    except DamagedStoreError:
        for file in scratch.iterdir():
            file.unlink()
        return False
    write_marker(scratch, counts or {})
    return True


def differing(
    old_dir: Path, old: Sections, new_dir: Path, new: Sections
) -> list[tuple[bytes, Section | None]]:
    """The edits that turn `new` back into `old`."""
    files_old = [read_whole(old_dir, old, file) for file in range(len(FILES))]
    files_new = [read_whole(new_dir, new, file) for file in range(len(FILES))]
    edits: list[tuple[bytes, Section | None]] = []
    for row, path in enumerate(old.paths):
        other = new.find(path)
        if other < 0 or not _same(files_old, old, row, files_new, new, other):
            edits.append((path, read_section(old_dir, old, row)))
    edits += [(path, None) for path in new.paths if old.find(path) < 0]
    return edits


def _same(
    files_a: list[bytes], a: Sections, row: int, files_b: list[bytes], b: Sections, other: int
) -> bool:
    if a.oids[row] != b.oids[other]:
        return False
    for file in range(5):
        start_a, end_a = a.byte_range(row, file)
        start_b, end_b = b.byte_range(other, file)
        if files_a[file][start_a:end_a] != files_b[file][start_b:end_b]:
            return False
    return True


def make_room(layout: Layout, newest: bytes) -> None:
    """Remove the files of snapshots that are folded and not recently used."""
    plain = plain_snapshots(layout)
    anchors = [commit for commit in plain if read_fold(layout, commit) is None]
    for commit in [one for one in plain if one != newest][KEEP_PLAIN - 1 :]:
        if commit in anchors:
            others = [one for one in anchors if one != commit]
            if not others:
                continue  # the folds are based on this one
            try:
                _fold_against(layout, commit, others[0])
            except DamagedStoreError:
                continue  # `ctx fsck` and the next query report it
            anchors.remove(commit)
        _leave_note(layout, commit)


def _leave_note(layout: Layout, commit: bytes) -> None:
    """Replace the files by a note, so that other readers do not take them for empty."""
    scratch = layout.snapshots / f".tmp-{commit.hex()}"
    scratch.mkdir(mode=0o700, exist_ok=True)
    (scratch / FOLDED).write_text(_NOTE.format(commit=commit.hex()))
    remove_tree(layout.snapshot(commit))
    os.rename(scratch, layout.snapshot(commit))


def plain_snapshots(layout: Layout) -> list[bytes]:
    """Commits whose snapshot files are complete, the last used first."""
    found = []
    for directory in layout.snapshots.iterdir():
        try:
            commit = bytes.fromhex(directory.name)
            used = (directory / MARKER).stat().st_mtime_ns
        except (ValueError, OSError):
            continue
        if read_marker(directory) is not None:
            found.append((used, commit))
    return [commit for _, commit in sorted(found, reverse=True)]


def _fold_against(layout: Layout, commit: bytes, base: bytes) -> None:
    old_dir, new_dir = layout.snapshot(commit), layout.snapshot(base)
    marker = read_marker(old_dir)
    edits = differing(old_dir, Sections.load(old_dir), new_dir, Sections.load(new_dir))
    write_fold(layout, commit, base, edits, marker.counts if marker else {})
