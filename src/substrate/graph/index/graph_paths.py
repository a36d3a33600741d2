"""The files of the graph, and when a snapshot is valid. Standard library only.

.ctx/graph/
  manifests/commits.jsonl, paths.jsonl      append-only
  snapshots/<commit>/*.jsonl                five files: see docs/graph.md
                    /complete               written last: sizes, counts, a checksum
                    /FOLDED                 instead of all these: see folded/
  folded/<commit>                           an older snapshot, as a difference to another
  cache/                                    facts by blob id; can be removed at any time
  lock
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import NamedTuple

from substrate.system.files import read_bytes_or_none

#: A snapshot made by another version of the extractor is made again.
VERSION = 6

#: The files of a snapshot, in the order of sections and sizes.
FILES = (
    "files.jsonl",
    "symbols.jsonl",
    "regions.jsonl",
    "edges.imports.jsonl",
    "edges.calls.jsonl",
)
MARKER = "complete"
#: Replaces the five files of a snapshot that is stored as a fold.
FOLDED = "FOLDED"
#: Byte ranges of each path in the five files, and hashes of names: see `splice`.
SECTIONS = "sections"


class Marker(NamedTuple):
    """The contents of the completion marker."""

    version: int
    sizes: tuple[int, ...]
    counts: dict[str, int]


class Layout(NamedTuple):
    """The graph's directory, and names below it."""

    graph: Path
    #: Whether a file identical to that of another snapshot is a hard link to it. Not in a world:
    #: there linking would copy the old file, and the link would arrive as a separate file.
    shares: bool = True

    @property
    def commits(self) -> Path:
        return self.graph / "manifests" / "commits.jsonl"

    @property
    def paths(self) -> Path:
        return self.graph / "manifests" / "paths.jsonl"

    @property
    def snapshots(self) -> Path:
        return self.graph / "snapshots"

    def snapshot(self, commit: bytes) -> Path:
        return self.snapshots / commit.hex()

    @property
    def folded(self) -> Path:
        return self.graph / "folded"

    def fold(self, commit: bytes) -> Path:
        return self.folded / commit.hex()

    @property
    def cache(self) -> Path:
        return self.graph / "cache"

    @property
    def lock(self) -> Path:
        return self.graph / "lock"

    def make(self) -> None:
        for directory in (self.graph / "manifests", self.snapshots, self.folded, self.cache):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def read_marker(directory: Path) -> Marker | None:
    """The marker of a complete snapshot; None for an incomplete one.

    The marker has the size of each file. This detects a file that a power cut truncated, so the
    writer of a snapshot does not have to sync.
    """
    raw = read_bytes_or_none(directory / MARKER)
    if raw is None:
        return None
    try:
        fields = json.loads(raw)
        marker = Marker(int(fields["version"]), tuple(fields["sizes"]), dict(fields["counts"]))
        sizes = tuple(os.stat(directory / name).st_size for name in (*FILES, SECTIONS))
        is_whole = marker.version == VERSION and marker.sizes == sizes
        return marker if is_whole and _marker_bytes(marker) == raw else None
    except (ValueError, KeyError, TypeError, OSError):
        return None


def is_other_version(directory: Path) -> bool:
    """Whether another version of the extractor made it: such a snapshot is made again."""
    raw = read_bytes_or_none(directory / MARKER) or b""
    try:
        fields = json.loads(raw)
        marker = Marker(int(fields["version"]), tuple(fields["sizes"]), dict(fields["counts"]))
        # Versions up to 5 had no checksum.
        return marker.version != VERSION and fields.get("crc32") in (None, _sum(marker))
    except (ValueError, KeyError, TypeError):
        return False


def write_marker(directory: Path, counts: dict[str, int]) -> None:
    sizes = tuple(os.stat(directory / name).st_size for name in (*FILES, SECTIONS))
    (directory / MARKER).write_bytes(_marker_bytes(Marker(VERSION, sizes, counts)))


def _marker_bytes(marker: Marker) -> bytes:
    """The marker with a checksum of its fields, to detect a flipped bit in a count."""
    return json.dumps({**_fields(marker), "crc32": _sum(marker)}).encode() + b"\n"


def _sum(marker: Marker) -> int:
    return zlib.crc32(json.dumps(_fields(marker)).encode())


def _fields(marker: Marker) -> dict[str, object]:
    return {"version": marker.version, "sizes": list(marker.sizes), "counts": marker.counts}
