"""The author of each line of a file: follow the file from its oldest version to the newest.

A squash may contain the work of several authors. Then it has records (table `line_authors`) that
name the authors of the lines of a path:

    {"a": [["external", null, null]]}              this author made every change in the squash
    {"a": [A, B], "l": [[3, 0], [2, 1], [9, 0]]}   three lines of A, two of B, nine of A

A path without a record belongs to the squash's main author, named in its detail.
"""

from __future__ import annotations

import json
import zlib
from itertools import groupby, pairwise
from typing import NamedTuple

from substrate.errors import DamagedStoreError
from substrate.history.query import line_hunks, touched_paths
from substrate.history.query.touched_paths import Touch
from substrate.history.store import SESSION_KINDS, Entry, HistoryStore
from substrate.model import Kind, RelPath, display
from substrate.objects.snapshots import snapshot as snapshots

#: In a squash's detail: its main author.
MAIN_AUTHOR = "author"
#: How many removed files are read at most to find the one that an added file was renamed from.
_RENAME_CANDIDATES = 32
#: Which part of a file must be unchanged to count as a rename; git uses the same threshold.
_LIKE_ENOUGH = 0.5


class Author(NamedTuple):
    """An outside edit, the baseline, or an agent in a session."""

    kind: str
    session_id: str | None = None
    agent_id: str | None = None


class Origin(NamedTuple):
    """Where a line came from: the entry at `pos`; `author` is set if that is a squash."""

    pos: int
    author: Author | None = None


class BrokenIndexError(Exception):
    """The index of touched paths contradicts the contents: follow the file without it."""


class Record(NamedTuple):
    """The author of one path in a squash. Without `lines`, `by` made every change to it."""

    by: Author
    lines: list[Author] | None = None


def author_of(entry: Entry) -> Author:
    """The author of an entry; for a squash, its main author."""
    main = entry.detail.get(MAIN_AUTHOR)
    if isinstance(main, list) and len(main) == 3:
        return Author(*main)
    if entry.kind in SESSION_KINDS:
        return Author("command", entry.session_id, entry.agent_id)
    return Author(entry.kind)


class LineHistory:
    """Follows files through the line of history. `fresh`: without the index of touched paths."""

    def __init__(self, store: HistoryStore, *, fresh: bool = False) -> None:
        self._store = store
        self._fresh = fresh
        self._squashes: dict[int, Entry] | None = None
        self._removed: dict[int, list[Touch]] = {}

    def origins(self, path: RelPath, until: int) -> list[Origin] | None:
        """The origin of each line of the file as of the entry at `until`; None if it is absent.

        Raises `BrokenIndexError` if the index contradicts the contents.
        """
        touches = touched_paths.of_path(self._store, path, until, fresh=self._fresh)
        for before, after in pairwise(touches):
            if before.new != after.old:
                raise BrokenIndexError
        found, touches = self._beginning(path, until, touches)
        if found is None:
            return None
        for touch in touches:
            if touch.new is None:
                return None
            if touch.old == touch.new or touch.old is None:
                continue
            steps = touch.hunks
            if steps is None:
                steps = touched_paths.hunks_of(self._store.objects, touch.old, touch.new)
            found = line_hunks.apply_hunks(found, steps, self._mark(path, touch.pos))
        return found

    def _beginning(
        self, path: RelPath, until: int, touches: list[Touch]
    ) -> tuple[list[Origin] | None, list[Touch]]:
        """The newest version whose origins are known directly, and the touches after it."""
        known = self._last_known_lines(path, until)
        made = next((n for n in reversed(range(len(touches))) if touches[n].old is None), None)
        if known is not None and (made is None or touches[made].pos <= known[0]):
            pos, lines = known
            later = [touch for touch in touches if touch.pos > pos]
            return [Origin(pos, author) for author in lines], later
        if made is not None:
            if any(touch.new is None for touch in touches[made:]):
                return None, []
            return self._first_version(touches[made]), touches[made + 1 :]
        return self._in_the_first_state(path, touches), touches

    def _last_known_lines(self, path: RelPath, until: int) -> tuple[int, list[Author]] | None:
        rows = self._store.ledger.db.execute(
            "SELECT pos, authors FROM line_authors WHERE path = ? AND pos <= ? ORDER BY pos DESC",
            (path, until),
        )
        for row in rows:
            lines = parse(row["authors"]).lines
            if lines is not None:
                return row["pos"], lines
        return None

    def _in_the_first_state(self, path: RelPath, touches: list[Touch]) -> list[Origin] | None:
        """A file that no entry created existed when the line began."""
        first = self._store.ledger.live_after(-1, 1)
        if not first or first[0].commit is None:
            return None
        state = self._store.snapshot_of(first[0].commit)
        node = snapshots.lookup(self._store.objects, state, path)
        if node.kind is not Kind.FILE:
            return None
        if touches and touches[0].old != node.oid:
            raise BrokenIndexError
        mark = self._mark(path, first[0].pos)
        return [mark] * line_hunks.count_lines(self._store.objects.read_blob(node.oid))

    def _first_version(self, made: Touch) -> list[Origin] | None:
        """The entry is the origin of every line, unless it renamed the file from another path."""
        if made.new is None:
            return None
        source = self.renamed_from(made)
        if source is not None and source.old is not None:
            before = self.origins(source.path, made.pos - 1)
            if before is not None:
                steps = touched_paths.hunks_of(self._store.objects, source.old, made.new)
                return line_hunks.apply_hunks(before, steps, Origin(made.pos))
        mark = self._mark(made.path, made.pos)
        return [mark] * line_hunks.count_lines(self._store.objects.read_blob(made.new))

    def renamed_from(self, made: Touch) -> Touch | None:
        """The file that this entry removed and whose content it put at a new path, if any.

        None for a squash: its records already account for renames.
        """
        entry = self._store.ledger.live_at([made.pos]).get(made.pos)
        if entry is None or made.new is None or _has_main_author(entry):
            return None
        gone = self._removed_by(entry)
        same = [touch for touch in gone if touch.old == made.new]
        name = made.path.rpartition(b"/")[2]
        if same:
            named = (touch for touch in same if touch.path.rpartition(b"/")[2] == name)
            return next(named, same[0])
        if len(gone) > _RENAME_CANDIDATES:
            return None
        read = self._store.objects.read_blob
        data = read(made.new)
        scored = [(_likeness(read(touch.old), data), touch) for touch in gone if touch.old]
        best = max(scored, key=lambda pair: pair[0], default=None)
        return best[1] if best is not None and best[0] >= _LIKE_ENOUGH else None

    def _removed_by(self, entry: Entry) -> list[Touch]:
        known = self._removed.get(entry.pos)
        if known is None:
            all_of_it = touched_paths.at(self._store, entry, fresh=self._fresh)
            known = [touch for touch in all_of_it if touch.old and touch.new is None]
            self._removed[entry.pos] = known
        return known

    def _mark(self, path: RelPath, pos: int) -> Origin:
        if self._squashes is None:  # there are only a few, however long the line is
            self._squashes = {entry.pos: entry for entry in self._store.ledger.squashes()}
        squash = self._squashes.get(pos)
        if squash is None:
            return Origin(pos)
        record = record_at(self._store, path, pos)
        return Origin(pos, record.by if record else author_of(squash))


