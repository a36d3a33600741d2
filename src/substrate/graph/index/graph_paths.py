"""Where the graph lies, and when a snapshot may be believed. Standard library only.

.ctx/graph/
  manifests/commits.jsonl, paths.jsonl      append-only
  snapshots/<commit>/*.jsonl                the seed's five files
                    /complete               written last: sizes and counts
  folded/<commit>                           an older snapshot, as its difference to another
  cache/                                    facts by blob id; can be removed at any time
  lock
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from substrate.system.files import read_bytes_or_none

#: A snapshot made by another version of the extractor is made anew.
VERSION = 4

#: The seed's files, in the order in which sections and sizes are kept.
FILES = (
    "files.jsonl",
    "symbols.jsonl",
    "regions.jsonl",
    "edges.imports.jsonl",
    "edges.calls.jsonl",
)
MARKER = "complete"
#: Byte ranges of each path in the five files, and hashes of names: see `sections`.
SECTIONS = "sections"


class Marker(NamedTuple):
    """What the completion marker says."""

    version: int
    sizes: tuple[int, ...]
    counts: dict[str, int]


class Layout(NamedTuple):
    """The graph's directory, and names below it."""

    graph: Path
    #: A file that is as in another snapshot is a link to it. In a world it would arrive as a file
    #: of its own, and the old one be copied for it.
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
    """The marker of a snapshot that is whole; None for anything less.

    It names the size of each file. A file system that lost the end of one in a power cut is
    found out here, without waiting for the disk when the snapshot is written.
    """
    raw = read_bytes_or_none(directory / MARKER)
    if raw is None:
        return None
    try:
        fields = json.loads(raw)
        marker = Marker(int(fields["version"]), tuple(fields["sizes"]), dict(fields["counts"]))
        sizes = tuple(os.stat(directory / name).st_size for name in (*FILES, SECTIONS))
    except (ValueError, KeyError, TypeError, OSError):
        return None
    return marker if marker.version == VERSION and marker.sizes == sizes else None


def write_marker(directory: Path, counts: dict[str, int]) -> None:
    sizes = [os.stat(directory / name).st_size for name in (*FILES, SECTIONS)]
    fields = {"version": VERSION, "sizes": sizes, "counts": counts}
    (directory / MARKER).write_bytes(json.dumps(fields).encode() + b"\n")
