"""What differs between two snapshots: files, symbols, and what depends on them."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from substrate.graph.index.records import SymbolRecord
from substrate.graph.index.snapshot import Snapshot
from substrate.graph.query import Reason, dependents
from substrate.model import display

#: A file that shares at least this fraction of its symbols with another counts as renamed.
_SAME_FILE = 0.5


class Moved(NamedTuple):
    old: SymbolRecord
    new: SymbolRecord
    old_path: str


class Delta(NamedTuple):
    base: Snapshot
    head: Snapshot
    files_added: list[bytes]
    files_changed: list[bytes]
    files_deleted: list[bytes]
    files_renamed: list[tuple[bytes, bytes]]
    symbols_added: list[SymbolRecord]
    #: As they are in the head.
    symbols_changed: list[SymbolRecord]
    #: As they were in the base.
    symbols_deleted: list[SymbolRecord]
    symbols_moved: list[Moved]
    #: Symbol id in the head -> why.
    invalidated: dict[str, Reason]

    @property
    def is_empty(self) -> bool:
        return not (
            self.files_added or self.files_changed or self.files_deleted or self.files_renamed
        )


def compare(base: Snapshot, head: Snapshot) -> Delta:
    added, changed, deleted = _files(base, head)
    before = _symbols(base, [*changed, *deleted])
    after = _symbols(head, [*changed, *added])
    renamed = _renames(base, head, deleted, added)
    new = [after[i] for i in after.keys() - before.keys()]
    gone = [before[i] for i in before.keys() - after.keys()]
    differs = [
        after[i]
        for i in after.keys() & before.keys()
        if after[i].symbol_hash != before[i].symbol_hash
    ]
    moved = _moves(base, new, gone)
    settled_new = {move.new.symbol_id for move in moved}
    settled_old = {move.old.symbol_id for move in moved}
    new = [s for s in new if s.symbol_id not in settled_new and s.kind != "module"]
    gone_symbols = [s for s in gone if s.symbol_id not in settled_old and s.kind != "module"]
    old_names = {old for old, _ in renamed}
    new_names = {now for _, now in renamed}
    return Delta(
        base,
        head,
        [path for path in added if path not in new_names],
        changed,
        [path for path in deleted if path not in old_names],
        renamed,
        _sorted(new),
        _sorted(differs),
        _sorted(gone_symbols),
        sorted(moved, key=lambda move: (move.new.fqname, move.new.symbol_id)),
        _invalidated(base, head, differs, [*gone_symbols, *(move.old for move in moved)]),
    )


def _files(base: Snapshot, head: Snapshot) -> tuple[list[bytes], list[bytes], list[bytes]]:
    old = dict(zip(base.sections.paths, base.sections.oids, strict=True))
    new = dict(zip(head.sections.paths, head.sections.oids, strict=True))
    added = sorted(new.keys() - old.keys())
    deleted = sorted(old.keys() - new.keys())
    changed = [path for path, oid in new.items() if path in old and old[path] != oid]
    return added, changed, deleted


def _symbols(snapshot: Snapshot, paths: list[bytes]) -> dict[str, SymbolRecord]:
    return {s.symbol_id: s for path in paths for s in snapshot.symbols_at(path)}


def _renames(
    base: Snapshot, head: Snapshot, deleted: list[bytes], added: list[bytes]
) -> list[tuple[bytes, bytes]]:
    """The same blob first; then files that share most of their symbols."""
    pairs: list[tuple[bytes, bytes]] = []
    by_oid: dict[bytes, list[bytes]] = {}
    for path in deleted:
        by_oid.setdefault(_oid(base, path), []).append(path)
    left = []
    for path in added:
        same = by_oid.get(_oid(head, path))
        if same:
            pairs.append((same.pop(0), path))
        else:
            left.append(path)
    taken = {old for old, _ in pairs}
    remaining = {path: _hashes(base, path) for path in deleted if path not in taken}
    holders: dict[tuple[str, str], list[bytes]] = {}
    for old, symbols in remaining.items():
        for symbol in symbols:
            holders.setdefault(symbol, []).append(old)
    for path in left:
        mine = _hashes(head, path)
        shared = Counter(
            old for symbol in mine for old in holders.get(symbol, ()) if old in remaining
        )
        best = max(shared, key=lambda old: (shared[old], old), default=None)
        if best is None:
            continue
        if shared[best] >= _SAME_FILE * max(len(mine), len(remaining[best])):
            pairs.append((best, path))
            del remaining[best]
    return sorted(pairs)


def _oid(snapshot: Snapshot, path: bytes) -> bytes:
    return snapshot.sections.oids[snapshot.sections.find(path)]


def _hashes(snapshot: Snapshot, path: bytes) -> set[tuple[str, str]]:
    return {(s.name, s.symbol_hash) for s in snapshot.symbols_at(path) if s.kind != "module"}


def _moves(base: Snapshot, new: list[SymbolRecord], gone: list[SymbolRecord]) -> list[Moved]:
    """The same definition with identical text in another place."""
    homes: dict[tuple[str, str, str], list[SymbolRecord]] = {}
    for symbol in _sorted(gone):
        homes.setdefault((symbol.kind, symbol.name, symbol.symbol_hash), []).append(symbol)
    moves = []
    for symbol in _sorted(new):
        old = homes.get((symbol.kind, symbol.name, symbol.symbol_hash))
        if old and symbol.kind != "module":
            origin = old.pop(0)
            moves.append(Moved(origin, symbol, display(base.raw_path(origin.path_id))))
    return moves


def _sorted(symbols: list[SymbolRecord]) -> list[SymbolRecord]:
    return sorted(symbols, key=lambda symbol: (symbol.fqname, symbol.symbol_id))


def _invalidated(
    base: Snapshot, head: Snapshot, changed: list[SymbolRecord], gone: list[SymbolRecord]
) -> dict[str, Reason]:
    """Users of changed symbols, in the head; and users of removed symbols, in the base."""
    seeds = {symbol.symbol_id for symbol in changed}
    found = dependents(head, seeds) if seeds else {}
    if gone:
        for user, reason in dependents(base, {symbol.symbol_id for symbol in gone}).items():
            if user not in seeds and head.symbol(user) is not None:
                found.setdefault(user, reason)
    return found
