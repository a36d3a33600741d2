"""Check that the graph on disk is undamaged: every snapshot, every fold."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from substrate.errors import DamagedStoreError
from substrate.graph.checked_read import read_whole
from substrate.graph.index import (
    FILES,
    MARKER,
    SECTIONS,
    Layout,
    Sections,
    compressed_snapshot,
    is_other_version,
    read_marker,
)

_ANEW = "`ctx index` makes it again"


def damage(layout: Layout) -> Iterator[tuple[Path, str]]:
    """Each damaged file, with what to do. Changes nothing."""
    for directory in _below(layout.snapshots):
        if not (directory / MARKER).exists():
            continue  # a note that it is folded, or the leftover of a kill
        if read_marker(directory) is None:
            if not is_other_version(directory):
                yield directory / MARKER, f"its files are not as it says; {_ANEW}"
            continue
        try:
            table = Sections.load(directory)
        except DamagedStoreError as error:
            yield directory / SECTIONS, error.hint
            continue
        for file, name in enumerate(FILES):
            try:
                read_whole(directory, table, file)
            except DamagedStoreError as error:
                yield directory / name, error.hint
    for path in _below(layout.folded):
        if compressed_snapshot.is_damaged(path):
            yield path, f"a compressed snapshot; {_ANEW} when it is asked for"


def _below(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.is_dir() else []
