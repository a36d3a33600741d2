"""Show one entry of history."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from substrate.cli.frame import Styled
from substrate.cli.render import (
    entry_json,
    hex_or_none,
    is_in_workspace,
    place_of,
    ref_rows,
    show_target,
    when,
)
from substrate.coding_agents import typed
from substrate.errors import EXIT_OK, NotFoundError
from substrate.model import display, hold_causes_json, hold_words
from substrate.recorder import queries, resolve

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Mapping

    from substrate.cli.frame import Context
    from substrate.recorder import Entry, HistoryStore, Place, Target

NAME = "show"
HELP = "show one command: its record and the files it changed"
EXAMPLE = "substrate show @"

_SHOWN_FILES = 50
#: Not shown: the exact arguments may contain secrets, and the others are packed data.
_PRIVATE = ("exact", "excluded", "git_created")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "id", nargs="?", default="@", metavar="ID",
        help="command, prompt, span, session, commit, tag; default: @, the last command",
    )  # fmt: skip


def run(args: Namespace, context: Context) -> int:
    place = place_of(context)
    with place.existing_history() as store:
        target = _find(store, place, args.id)
        if target.entry is None:
            show_target(store, target, context.output)
            return EXIT_OK
        entry = target.entry
        changed = queries.changed_files(store, target.present)
        if context.json:
            document = entry_json(entry, changed)
            document["detail"] = _shown_detail(entry)
            document["squashed_into"] = target.holder.command_id if target.holder else None
            document["undone"] = b"" in store.ledger.reversed_paths(entry.seq)
            document |= _held_json(store, entry)
            context.output.emit_json(document)
            return EXIT_OK
        _for_people(store, target, context)
        listed = [(path, "") for path in changed]
        listed += [(path, "  (excluded)") for path in queries.excluded_files(entry)]
        for path, mark in listed[:_SHOWN_FILES]:
            context.output.line("  ", display(path), mark)
        if len(listed) > _SHOWN_FILES:
            context.output.line(f"  … and {len(listed) - _SHOWN_FILES} more")
    return EXIT_OK


def _find(store: HistoryStore, place: Place, text: str) -> Target:
    try:
        return resolve(store, text, place.session)
    except NotFoundError as error:
        if is_in_workspace(place, text):
            raise NotFoundError(
                error.message,
                hint=f"for the commands that changed a file: substrate log --path {quote(text)}",
            ) from None
        raise


def _for_people(store: HistoryStore, target: Target, context: Context) -> None:
    entry = target.entry
    assert entry is not None
    isolation = entry.detail.get("isolation")
    strategy = isolation.get("strategy") if isinstance(isolation, dict) else None
    is_part, parts = "part" in entry.detail, entry.detail.get("parts")
    moved = ref_rows(entry.detail.get("git"))
    nothing = "none since its last part" if parts else "none: nothing changed"
    held = queries.held_state(store, entry)
    if held is not None:
        nothing = "none: its change was held"
    elif not parts and queries.excluded_files(entry):
        nothing = "none: only excluded files changed"
    elif not parts and moved:
        nothing = "none: only branches changed"
    rows: list[tuple[str, str | None]] = [
        ("command", typed(entry.command)),
        ("id", entry.command_id),
        ("kind", entry.kind),
        ("session", entry.session_id),
        ("agent", entry.agent_id),
        ("prompt", _text(entry.detail, "prompt_id")),
        ("model", _text(entry.detail, "model")),
        ("tool", " ".join(str(v) for _, v in _mapping(entry.detail, "tool") if v) or None),
        ("sub-agent", " ".join(str(v) for _, v in _mapping(entry.detail, "subagent") if v) or None),
        ("recorded by", _text(entry.detail, "recorded_by")),
        ("when", when(entry.ts_ns) + " UTC"),
        ("exit", None if entry.exit is None else str(entry.exit)),
        ("took", None if entry.duration_ms is None else f"{entry.duration_ms} ms"),
        ("part", f"{entry.detail['part']} of {entry.detail['of']}" if is_part else None),
        ("parts", str(parts) if parts else None),
        ("commit", hex_or_none(target.present.commit) or nothing),
        ("strategy", str(strategy) if strategy else None),
        ("check", _check(entry.detail)),
        ("outcome", None if held else _outcome(entry.detail)),
        ("cwd", str(entry.detail["cwd"]) if "cwd" in entry.detail else None),
    ]
    rows += moved
    rows += _network(entry.detail)
    rows += _refused_writes(entry.detail)
    rows += [("conflict", f"{path}: {why}") for path, why in _mapping(entry.detail, "conflicts")]
    rows += [("uncertain", str(path)) for path in _list(entry.detail, "uncertain")]
    if entry.detail.get("forgotten"):
        rows.append(("forgotten", ", ".join(map(str, _list(entry.detail, "forgotten")))))
    if held is not None:
        rows += _held_rows(entry, *held)
    elif entry.command_id in queries.waiting_commands(store):
        rows.append(("not applied", "it is still running"))
    if entry.detail.get("outcome") == "applied" and "of" in entry.detail:
        rows.append(("applied for", str(entry.detail["of"])))
    rows += _squash(entry.detail) if entry.kind == "squash" else []
    if target.holder is not None:
        rows.append(("now part of", f"{target.holder.command_id} ({target.holder.command})"))
    if b"" in store.ledger.reversed_paths(entry.seq):
        rows.append(("undone", "yes"))
    context.output.table([(Styled(k, "dim"), v) for k, v in rows if v is not None], whole=True)


def _held_rows(
    entry: Entry, state: queries.HeldState, applied: Entry | None
) -> list[tuple[str, str | None]]:
    """What became of a held change, and what to type next."""
    world, why = _text(entry.detail, "world") or "wld_…", hold_words(queries.hold_causes(entry))
    if state is queries.HeldState.WAITING:
        return [
            ("held", f"not applied: {why}"),
            ("look", f"substrate world diff {world}"),
            ("apply", f"substrate world apply {world}"),
            ("discard", f"substrate world discard {world}"),
        ]
    if state is queries.HeldState.APPLIED and applied is not None:
        later = f"{when(applied.ts_ns)} UTC, as {applied.command_id}"
        return [("held", why), ("applied", later), ("diff", f"substrate diff {applied.command_id}")]
    if state is queries.HeldState.DISCARDED:
        again = f"while the trash keeps it: substrate world apply {world}"
        return [("held", why), ("discarded", "its change is not in your files"), ("apply", again)]
    return [("held", f"{why}; it was applied or removed since")]


def _held_json(store: HistoryStore, entry: Entry) -> dict[str, object]:
    held = queries.held_state(store, entry)
    if held is None:
        return {}
    state, applied = held
    return {"held_state": state.value, "applied_as": applied.command_id if applied else None}


def _outcome(detail: Mapping[str, object]) -> str | None:
    found = _text(detail, "outcome")
    return found.replace("_", " ") if found else None


def _check(detail: Mapping[str, object]) -> str | None:
    """How the check of the call ended, and where its output is."""
    found = dict(_mapping(detail, "check"))
    if not found:
        return None
    ended = "passed" if found.get("passed") else f"failed with exit {found.get('exit')}"
    kept = found.get("output")
    ref = kept.get("ref") if isinstance(kept, dict) else None
    return f"{found.get('command')}: {ended}" + (f" (output: {ref})" if ref else "")


def _shown_detail(entry: Entry) -> dict[str, object]:
    shown = {name: value for name, value in entry.detail.items() if name not in _PRIVATE}
    causes = queries.hold_causes(entry)
    if causes:
        shown |= {"held": hold_words(causes), "held_causes": hold_causes_json(causes)}
    return shown


def _text(detail: Mapping[str, object], name: str) -> str | None:
    found = detail.get(name)
    return str(found) if found else None


def _squash(detail: Mapping[str, object]) -> list[tuple[str, str | None]]:
    """What a squash contains, and why it was made."""
    held = [f"{count} {kind}" for kind, count in _mapping(detail, "kinds")]
    named = detail.get("sessions")
    return [
        ("holds", ", ".join(held) or None),
        ("of sessions", ", ".join(map(str, named)) if isinstance(named, list) else None),
        ("squashed", str(detail["reason"]) if "reason" in detail else None),
    ]


def _network(detail: Mapping[str, object]) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    labels = (("scopes_used", "reached"), ("net_failed", "no answer"), ("net_denied", "refused"))
    for name, label in labels:
        scopes = detail.get(name)
        if isinstance(scopes, list):
            found.append((label, ", ".join(map(str, scopes))))
    return found


def _refused_writes(detail: Mapping[str, object]) -> list[tuple[str, str | None]]:
    found = [one for one in _list(detail, "fs_denied") if isinstance(one, dict)]
    rows: list[tuple[str, str | None]] = [
        ("write refused", f"{one.get('path')} ({one.get('call')})") for one in found
    ]
    if detail.get("fs_denied_notice"):
        rows.append(("", f"there may be more: {detail['fs_denied_notice']}"))
    elif found:
        rows.append(("", "no other write was refused" if len(found) < 100 else "the span has all"))
    return rows


def _list(detail: Mapping[str, object], name: str) -> list[object]:
    found = detail.get(name)
    return found if isinstance(found, list) else []


def _mapping(detail: Mapping[str, object], name: str) -> Iterable[tuple[str, object]]:
    found = detail.get(name)
    return found.items() if isinstance(found, dict) else ()
