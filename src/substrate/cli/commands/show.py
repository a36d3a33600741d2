"""Show one entry of history."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.output import Styled
from substrate.cli.render import entry_json, hex_or_none, is_in_workspace, place_of, when
from substrate.errors import EXIT_OK, NotFoundError
from substrate.history.resolve import resolve
from substrate.model.paths import display
from substrate.recorder import ask
from substrate.system import clock

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Mapping

    from substrate.cli.context import Context
    from substrate.history.resolve import Target
    from substrate.history.store import HistoryStore
    from substrate.recorder.place import Place

NAME = "show"
HELP = "show one command: its record and the files it changed"
EXAMPLE = "substrate show @"

_SHOWN_FILES = 50


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "id", nargs="?", default="@", metavar="ID",
        help="command, span, session, commit, tag; default: @, the last command",
    )  # fmt: skip


def run(args: Namespace, context: Context) -> int:
    place = place_of(context)
    with place.existing_history() as store:
        target = _find(store, place, args.id)
        if target.entry is None:
            return _show_other(store, target, context)
        entry = target.entry
        changed = ask.changed_files(store, target.present)
        if context.json:
            document = entry_json(entry, changed)
            # The exact words stay in the private ledger, for replay: they may hold secrets.
            document["detail"] = {k: v for k, v in entry.detail.items() if k != "exact"}
            document["squashed_into"] = target.holder.command_id if target.holder else None
            document["undone"] = b"" in store.ledger.reversed_paths(entry.seq)
            context.output.emit_json(document)
            return EXIT_OK
        _for_people(store, target, context)
        for path in changed[:_SHOWN_FILES]:
            context.output.line("  ", display(path))
        if len(changed) > _SHOWN_FILES:
            context.output.line(f"  … and {len(changed) - _SHOWN_FILES} more")
    return EXIT_OK


def _find(store: HistoryStore, place: Place, text: str) -> Target:
    try:
        return resolve(store, text, place.session)
    except NotFoundError as error:
        if is_in_workspace(place, text):
            raise NotFoundError(
                error.message,
                hint=f"for the commands that changed a file: substrate log --path {text}",
            ) from None
        raise


def _for_people(store: HistoryStore, target: Target, context: Context) -> None:
    entry = target.entry
    assert entry is not None
    isolation = entry.detail.get("isolation")
    strategy = isolation.get("strategy") if isinstance(isolation, dict) else None
    is_part, parts = "part" in entry.detail, entry.detail.get("parts")
    nothing = "none since its last part" if parts else "none: nothing changed"
    rows: list[tuple[str, str | None]] = [
        ("command", entry.command),
        ("id", entry.command_id),
        ("kind", entry.kind),
        ("session", entry.session_id),
        ("agent", entry.agent_id),
        ("when", when(entry.ts_ns) + " UTC"),
        ("exit", None if entry.exit is None else str(entry.exit)),
        ("took", None if entry.duration_ms is None else f"{entry.duration_ms} ms"),
        ("part", f"{entry.detail['part']} of {entry.detail['of']}" if is_part else None),
        ("parts", str(parts) if parts else None),
        ("commit", hex_or_none(target.present.commit) or nothing),
        ("strategy", str(strategy) if strategy else None),
        ("outcome", str(entry.detail["outcome"]) if "outcome" in entry.detail else None),
        ("cwd", str(entry.detail["cwd"]) if "cwd" in entry.detail else None),
    ]
    rows += _network(entry.detail)
    rows += [("conflict", f"{path}: {why}") for path, why in _mapping(entry.detail, "conflicts")]
    if entry.command_id in ask.waiting_commands(store):
        rows.append(("not applied", str(entry.detail.get("held", "it still runs"))))
    if target.holder is not None:
        rows.append(("now part of", f"{target.holder.command_id} ({target.holder.command})"))
    if b"" in store.ledger.reversed_paths(entry.seq):
        rows.append(("undone", "yes"))
    context.output.table([(Styled(k, "dim"), v) for k, v in rows if v is not None], whole=True)


def _network(detail: Mapping[str, object]) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    for name, label in (("scopes_used", "reached"), ("net_denied", "refused")):
        scopes = detail.get(name)
        if isinstance(scopes, list):
            found.append((label, ", ".join(map(str, scopes))))
    return found


def _mapping(detail: Mapping[str, object], name: str) -> Iterable[tuple[str, object]]:
    found = detail.get(name)
    return found.items() if isinstance(found, dict) else ()


def _show_other(store: HistoryStore, target: Target, context: Context) -> int:
    """Sessions, recovery refs and bare commits."""
    document: dict[str, object] = {"id": target.text}
    if target.session is not None:
        session = target.session
        entries = store.ledger.live(session_id=session.session_id)
        document |= {
            "session_id": session.session_id,
            "agent_id": session.agent_id,
            "started": clock.iso(session.started_ns),
            "closed": clock.iso(session.closed_ns) if session.closed_ns else None,
            "entries": [e.command_id for e in entries],
        }
    else:
        document |= {"recovery_ref": target.recovery, "commit": hex_or_none(target.commit)}
    if context.json:
        context.output.emit_json(document)
        return EXIT_OK
    for key, value in document.items():
        shown = ", ".join(value) if isinstance(value, list) else value
        context.output.line(f"{key}: {shown if shown is not None else '-'}")
    return EXIT_OK
