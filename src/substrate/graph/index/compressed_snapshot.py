"""Older snapshots, kept as their difference to another one.

When a commit is indexed from a neighbour's snapshot, only a few sections differ. The older one is
then worth no more than those sections: they go into `folded/<commit>`, compressed, and its files
are removed once newer ones fill their place. Asking for it splices it together again.

    snapshots/c   plain
    folded/b      { base: c, sections that differ }
    folded/a      { base: b, sections that differ }     a = c + b's sections + a's sections

Only a snapshot without a fold of its own is folded, and only against another such one: so the
chain of bases always ends in a plain snapshot and never runs in a circle.
"""

from __future__ import annotations

from pathlib import Path

import zstandard
from msgspec import Struct, msgpack

from substrate.graph.layout import FILES, MARKER, VERSION, Layout, read_marker, write_marker
from substrate.graph.section import Section
from substrate.graph.sections import Sections, read_section, splice
from substrate.system.files import read_bytes_or_none, remove_tree, write_atomic

#: Snapshots that stay plain: the newest, and those asked for last.
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
        fold = msgpack.decode(zstandard.ZstdDecompressor().decompress(raw), type=Fold)
    except (ValueError, zstandard.ZstdError):
        return None  # damaged: the snapshot is indexed anew
    return fold if fold.version == VERSION else None


def write_fold(
    layout: Layout, commit: bytes, base: bytes, edits: list[tuple[bytes, Section | None]],
    counts: dict[str, int],
) -> None:  # fmt: skip
    raw = msgpack.encode(Fold(VERSION, base, counts, edits))
    packed = zstandard.ZstdCompressor(level=9).compress(raw)
    write_atomic(layout.fold(commit), packed, durable=False)


def unfold(layout: Layout, commit: bytes, scratch: Path) -> bool:
    """Write the files of a folded snapshot into `scratch`; False if there is no way to."""
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
    splice(base, Sections.load(base), edits, scratch, share=layout.shares)
    write_marker(scratch, counts or {})
    return True


def differing(
    old_dir: Path, old: Sections, new_dir: Path, new: Sections
) -> list[tuple[bytes, Section | None]]:
    """What turns `new` back into `old`."""
    files_old = [(old_dir / name).read_bytes() for name in FILES]
    files_new = [(new_dir / name).read_bytes() for name in FILES]
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
    """Remove the files of snapshots that are folded and were not asked for lately."""
    plain = plain_snapshots(layout)
    anchors = [commit for commit in plain if read_fold(layout, commit) is None]
    for commit in [one for one in plain if one != newest][KEEP_PLAIN - 1 :]:
        if commit in anchors:
            others = [one for one in anchors if one != commit]
            if not others:
                continue  # what is folded stands on this one
            _fold_against(layout, commit, others[0])
            anchors.remove(commit)
        remove_tree(layout.snapshot(commit))


def plain_snapshots(layout: Layout) -> list[bytes]:
    """Commits whose files are there and whole, the one used last first."""
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
