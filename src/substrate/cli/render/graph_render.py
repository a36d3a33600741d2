"""Deltas, impacts and symbols, as JSON and for people."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from substrate.cli.frame import Styled, plural
from substrate.model import name_fields

if TYPE_CHECKING:
    from substrate.cli.frame import Output
    from substrate.recorder.code_graph import Delta, Impact, Place, Reason, Snapshot, SymbolRecord

_SHOWN = 40


def progress_on(output: Output) -> Callable[[str, int, int], None]:
    def show(label: str, done: int, total: int) -> None:
        output.progress(label, done, total)

    return show


def symbol_json(snapshot: Snapshot, symbol: SymbolRecord) -> dict[str, object]:
    return {
        "symbol_id": symbol.symbol_id,
        "kind": symbol.kind,
        "name": symbol.name,
        "fqname": symbol.fqname,
        "path": snapshot.path_of(symbol),
        "signature": symbol.signature,
        "visibility": symbol.visibility,
        "docstring": symbol.docstring,
    }


def delta_json(delta: Delta) -> dict[str, object]:
    base, head = delta.base, delta.head
    return {
        "base": base.commit.hex(),
        "head": head.commit.hex(),
        "files_added": [name_fields(path) for path in delta.files_added],
        "files_changed": [name_fields(path) for path in delta.files_changed],
        "files_deleted": [name_fields(path) for path in delta.files_deleted],
        "files_renamed": [
            {**name_fields(new), "old_path": name_fields(old)["path"]}
            for old, new in delta.files_renamed
        ],
        "symbols_added": [_brief(head, symbol) for symbol in delta.symbols_added],
        "symbols_changed": [_brief(head, symbol) for symbol in delta.symbols_changed],
        "symbols_deleted": [_brief(base, symbol) for symbol in delta.symbols_deleted],
        "symbols_moved": [
            {**_brief(head, move.new), "old_fqname": move.old.fqname, "old_path": move.old_path}
            for move in delta.symbols_moved
        ],
        "symbols_invalidated": [
            {**_brief(head, known(head, i)), **_reason_json(delta, reason)}
            for i, reason in _by_distance(delta)
        ],
    }


def _brief(snapshot: Snapshot, symbol: SymbolRecord) -> dict[str, object]:
    return {
        "symbol_id": symbol.symbol_id,
        "kind": symbol.kind,
        "fqname": symbol.fqname,
        "path": snapshot.path_of(symbol),
    }


def known(snapshot: Snapshot, symbol_id: str) -> SymbolRecord:
    """A symbol that an edge of the snapshot names."""
    found = snapshot.symbol(symbol_id)
    assert found is not None
    return found


def _by_distance(delta: Delta) -> list[tuple[str, Reason]]:
    head = delta.head
    return sorted(
        delta.invalidated.items(),
        key=lambda item: (item[1].distance, known(head, item[0]).fqname),
    )


def _name(delta: Delta, symbol_id: str) -> str:
    symbol = delta.head.symbol(symbol_id) or delta.base.symbol(symbol_id)
    return symbol.fqname if symbol is not None else symbol_id


def _where(delta: Delta, symbol_id: str, reason: Reason) -> Place | None:
    symbol = known(delta.head, symbol_id)
    return delta.head.places(symbol.path_id).get(reason.region_id)


def _reason_json(delta: Delta, reason: Reason) -> dict[str, object]:
    return {
        "uses": _name(delta, reason.uses),
        "how": reason.how,
        "distance": reason.distance,
        "confidence": reason.confidence,
    }


def impact_json(text: str, impact: Impact) -> dict[str, object]:
    document: dict[str, object] = {"change": text}
    if impact.entry is not None:
        document["command_id"] = impact.entry.command_id
        document["command"] = impact.entry.command
        document["session_id"] = impact.entry.session_id
    if impact.delta is None:
        return document | {"delta": None, "files": []}
    delta = impact.delta
    return document | {"delta": delta_json(delta), "files": _files_json(delta)}


def _files_json(delta: Delta) -> list[dict[str, object]]:
    files: dict[str, list[dict[str, object]]] = {}
    for symbol_id, reason in _by_distance(delta):
        symbol = known(delta.head, symbol_id)
        place = _where(delta, symbol_id, reason)
        files.setdefault(delta.head.path_of(symbol), []).append(
            {
                "fqname": symbol.fqname,
                "kind": symbol.kind,
                "line": place.start_line if place else None,
                **_reason_json(delta, reason),
            }
        )
    return [{"path": path, "symbols": found} for path, found in sorted(files.items())]


def show_delta(output: Output, delta: Delta) -> None:
    if delta.is_empty:
        output.line("the same files on both sides")
        return
    _names(output, "added", delta.files_added, "green")
    _names(output, "changed", delta.files_changed, "yellow")
    _names(output, "deleted", delta.files_deleted, "red")
    for old, new in delta.files_renamed[:_SHOWN]:
        output.line(
            Styled("renamed  ", "cyan"),
            f"{name_fields(old)['path']} -> {name_fields(new)['path']}",
        )
    _symbols(output, "+", delta.symbols_added, "green")
    _symbols(output, "~", delta.symbols_changed, "yellow")
    _symbols(output, "-", delta.symbols_deleted, "red")
    for move in delta.symbols_moved[:_SHOWN]:
        output.line(
            Styled("  > ", "cyan"), f"{move.new.kind} {move.old.fqname} -> {move.new.fqname}"
        )
    _invalidated(output, delta)


def _names(output: Output, label: str, paths: list[bytes], style: str) -> None:
    for path in paths[:_SHOWN]:
        output.line(Styled(f"{label:<9}", style), str(name_fields(path)["path"]))  # type: ignore[arg-type]  # callers pass Style literals
    if len(paths) > _SHOWN:
        output.line(f"  … and {len(paths) - _SHOWN} more {label}")


def _symbols(output: Output, mark: str, symbols: list[SymbolRecord], style: str) -> None:
    for symbol in symbols[:_SHOWN]:
        output.line(Styled(f"  {mark} ", style), f"{symbol.kind} {symbol.fqname}")  # type: ignore[arg-type]  # callers pass Style literals
    if len(symbols) > _SHOWN:
        output.line(f"    … and {len(symbols) - _SHOWN} more")


def _invalidated(output: Output, delta: Delta) -> None:
    if not delta.invalidated:
        output.line("nothing else depends on it, as far as static analysis can tell")
        return
    files = {known(delta.head, i).path_id for i in delta.invalidated}
    output.line(
        Styled("can break: ", "bold"),
        f"{plural(len(delta.invalidated), 'symbol')} in {plural(len(files), 'file')}",
    )
    rows = []
    for symbol_id, reason in _by_distance(delta)[:_SHOWN]:
        symbol = known(delta.head, symbol_id)
        place = _where(delta, symbol_id, reason)
        line = f":{place.start_line}" if place else ""
        rows.append(
            (
                Styled(f"  {delta.head.path_of(symbol)}{line}", "cyan"),
                symbol.fqname,
                f"{reason.how} {_name(delta, reason.uses)}",
            )
        )
    output.table(rows)
    if len(delta.invalidated) > _SHOWN:
        output.line(f"  … and {len(delta.invalidated) - _SHOWN} more; --json lists all")


def show_impact(output: Output, text: str, impact: Impact) -> None:
    if impact.entry is not None:
        what = impact.entry.command.split("\n", 1)[0]
        output.line(Styled(impact.entry.command_id, "cyan"), f"  {what}")
    if impact.delta is None or impact.delta.is_empty:
        output.line(f"{text} changed no file that was there before")
        return
    show_delta(output, impact.delta)
