"""Shared shapes of answers: entries, outcomes, times and sizes, as JSON and for people."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from substrate.cli.output import Output, Piece, Styled, name_fields
from substrate.errors import EXIT_DIFFERENT, EXIT_OK, UsageError
from substrate.model.paths import display
from substrate.recorder.place import Place
from substrate.system import clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrate.cli.context import Context
    from substrate.history.ledger import Entry
    from substrate.history.restore import Outcome
    from substrate.model.nodes import Node
    from substrate.model.paths import RelPath
    from substrate.recorder.record_command import Recording

_SHOWN_NAMES = 20


def place_of(context: Context) -> Place:
    if context.place is not None:
        return context.place
    return Place.at(context.cwd, context.environment, context.session, context.agent_id)


def paths_of(place: Place, texts: Sequence[str] | None) -> tuple[RelPath, ...]:
    return tuple(place.rel_path(text) for text in texts or ())


def is_in_workspace(place: Place, text: str) -> bool:
    """Whether a word that names nothing in history is a file: then it was meant as a path."""
    try:
        return os.path.lexists(place.workspace.root / os.fsdecode(place.rel_path(text)))
    except UsageError:
        return False


def unrecorded(recording: Recording) -> str:
    return f"{recording.no_history}; the command was only traced"


def hex_or_none(oid: bytes | None) -> str | None:
    return oid.hex() if oid else None


def when(ns: int) -> str:
    """For people: seconds are enough, and the day tells more than the zone."""
    return clock.iso(ns)[:19].replace("T", " ")


def size(size_bytes: int) -> str:
    amount = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    raise AssertionError("unreachable")


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
    }
    if any("encoded" in name for name in names):
        out["encoded"] = True
    if "part" in entry.detail:
        out |= {"part": entry.detail["part"], "part_of": entry.detail["of"]}
    if "parts" in entry.detail:
        out["parts"] = entry.detail["parts"]
    return out


def node_json(node: Node) -> dict[str, object] | None:
    if node.kind.value == "absent":
        return None
    out: dict[str, object] = {"kind": node.kind.value}
    if node.kind.value != "symlink":
        out["mode"] = f"{node.mode:04o}"
    if node.oid:
        out["oid"] = node.oid.hex()
    return out


def outcome_json(outcome: Outcome) -> dict[str, object]:
    """The answer of undo, redo, rollback and restore."""
    conflicts = [{**name_fields(path), "reason": why} for path, why in outcome.conflicts.items()]
    everything = [*outcome.restored, *outcome.deleted, *outcome.merged]
    out: dict[str, object] = {
        "command_id": outcome.entry.command_id if outcome.entry else None,
        "commit": hex_or_none(outcome.entry.commit) if outcome.entry else None,
        "restored": [display(path) for path in outcome.restored],
        "deleted": [display(path) for path in outcome.deleted],
        "merged": [display(path) for path in outcome.merged],
        "conflicts": conflicts,
        "recovery_ref": outcome.recovery_ref,
        "recover_with": recover_with(outcome),
        "notes": outcome.notes,
    }
    if any("encoded" in name_fields(path) for path in everything):
        out["encoded"] = True
    return out


def recover_with(outcome: Outcome) -> str | None:
    """The command that brings back what was replaced."""
    if outcome.recovery_ref is None:
        return None
    return f"substrate recover restore {outcome.recovery_ref.rpartition('/')[2]}"


def show_reversal(output: Output, outcome: Outcome, *, dry_run: bool) -> int:
    """The answer of undo, redo, rollback and restore; a dry run says first what it plans."""
    what = outcome.entry.command if outcome.entry else outcome.what
    if dry_run and not output.json:
        output.line(Styled(what, "bold"), "  (dry run)")
    return show_outcome(output, outcome, dry_run=dry_run, done=what)


def show_outcome(output: Output, outcome: Outcome, *, dry_run: bool, done: str) -> int:
    """Say what was done and how to take it back; the exit status follows from conflicts."""
    if output.json:
        document = outcome_json(outcome)
        if dry_run:
            document["dry_run"] = True
            document["what"] = outcome.what
            document["plan"] = outcome.plan.describe()
        output.emit_json(document)
        return EXIT_DIFFERENT if outcome.conflicts else EXIT_OK
    if dry_run:
        lines = outcome.plan.describe()
        for line in lines or ["nothing would change"]:
            output.line(line)
    elif outcome.conflicts and outcome.entry is None:
        output.line("nothing was changed: every path is in conflict with later work")
    elif outcome.entry is None or (outcome.entry.commit is None and not outcome.restored):
        output.line("nothing to change: the files are already that way")
    else:
        output.line(Styled(done, "bold"), f"  ({outcome.entry.command_id})")
        _list(output, "restored", outcome.restored, "green")
        _list(output, "deleted", outcome.deleted, "red")
        _list(output, "merged with later work", outcome.merged, "yellow")
    for path, why in outcome.conflicts.items():
        output.line(Styled("conflict", "red"), f"  {display(path)}: {why}")
    for note in outcome.notes:
        output.note(note)
    command = recover_with(outcome)
    if command:
        output.line("to take this back: ", Styled(command, "cyan"))
    return EXIT_DIFFERENT if outcome.conflicts else EXIT_OK


def _list(output: Output, label: str, paths: Sequence[RelPath], style: str) -> None:
    for path in paths[:_SHOWN_NAMES]:
        piece: Piece = Styled(label, style)  # type: ignore[arg-type]  # callers pass Style literals
        output.line("  ", piece, f"  {display(path)}")
    if len(paths) > _SHOWN_NAMES:
        output.line(f"  … and {len(paths) - _SHOWN_NAMES} more {label}")
