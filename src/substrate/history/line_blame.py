"""Who wrote each line: the command, session and agent behind it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from substrate.errors import NotFoundError, UsageError
from substrate.history.ledger import Entry
from substrate.history.store import HistoryStore
from substrate.model.nodes import Kind
from substrate.model.paths import RelPath, display
from substrate.objects import snapshot as snapshots

_HEAD = re.compile(rb"[0-9a-f]{40} \d+ \d+")


class BlamedLine(NamedTuple):
    number: int
    text: bytes
    #: None: the line is not recorded in any entry that is still kept.
    entry: Entry | None


def blame(store: HistoryStore, path: RelPath, lines: tuple[int, int] | None) -> list[BlamedLine]:
    """Lines of the file as history last knew it; the caller has recorded outside edits."""
    tip = store.tip_commit
    assert tip is not None
    node = snapshots.lookup(store.objects, store.snapshot_of(tip), path)
    if node.kind in (Kind.DIRECTORY, Kind.SYMLINK):
        raise NotFoundError(
            f"{display(path) or '.'} is a {node.kind.value}: only a file has lines",
            hint="name a file; `substrate log --path P` tells who changed a directory or link",
        )
    if node.kind is not Kind.FILE:
        raise NotFoundError(
            f"no file {display(path)} in history",
            hint="`substrate status` says what is excluded, and why",
        )
    data = store.objects.read_blob(node.oid)
    count = len(data.split(b"\n")) - data.endswith(b"\n")
    if lines and not 1 <= lines[0] <= lines[1] <= max(count, 1):
        raise UsageError(
            f"-L {lines[0]},{lines[1]} is no range here: the file has {count} lines",
            hint=f"-L A,B with A from 1, B from A up to {count}; or leave -L out",
        )
    if not data:
        return []
    entries: dict[bytes, Entry | None] = {}
    out = []
    for commit, number, text in _parse(store.git.blame_porcelain(tip, path, lines)):
        if commit not in entries:
            entries[commit] = store.ledger.by_commit(commit)
        out.append(BlamedLine(number, text, entries[commit]))
    return out


def _parse(porcelain: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """``<commit> <old line> <new line> …``, headers, then the line itself behind a tab."""
    commit, number = b"", 0
    for line in porcelain.split(b"\n"):
        if line.startswith(b"\t"):
            yield commit, number, line[1:]
        elif _HEAD.match(line):
            fields = line.split(b" ")
            commit, number = bytes.fromhex(fields[0].decode()), int(fields[2])
