"""The trace as it grows, across rotations: every line once, in the order of the files.

A rotation renames the trace file while no writer holds its lock, and a writer that then gets the
lock of the renamed file reopens the current one. So a rotated file that was read to its end is
complete. Only without locks may a writer still append to a rotated file, so each round reads the
previous file once more:

    round 1   trace.jsonl (A)
              … A becomes trace.jsonl.1, B is made …
    round 2   the rest of A, then B
    round 3   A once more, B
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from substrate.trace.reader import parse_line
from substrate.trace.writer import KEPT_FILES

_CHUNK_BYTES = 1 << 16
_Identity = tuple[int, int]


class TraceFollower:
    """Call `new_spans` repeatedly; the first call returns every span in the kept files.

    `skipped` counts lines that could not be read. A follower keeps files open: use it in a `with`.
    """

    def __init__(self, path: Path, *, kept_files: int = KEPT_FILES) -> None:
        self.path = path
        self.skipped = 0
        self._kept_files = kept_files
        self._left: _File | None = None
        self._current: _File | None = None

    def __enter__(self) -> TraceFollower:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._left, self._current):
            if file is not None:
                file.close()

    def new_spans(self) -> Iterator[dict[str, object]]:
        """The spans added since the last call, oldest first."""
        for line in self._new_lines():
            if not line.strip():
                continue
            span = parse_line(line)
            if span is None:
                self.skipped += 1
            else:
                yield span

    def _new_lines(self) -> Iterator[bytes]:
        while True:
            if self._left is not None:
                yield from self._left.new_lines()
            following = self._following()
            if self._current is not None:
                # After `following`: the file now holds every line from before its rotation.
                yield from self._current.new_lines()
            if following is None:
                return
            if self._left is not None:
                self._left.close()
            self._left, self._current = self._current, following

    def _following(self) -> _File | None:
        """The file after the current one; None if the current one is still the newest."""
        files = self._all_files()
        mine = None if self._current is None else self._current.identity
        known = [file.identity for file in files]
        after = known.index(mine) + 1 if mine in known else 0
        for file in files[:after] + files[after + 1 :]:
            file.close()
        return files[after] if after < len(files) else None

    def _all_files(self) -> list[_File]:
        """All files, oldest first; opened newest first, so a concurrent rotation hides none."""
        files: list[_File] = []
        for number in range(self._kept_files + 1):
            name = f"{self.path.name}.{number}" if number else self.path.name
            try:
                file = _File(self.path.with_name(name).open("rb", buffering=0))
            except OSError:
                continue
            if file.identity in [other.identity for other in files]:
                file.close()
            else:
                files.append(file)
        files.reverse()
        return files


class _File:
    """One file of the trace, read as far as its last whole line."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._rest = b""
        found = os.fstat(file.fileno())
        self.identity: _Identity = (found.st_dev, found.st_ino)

    def new_lines(self) -> Iterator[bytes]:
        if self._file.tell() > os.fstat(self._file.fileno()).st_size:
            # A failed write was truncated away, including a part that we had read.
            self._file.seek(0, os.SEEK_END)
            self._rest = b""
        while chunk := self._file.read(_CHUNK_BYTES):
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            yield from lines

    def close(self) -> None:
        self._file.close()
