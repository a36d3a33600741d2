"""What depends on a symbol: who calls it, inherits from it, or takes it by name from its module.

Only edges of confidence 0.8 and more are followed, so that a guess never accuses a file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from substrate.graph.records import SymbolRecord
from substrate.graph.snapshot import Snapshot

#: A change to one of these is a change to what making an object of the class means.
_CONSTRUCTORS = frozenset({"__init__", "__new__", "constructor", "initialize"})
#: What is used by importing it, not by calling it.
_TAKEN_BY_NAME = frozenset({"constant", "variable", "type", "interface", "enum", "class", "struct"})


class Reason(NamedTuple):
    """Why a symbol is here: it uses `uses`, in this way, so many steps from the change."""

    uses: str
    how: str
    distance: int
    region_id: str
    confidence: float


def dependents(snapshot: Snapshot, seeds: Iterable[str]) -> dict[str, Reason]:
    """Symbols that use one of `seeds`, directly or through others; nearest reason first."""
    found: dict[str, Reason] = {}
    start = _widened(snapshot, seeds)
    layer = sorted(start)
    distance = 0
    while layer:
        distance += 1
        reached: dict[str, Reason] = {}
        for target in layer:
            for user, reason in _users(snapshot, target, distance):
                if user not in start and user not in found:
                    reached.setdefault(user, reason)
        found |= reached
        layer = sorted(_widened(snapshot, reached) - found.keys() - start) + sorted(reached)
    return found


def _widened(snapshot: Snapshot, seeds: Iterable[str]) -> set[str]:
    """With a constructor its class, too."""
    wide = set(seeds)
    for seed in list(wide):
        symbol = snapshot.symbol(seed)
        if symbol is not None and symbol.kind in ("method", "constructor", "function"):
            owner = _owner(snapshot, symbol)
            if owner is not None and (symbol.name in _CONSTRUCTORS or symbol.kind == "constructor"):
                wide.add(owner.symbol_id)
    return wide


def _owner(snapshot: Snapshot, symbol: SymbolRecord) -> SymbolRecord | None:
    above = symbol.fqname.removesuffix(symbol.name).rstrip(".:")
    for other in snapshot.symbols_at(snapshot.raw_path(symbol.path_id)):
        if other.fqname == above and other.kind != "module":
            return other
    return None


def _users(snapshot: Snapshot, target: str, distance: int) -> list[tuple[str, Reason]]:
    users = [
        (call.from_symbol_id, Reason(target, _HOW.get(call.call_type, "calls"), distance,
         call.call_region_id, call.confidence))
        for call in snapshot.callers_of(target)
    ]  # fmt: skip
    symbol = snapshot.symbol(target)
    if symbol is None or symbol.kind not in _TAKEN_BY_NAME:
        return users
    for module, edge in snapshot.importers_of(symbol):
        reason = Reason(target, "imports", distance, edge.import_region_id, 1.0)
        users.append((module.symbol_id, reason))
    return users


_HOW = {
    "inherits": "inherits from",
    "constructor": "makes",
    "decorator": "is decorated by",
    "component": "renders",
}
