"""Shared parts of answers: entries, times and sizes, as JSON and for people."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from substrate.coding_agents import typed
from substrate.errors import UsageError
from substrate.model import display, name_fields
from substrate.recorder import Place, queries
from substrate.system import clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrate.cli.frame import Context
    from substrate.model import Node, RelPath
    from substrate.recorder import Entry, Prompt
    from substrate.recorder.command import Recording

_MOST_EXCLUDED = 1000
#: Fields of an entry's detail that say how a coding agent made it.
_OF_AGENTS = ("tool", "model", "subagent", "uncertain")
#: Descriptions of entries that no command made.
_WITHOUT_COMMAND = {"baseline": "the files as first found", "external": "changed outside Substrate"}


def place_of(context: Context) -> Place:
    if context.place is not None:
        return context.place
    return Place.at(context.cwd, context.environment, context.session, context.agent_id)


def paths_of(place: Place, texts: Sequence[str] | None) -> tuple[RelPath, ...]:
    return tuple(place.rel_path(text) for text in texts or ())


def is_in_workspace(place: Place, text: str) -> bool:
    """Whether an argument that names nothing in history is a file: the user meant a path."""
    try:
        return os.path.lexists(place.workspace.root / os.fsdecode(place.rel_path(text)))
    except UsageError:
        return False


def unrecorded(recording: Recording) -> str:
    return f"{recording.no_history}; the command was only traced"


def hex_or_none(oid: bytes | None) -> str | None:
    return oid.hex() if oid else None


def when(ns: int) -> str:
    """A time for people: date and seconds, without the time zone."""
    return clock.iso(ns)[:19].replace("T", " ")


def size(size_bytes: int) -> str:
    amount = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")


def command_line(entry: Entry) -> str:
    """What was typed, in one line; for an entry without a command, what happened."""
    cause = entry.detail.get("cause")
    if cause:
        return str(cause)
    if entry.kind in _WITHOUT_COMMAND:
        return _WITHOUT_COMMAND[entry.kind]
    first, more, _ = typed(entry.command).strip().partition("\n")
    return f"{first} …" if more else first


def entry_json(entry: Entry, changed: Sequence[RelPath]) -> dict[str, object]:
    """One element of ``log --json``."""
    names = [name_fields(path) for path in changed]
    out: dict[str, object] = {
        "session_id": entry.session_id,
        "command_id": entry.command_id,
        "span_id": entry.span_id,
        "ts": clock.iso(entry.ts_ns),
        "command": entry.command,
        "exit": entry.exit,
        "duration_ms": entry.duration_ms,
        "changed_files": [name["path"] for name in names],
        "substrate_git_commit": hex_or_none(entry.commit),
        "kind": entry.kind,
        "isolation": entry.detail.get("isolation"),
        "agent_id": entry.agent_id,
        "prompt_id": entry.detail.get("prompt_id"),
        "recorded_by": entry.detail.get("recorded_by") or _recorded_by(entry),
    }
    asked_for = typed(entry.command)
    if asked_for != entry.command:
        out["typed"] = asked_for
    out |= {name: entry.detail[name] for name in _OF_AGENTS if name in entry.detail}
    if any("encoded" in name for name in names):
        out["encoded"] = True
    beyond = queries.excluded_files(entry)
    if beyond:
        out["excluded"] = [display(path) for path in beyond[:_MOST_EXCLUDED]]
    if "part" in entry.detail:
        out |= {"part": entry.detail["part"], "part_of": entry.detail["of"]}
    if "parts" in entry.detail:
        out["parts"] = entry.detail["parts"]
    return out


def _recorded_by(entry: Entry) -> str | None:
    isolation = entry.detail.get("isolation")
    if isinstance(isolation, dict):
        return "observed" if isolation.get("strategy") == "direct" else "world"
    return "watched" if entry.kind == "external" else None


def prompt_json(prompt: Prompt) -> dict[str, object]:
    return {
        "prompt_id": prompt.prompt_id,
        "session_id": prompt.session_id,
        "agent_prompt": prompt.agent_prompt or None,
        "text": prompt.text,
        "model": prompt.model,
        "started": clock.iso(prompt.started_ns),
        "ended": clock.iso(prompt.ended_ns) if prompt.ended_ns else None,
    }


def node_json(node: Node) -> dict[str, object] | None:
    if node.kind.value == "absent":
        return None
    out: dict[str, object] = {"kind": node.kind.value}
    if node.kind.value != "symlink":
        out["mode"] = f"{node.mode:04o}"
    if node.oid:
        out["oid"] = node.oid.hex()
    return out