def _has_main_author(entry: Entry) -> bool:
    return entry.kind == "squash" and MAIN_AUTHOR in entry.detail


def _likeness(old: bytes, new: bytes) -> float:
    """The share of the larger file that consists of lines which both files have."""
    longest = max(len(old), len(new))
    if not longest or min(len(old), len(new)) * 2 < longest:
        return 0.0
    counts: dict[bytes, int] = {}
    for line in line_hunks.split_lines(old):
        counts[line] = counts.get(line, 0) + 1
    same = 0
    for line in line_hunks.split_lines(new):
        if counts.get(line, 0):
            counts[line] -= 1
            same += len(line)
    return same / longest


def record_at(store: HistoryStore, path: RelPath, pos: int) -> Record | None:
    row = store.ledger.db.execute(
        "SELECT authors FROM line_authors WHERE path = ? AND pos = ?", (path, pos)
    ).fetchone()
    return parse(row["authors"]) if row else None


def damage(store: HistoryStore) -> list[str]:
    """Records whose checksum is wrong, as messages."""
    out = []
    for row in store.ledger.db.execute("SELECT path, authors FROM line_authors"):
        try:
            parse(row["authors"])
        except (DamagedStoreError, TypeError):
            out.append(f"the authors of {display(RelPath(row['path']))} in a squash are damaged")
    return out


def parse(text: str) -> Record:
    """Raises `DamagedStoreError` if the record's checksum is wrong."""
    checksum, _, body = text.partition(" ")
    if checksum != _checksum(body):
        raise DamagedStoreError(
            "a record of a squash's authors is damaged",
            hint="run `substrate fsck` to see the damage, `substrate fsck --repair` to mend it",
        )
    found = json.loads(body)
    authors = [Author(*one) for one in found["a"]]
    if "l" not in found:
        return Record(authors[0])
    lines = [authors[which] for count, which in found["l"] for _ in range(count)]
    return Record(authors[0], lines)


def compose(record: Record) -> str:
    authors = list(dict.fromkeys([record.by, *(record.lines or ())]))
    document: dict[str, object] = {"a": [list(author) for author in authors]}
    if record.lines is not None:
        numbers = {author: number for number, author in enumerate(authors)}
        runs = [[len(list(same)), numbers[author]] for author, same in groupby(record.lines)]
        document["l"] = runs
    body = json.dumps(document, separators=(",", ":"))
    return f"{_checksum(body)} {body}"


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"
