"""Definitions and uses by name."""

from __future__ import annotations

from typing import NamedTuple

from substrate.graph.index import TRUSTED, Call, Place, Snapshot, SymbolRecord


class Found(NamedTuple):
    symbol: SymbolRecord
    place: Place


class Use(NamedTuple):
    place: Place
    #: The symbol that uses it; None for an import.
    user: SymbolRecord | None
    how: str
    confidence: float
    #: What it uses: a symbol of the project, or the text of an unresolved call.
    target: str


def find_symbols(
    snapshot: Snapshot, pattern: str = "", *, kind: str = "", path: str = ""
) -> list[Found]:
    """Definitions whose name or qualified name contains `pattern`; exact matches come first."""
    chosen = [
        symbol
        for symbol in snapshot.symbols.values()
        if (symbol.kind == kind if kind else symbol.kind != "module")
        and (not path or _below(snapshot.path_of(symbol), path))
        and _matches(symbol, pattern)
    ]
    found = [Found(symbol, place) for symbol, place in _placed(snapshot, chosen)]
    return sorted(found, key=lambda one: not _is_called(one.symbol, pattern))


def kinds(snapshot: Snapshot) -> list[str]:
    """The kinds of all definitions in the snapshot."""
    return sorted({symbol.kind for symbol in snapshot.symbols.values()} - {"module"})


def named(snapshot: Snapshot, name: str) -> list[SymbolRecord]:
    """Symbols with exactly this name, or whose qualified name ends with it."""
    return [s for s in snapshot.symbols.values() if _is_called(s, name)]


def find_uses(snapshot: Snapshot, name: str) -> list[Use]:
    """Calls and imports of every symbol of that name; unresolved calls of the name come last.

    A call that certainly leaves the project counts only if nothing in the project has the name.
    """
    targets = {symbol.symbol_id: symbol for symbol in named(snapshot, name)}
    last = name.replace("::", ".").rpartition(".")[2]
    uses = []
    for call in snapshot.calls:
        if call.to_symbol_id in targets:
            uses.append(_call_use(snapshot, call, targets[call.to_symbol_id].fqname))
        elif (
            not call.to_symbol_id
            and _last(call.to_external_ref) == last
            and (call.confidence < TRUSTED or not targets)
        ):
            uses.append(_call_use(snapshot, call, call.to_external_ref))
    homes = {symbol.path_id: symbol for symbol in targets.values()}
    for edge in snapshot.imports:
        if last in edge.names and edge.to_path_id in homes:
            place = snapshot.places(edge.from_path_id)[edge.import_region_id]
            uses.append(Use(place, None, "import", 1.0, homes[edge.to_path_id].fqname))
    return sorted(uses, key=lambda use: (-use.confidence, use.place, use.target))


def _call_use(snapshot: Snapshot, call: Call, target: str) -> Use:
    user = snapshot.symbols[call.from_symbol_id]
    place = snapshot.places(user.path_id)[call.call_region_id]
    return Use(place, user, call.call_type, call.confidence, target)


def _placed(snapshot: Snapshot, symbols: list[SymbolRecord]) -> list[tuple[SymbolRecord, Place]]:
    pairs = [(s, snapshot.places(s.path_id)[s.def_region_id]) for s in symbols]
    return sorted(pairs, key=lambda pair: (pair[1], pair[0].fqname))


def _matches(symbol: SymbolRecord, pattern: str) -> bool:
    return pattern.lower() in symbol.fqname.lower() or pattern.lower() in symbol.name.lower()


def _is_called(symbol: SymbolRecord, name: str) -> bool:
    if name in (symbol.name, symbol.fqname):
        return symbol.kind != "module" or name == symbol.fqname
    plain = symbol.fqname.replace("::", ".")
    return plain.endswith("." + name.replace("::", ".")) and symbol.kind != "module"


def _last(reference: str) -> str:
    return reference.replace("::", ".").rpartition(".")[2]


def _below(path: str, wanted: str) -> bool:
    wanted = wanted.rstrip("/")
    return path == wanted or path.startswith(wanted + "/")
