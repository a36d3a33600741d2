"""Which entries touched a path, and how its lines changed: an index over the line of history.

`blame` and `log --path` use it instead of comparing two trees for each entry of the line. It is
derived from the objects: entries are indexed in batches, after a command has been answered, and
an entry that is not indexed yet is compared during the query. An entry that changed very many
paths is marked as *wide*, and is always compared.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from substrate.errors import SubstrateError
from substrate.history.query import line_hunks
from substrate.history.query.line_hunks import Hunk
from substrate.history.store import INDEXED_UPTO, Entry, HistoryStore, Ledger
from substrate.model import ROOT, Change, Kind, RelPath, display
from substrate.objects.snapshots import Reader
from substrate.objects.snapshots import snapshot as snapshots

#: An entry that changed more paths than this is wide.
WIDE = 256
#: Hunks are stored for entries with at most this many files; otherwise computed during the query.
_WITH_HUNKS = 16
_HUNKS_MAX_BYTES = 4 << 20
_AT_A_TIME = 512
#: Incremented whenever the line is rewritten: rows computed before that are stale.
_GENERATION = "line_generation"


class Touch(NamedTuple):
    """One entry's change of one path. `old`, `new`: the contents, None where there is no file."""

    path: RelPath
    pos: int
    old: bytes | None
    new: bytes | None
    #: None: not known yet.
    hunks: list[Hunk] | None


#: A row of the table; the path of a wide entry is empty.
Row = tuple[bytes, int, bytes | None, bytes | None, bytes | None]


def of_path(store: HistoryStore, path: RelPath, until: int, *, fresh: bool = False) -> list[Touch]:
    """Every change of the file at `path` up to `until`, oldest first.

    `fresh`: without the index.
    """
    upto = 0 if fresh else store.ledger.indexed_upto()
    rows = store.ledger.db.execute(
        "SELECT * FROM touched WHERE path = ? AND pos <= ? ORDER BY pos", (path, min(until, upto))
    )
    found = [_of_row(row) for row in rows]
    wide = [pos for pos in _wide(store.ledger) if pos <= min(until, upto)]
    for entry in _entries(store.ledger, wide, upto, until):
        found += [_touch(c, entry.pos) for c in changes(store, entry, path) if c.path == path]
    found.sort(key=lambda touch: touch.pos)
    return found


def at(store: HistoryStore, entry: Entry, *, fresh: bool = False) -> list[Touch]:
    """Everything that one entry changed."""
    if not fresh and entry.pos <= store.ledger.indexed_upto():
        rows = store.ledger.db.execute("SELECT * FROM touched WHERE pos = ?", (entry.pos,))
        found = [_of_row(row) for row in rows]
        if all(touch.path for touch in found):
            return found
    return [_touch(change, entry.pos) for change in changes(store, entry)]


def positions_within(store: HistoryStore, paths: Iterable[RelPath]) -> tuple[set[int], set[int]]:
    """Positions with a change at or below these paths, and positions that must be compared."""
    db, upto = store.ledger.db, store.ledger.indexed_upto()
    found: set[int] = set()
    for path in paths:
        if path == ROOT:
            rows = db.execute("SELECT DISTINCT pos FROM touched WHERE path > x''")
        else:
            rows = db.execute(
                "SELECT pos FROM touched WHERE path = ?1 OR (path >= ?2 AND path < ?3)",
                (path, path + b"/", path + b"0"),
            )
        found.update(row["pos"] for row in rows)
    later = db.execute("SELECT pos FROM entries WHERE pos > ?", (upto,))
    return found, {*_wide(store.ledger), *(row["pos"] for row in later)}


def damage(store: HistoryStore) -> list[str]:
    """What is wrong with the index: `blame` and `log --path` would miss something."""
    ledger = store.ledger
    if store.tip_commit is None:
        return []
    out: list[str] = []
    has_gaps = bool(_wide(ledger))
    #: Whether the last change of each path must equal the newest state.
    is_whole = not has_gaps and not ledger.live_after(ledger.indexed_upto(), 1)
    before: Touch | None = None
    for row in ledger.db.execute("SELECT * FROM touched WHERE path > x'' ORDER BY path, pos"):
        here = _of_row(row)
        follows = before is not None and before.path == here.path
        if before is not None and not follows and is_whole:
            out += _misfit(store, before)
        if before is not None and follows and before.new != here.old and not has_gaps:
            out.append(f"the index of touched paths has a gap at {display(here.path)}")
        if row["hunks"] is not None and here.hunks is None:
            out.append(f"the index of touched paths is damaged at {display(here.path)}")
        before = here
    return out + (_misfit(store, before) if before and is_whole else [])


def _misfit(store: HistoryStore, last: Touch) -> list[str]:
    """A message if the last indexed change of a path differs from the newest state."""
    node = snapshots.lookup(store.objects, store.tip(), last.path)
    found = node.oid if node.kind is Kind.FILE else None
    if found == last.new:
        return []
    return [f"the index of touched paths does not fit the newest state of {display(last.path)}"]


def replaced_parts(ledger: Ledger) -> dict[int, float]:
    """Entry (by `pos`) → the share of its new contents that later entries have replaced."""
    rows = ledger.db.execute(
        "SELECT pos, avg(EXISTS(SELECT 1 FROM touched AS later WHERE later.path = one.path"
        " AND later.pos > one.pos)) AS part FROM touched AS one"
        " WHERE new IS NOT NULL GROUP BY pos"
    )
    return {row["pos"]: row["part"] for row in rows}


