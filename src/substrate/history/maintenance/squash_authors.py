"""The authors of the lines in a squash: computed before its entries go, kept as records.

Only what the squash itself does not imply is recorded: paths of another author than its main one,
and the lines of files that more than one entry touched, or that were renamed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from substrate.history.query import (
    Author,
    BrokenIndexError,
    LineHistory,
    Record,
    Touch,
    line_authors,
    line_hunks,
    touched_paths,
)
from substrate.history.store import Entry, HistoryStore
from substrate.model import Kind, RelPath
from substrate.objects.snapshots import Snapshot
from substrate.objects.snapshots import snapshot as snapshots


class Authors(NamedTuple):
    main: Author
    #: Path and record, as the table `line_authors` has them.
    rows: list[tuple[RelPath, str]]


class _Path:
    """What the members of a squash did to one path."""

    def __init__(self) -> None:
        self.authors: set[Author] = set()
        self.touches = 0
        #: Whether the lines must be followed one by one.
        self.is_mixed = False


def authors_of(
    store: HistoryStore, members: Sequence[Entry], before: Snapshot | None, after: Snapshot
) -> Authors:
    """`members`: adjacent committed entries, oldest first, still on the line."""
    try:
        return _Finder(store, members, before, after, fresh=False).find()
    except BrokenIndexError:
        return _Finder(store, members, before, after, fresh=True).find()


class _Finder:
    def __init__(
        self,
        store: HistoryStore,
        members: Sequence[Entry],
        before: Snapshot | None,
        after: Snapshot,
        *,
        fresh: bool,
    ) -> None:
        self._store, self._members = store, members
        self._before, self._after = before, after
        self._fresh = fresh
        self._history = LineHistory(store, fresh=fresh)

    def find(self) -> Authors:
        paths: dict[RelPath, _Path] = {}
        for member in self._members:
            self._add(paths, member)
        counts = Counter(author for seen in paths.values() for author in seen.authors)
        counts.update(line_authors.author_of(member) for member in self._members)
        main = max(counts, key=lambda author: (counts[author], str(author)))
        rows = []
        for path, seen in sorted(paths.items()):
            record = self._record(path, seen, main)
            if record is not None:
                rows.append((path, line_authors.compose(record)))
        return Authors(main, rows)

    def _add(self, paths: dict[RelPath, _Path], member: Entry) -> None:
        author = line_authors.author_of(member)
        records = self._records_of(member)
        touches = touched_paths.at(self._store, member, fresh=self._fresh)
        for touch in touches:
            if touch.path in records:
                continue
            seen = paths.setdefault(touch.path, _Path())
            seen.touches += 1
            seen.authors.add(author)
            if touch.old is None and touch.new is not None and self._is_rename(touch, touches):
                seen.is_mixed = True
        for path, record in records.items():
            seen = paths.setdefault(path, _Path())
            seen.touches += 1
            seen.authors.add(record.by)
            seen.is_mixed |= record.lines is not None

    def _records_of(self, member: Entry) -> dict[RelPath, Record]:
        if member.kind != "squash":
            return {}
        rows = self._store.ledger.db.execute(
            "SELECT path, authors FROM line_authors WHERE pos = ?", (member.pos,)
        )
        return {RelPath(row["path"]): line_authors.parse(row["authors"]) for row in rows}

    def _is_rename(self, made: Touch, touches: list[Touch]) -> bool:
        if not any(touch.old and touch.new is None for touch in touches):
            return False
        return self._history.renamed_from(made) is not None

    def _record(self, path: RelPath, seen: _Path, main: Author) -> Record | None:
        """The record of a path; None if the main author made every change to it."""
        node = snapshots.lookup(self._store.objects, self._after, path)
        if node.kind is not Kind.FILE:
            return None
        [by] = seen.authors if len(seen.authors) == 1 else [main]
        if seen.is_mixed or seen.touches > 1:
            lines = self._lines(path, self._members[-1].pos)
            if lines is not None and (seen.is_mixed or lines != self._implied(path, node.oid, by)):
                return Record(by, lines)
        return None if by == main else Record(by)

    def _lines(self, path: RelPath, until: int) -> list[Author] | None:
        found = self._history.origins(path, until)
        if found is None:
            return None
        entries = self._store.ledger.live_at({one.pos for one in found if one.author is None})
        return [one.author or line_authors.author_of(entries[one.pos]) for one in found]

    def _implied(self, path: RelPath, oid: bytes, by: Author) -> list[Author] | None:
        """The line authors that the squash implies without a record."""
        objects = self._store.objects
        old = snapshots.lookup(objects, self._before, path) if self._before else None
        if old is None or old.kind is not Kind.FILE:
            return [by] * line_hunks.count_lines(objects.read_blob(oid))
        lines = self._lines(path, self._members[0].pos - 1)
        if lines is None or old.oid == oid:
            return lines
        return line_hunks.apply_hunks(lines, touched_paths.hunks_of(objects, old.oid, oid), by)
