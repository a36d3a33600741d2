"""Read spans from the trace, oldest first, skipping every line that is not a span."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from substrate.system import clock
from substrate.trace.writer import KEPT_FILES


class TraceReader:
    """Reads the trace and its rotated files. `skipped` counts unreadable lines."""

    def __init__(self, path: Path, *, kept_files: int = KEPT_FILES) -> None:
        self.path = path
        self.skipped = 0
        self._kept_files = kept_files

    def spans(
        self, *, session: str | None = None, since_ns: int | None = None
    ) -> Iterator[dict[str, object]]:
        """Every span, oldest first; optionally of one session, or not older than `since_ns`."""
        # All times have the same format, so comparing their texts compares the times.
        since = "" if since_ns is None else clock.iso(since_ns)
        for line in self._lines():
            span = parse_line(line)
            if span is None:
                self.skipped += 1
            elif (session is None or span.get("session_id") == session) and (
                not since or str(span.get("ts", "")) >= since
            ):
                yield span

    def find(self, span_id: str) -> list[dict[str, object]]:
        """The lines of one span: its start and, if it was completed, its completion."""
        return [span for span in self.spans() if span.get("span_id") == span_id]

    def _lines(self) -> Iterator[bytes]:
        with contextlib.ExitStack() as stack:
            for file in reversed(self._open_all(stack)):
                for line in file:
                    if line.strip():
                        yield line

    def _open_all(self, stack: contextlib.ExitStack) -> list[BinaryIO]:
        """All files, opened newest first: a concurrent rotation repeats one, but hides none."""
        files: list[BinaryIO] = []
        seen = set()
        for number in range(self._kept_files + 1):
            name = f"{self.path.name}.{number}" if number else self.path.name
            try:
                file = stack.enter_context(self.path.with_name(name).open("rb"))
            except OSError:
                continue
            found = os.fstat(file.fileno())
            if (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                files.append(file)
        return files


def parse_line(line: bytes) -> dict[str, object] | None:
    """Parse one line of the file; None if it is not a span."""
    import json

    try:
        span = json.loads(line)
    except (ValueError, RecursionError):  # torn, not UTF-8, or nested beyond reason
        return None
    return span if isinstance(span, dict) else None
