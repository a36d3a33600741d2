"""Who wrote each line: the command, session and agent behind it."""

from __future__ import annotations

from typing import NamedTuple

from substrate.errors import DamagedStoreError, NotFoundError, UsageError
from substrate.history.query import line_authors, line_hunks
from substrate.history.query.line_authors import Author, BrokenIndexError, LineHistory, Origin
from substrate.history.store import Entry, HistoryStore
from substrate.model import Kind, RelPath, display
from substrate.objects.snapshots import snapshot as snapshots
from substrate.system.process import uncollected


class BlamedLine(NamedTuple):
    number: int
    text: bytes
    #: None: no entry that is still kept has recorded the line.
    entry: Entry | None
    #: A squash may contain lines of several authors.
    author: Author | None = None


def blame(store: HistoryStore, path: RelPath, lines: tuple[int, int] | None) -> list[BlamedLine]:
    """Lines of the file as history last knew it; the caller has recorded outside edits."""
    tip = store.tip_commit
    assert tip is not None
    node = snapshots.lookup(store.objects, store.snapshot_of(tip), path)
    if node.kind in (Kind.DIRECTORY, Kind.SYMLINK):
        raise NotFoundError(
            f"{display(path) or '.'} is a {node.kind.value}: only a file has lines",
            hint="name a file; `substrate log --path P` lists what changed a directory or link",
        )
    if node.kind is not Kind.FILE:
        raise NotFoundError(
            f"no file {display(path)} in history",
            hint="`substrate status` says what is excluded, and why",
        )
    data = store.objects.read_blob(node.oid)
    count = line_hunks.count_lines(data)
    if lines and not 1 <= lines[0] <= lines[1] <= max(count, 1):
        raise UsageError(
            f"-L {lines[0]},{lines[1]} is no range here: the file has {count} lines",
            hint=f"-L A,B with A from 1, B from A up to {count}; or leave -L out",
        )
    if not data:
        return []
    texts = [line.removesuffix(b"\n") for line in line_hunks.split_lines(data)]
    with store.ledger.reading(), uncollected():  # a few values without cycles for each line
        found = _origins(store, path, len(texts))
        return _part(store, texts, found, lines)


def _origins(store: HistoryStore, path: RelPath, count: int) -> list[Origin]:
    """Use the index of touched paths; if it is damaged, compute the origins without it."""
    for fresh in (False, True):
        try:
            found = LineHistory(store, fresh=fresh).origins(path, store.ledger.last_pos())
        except BrokenIndexError:
            continue
        if found is not None and len(found) == count:
            return found
    raise DamagedStoreError(
        f"the recorded versions of {display(path)} do not fit its content",
        hint="run `substrate fsck` to see the damage",
    )


def _part(
    store: HistoryStore, texts: list[bytes], found: list[Origin], lines: tuple[int, int] | None
) -> list[BlamedLine]:
    first, last = lines or (1, len(texts))
    wanted = found[first - 1 : last]
    entries = store.ledger.live_at({origin.pos for origin in wanted}, brief=True)
    return [
        _blamed(number, texts[number - 1], origin, entries.get(origin.pos))
        for number, origin in enumerate(wanted, start=first)
    ]


def _blamed(number: int, text: bytes, origin: Origin, entry: Entry | None) -> BlamedLine:
    author = origin.author or (line_authors.author_of(entry) if entry else None)
    return BlamedLine(number, text, entry, author)
