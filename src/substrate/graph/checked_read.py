"""Read a snapshot's files, and compare each path's lines with their checksum."""

from __future__ import annotations

import zlib
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from substrate.errors import DamagedStoreError
from substrate.graph.index import FILES

if TYPE_CHECKING:
    from substrate.graph.index import Sections


def read_range(directory: Path, table: Sections, row: int, file: int) -> bytes:
    """One path's lines of one of the five files; `DamagedStoreError` if the checksum differs."""
    start, end = table.byte_range(row, file)
    with open(directory / FILES[file], "rb") as opened:
        opened.seek(start)
        data = opened.read(end - start)
    if zlib.crc32(data) != table.sums[5 * row + file]:
        raise damaged(directory / FILES[file])
    return data


def read_whole(directory: Path, table: Sections, file: int) -> bytes:
    """One of the five files, with each path's lines compared with their checksum."""
    data = (directory / FILES[file]).read_bytes()
    view, offsets = memoryview(data), table.offsets(file)
    sums = [zlib.crc32(view[a:b]) for a, b in pairwise(offsets)]
    if len(data) != offsets[-1] or sums != table.sums[file::5].tolist():
        raise damaged(directory / FILES[file])
    return data


def damaged(path: Path) -> DamagedStoreError:
    graph = path.parent.parent.parent
    return DamagedStoreError(
        f"the code graph is damaged: {path}",
        hint=f"remove {graph} and run `ctx index`: it is built again from the code",
    )