def changes(store: HistoryStore, entry: Entry, scope: RelPath = ROOT) -> list[Change]:
    """Every path an entry changed; none for the first entry of the line, which has no parent."""
    if entry.commit is None:
        return []
    before = store.parent_snapshot(entry.commit)
    if before is None:
        return []
    return snapshots.diff(store.objects, before, store.snapshot_of(entry.commit), scope)


def catch_up_some(store: HistoryStore) -> None:
    """Index some entries; after an error the next call tries again."""
    with suppress(SubstrateError, OSError):
        catch_up(store, _AT_A_TIME)


def catch_up(store: HistoryStore, at_a_time: int = -1) -> None:
    """Index entries, oldest first. Needs no lock: if the line changes, the rows are dropped."""
    ledger = store.ledger
    upto, generation = ledger.indexed_upto(), ledger.meta(_GENERATION)
    last = ledger.last_pos()
    waiting = ledger.live_after(upto, at_a_time)
    rows: list[Row] = []
    for entry in waiting:
        if entry.changed_files > WIDE:
            rows.append(_wide_row(entry.pos))
        else:
            rows += rows_of(store.objects, entry.pos, changes(store, entry))
    is_all = len(waiting) != at_a_time
    reached = max(last if is_all else 0, waiting[-1].pos if waiting else 0)
    if reached == upto:
        return
    with ledger.transaction(durable=False):
        if (ledger.indexed_upto(), ledger.meta(_GENERATION)) == (upto, generation):
            add_rows(ledger, rows)
            ledger.set_meta(INDEXED_UPTO, reached)


def rows_of(reader: Reader, pos: int, found: list[Change]) -> list[Row]:
    """The rows of an entry that made these changes."""
    if len(found) > WIDE:
        return [_wide_row(pos)]
    with_hunks = len(found) <= _WITH_HUNKS
    out: list[Row] = []
    for change in found:
        path, _, old, new, _ = _touch(change, pos)
        steps = None
        if with_hunks and old and new and old != new:
            steps = _packed_hunks(reader, old, new)
        out.append((path, pos, old, new, steps))
    return out


def add_rows(ledger: Ledger, rows: Iterable[Row]) -> None:
    ledger.db.executemany("INSERT OR REPLACE INTO touched VALUES (?, ?, ?, ?, ?)", rows)


def squashed(ledger: Ledger, positions: list[int], rows: list[Row]) -> None:
    """Inside the transaction: replace the rows of entries that became one squash."""
    gone = [(pos,) for pos in positions]
    ledger.db.executemany("DELETE FROM touched WHERE pos = ?", gone)
    add_rows(ledger, rows)


def reset(ledger: Ledger) -> None:
    """Inside the transaction: empty the index."""
    ledger.db.execute("DELETE FROM touched")
    ledger.set_meta(INDEXED_UPTO, 0)
    line_was_rewritten(ledger)


def line_was_rewritten(ledger: Ledger) -> None:
    """Inside the transaction: make rows that are being computed stale."""
    known = ledger.meta(_GENERATION)
    ledger.set_meta(_GENERATION, (known if isinstance(known, int) else 0) + 1)


def hunks_of(reader: Reader, old: bytes, new: bytes) -> list[Hunk]:
    return line_hunks.hunks(reader.read_blob(old), reader.read_blob(new))


def _touch(change: Change, pos: int) -> Touch:
    old = change.old.oid if change.old.kind is Kind.FILE else None
    new = change.new.oid if change.new.kind is Kind.FILE else None
    return Touch(change.path, pos, old, new, None)


def _packed_hunks(reader: Reader, old: bytes, new: bytes) -> bytes | None:
    before, after = reader.read_blob(old), reader.read_blob(new)
    if max(len(before), len(after)) > _HUNKS_MAX_BYTES:
        return None
    packed = line_hunks.pack_hunks(line_hunks.hunks(before, after))
    return packed + _checksum(old, new, packed)


def _of_row(row: sqlite3.Row) -> Touch:
    """A damaged list of hunks counts as unknown; damaged ids show as gaps between versions."""
    hunks: list[Hunk] | None = None
    old, new, packed = row["old"], row["new"], row["hunks"]
    if packed is not None and packed[-4:] == _checksum(old, new, packed[:-4]):
        hunks = line_hunks.unpack_hunks(packed[:-4])
    return Touch(RelPath(row["path"]), row["pos"], old, new, hunks)


def _checksum(*parts: bytes) -> bytes:
    return zlib.crc32(b"".join(parts)).to_bytes(4, "little")


def _wide_row(pos: int) -> Row:
    return b"", pos, None, None, None


def _wide(ledger: Ledger) -> list[int]:
    rows = ledger.db.execute("SELECT pos FROM touched WHERE path = x''")
    return [row["pos"] for row in rows]


def _entries(ledger: Ledger, wide: list[int], upto: int, until: int) -> Iterator[Entry]:
    """The entries to compare: wide ones, and those that are not indexed yet."""
    for pos in wide:
        yield from ledger.live_after(pos - 1, 1)
    yield from (entry for entry in ledger.live_after(upto, -1) if entry.pos <= until)
