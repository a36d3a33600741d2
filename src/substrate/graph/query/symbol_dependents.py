"""The dependents of a symbol: callers, subclasses, and modules that import it by name.

Only edges with a confidence of 0.8 or more are followed, so that a guess never blames a file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from substrate.graph.index import Snapshot

#: A change to one of these changes what instantiating the class means.
_CONSTRUCTORS = frozenset({"__init__", "__new__", "constructor", "initialize"})
#: Kinds that are used by importing them, not by calling them.
_TAKEN_BY_NAME = frozenset({"constant", "variable", "type", "interface", "enum", "class", "struct"})


class Reason(NamedTuple):
    """Why a symbol is a dependent: it uses `uses`, how, and how many steps from the change."""

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
        wider = _widened(snapshot, reached)
        layer = sorted(one for one in wider if one not in found and one not in start)
        layer += sorted(reached)
    return found


def _widened(snapshot: Snapshot, seeds: Iterable[str]) -> set[str]:
    """Add the class of each constructor."""
    wide = set(seeds)
    for seed in list(wide):
        symbol = snapshot.symbol(seed)
        if symbol is None or symbol.kind not in ("method", "constructor", "function"):
            continue
        if symbol.name in _CONSTRUCTORS or symbol.kind == "constructor":
            owner = snapshot.owner_of(symbol)
            if owner is not None:
                wide.add(owner.symbol_id)
    return wide


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
