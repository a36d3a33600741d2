"""The answer of undo, redo, rollback and restore, as JSON and for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from substrate.cli.frame import Output, Piece, Styled, clip, plural, safe, width
from substrate.cli.render.entry_render import command_line, hex_or_none
from substrate.errors import EXIT_DIFFERENT, EXIT_OK, EXIT_REFUSED
from substrate.model import display, name_fields
from substrate.recorder import plan_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrate.model import RelPath
    from substrate.recorder import Outcome

_SHOWN_NAMES = 20
#: On a very narrow terminal a command keeps at least this many columns.
_LEAST_TEXT = 12


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
        "kept": [display(path) for path in outcome.kept],
        "recovery_ref": outcome.recovery_ref,
        "recover_with": recover_with(outcome),
        "notes": outcome.notes,
        "passed_over": outcome.passed_over,
        "refs": list(outcome.refs),
        "base_known": outcome.base_known,
    }
    if any("encoded" in name_fields(path) for path in everything):
        out["encoded"] = True
    return out


def recover_with(outcome: Outcome) -> str | None:
    """The command that brings back what was replaced, branches included."""
    undo = f"substrate undo {outcome.entry.command_id}" if outcome.entry else None
    if undo and (outcome.refs or outcome.git_files):
        return f"{undo} --with-git"
    if outcome.recovery_ref is None:
        # Nothing was replaced, so there is no snapshot: the entry itself can be undone.
        return undo if outcome.restored or outcome.deleted else None
    return f"substrate recover restore {outcome.recovery_ref.rpartition('/')[2]}"


def show_reversal(output: Output, outcome: Outcome | None, *, dry_run: bool) -> int:
    """Print what was done and how to reverse it; conflicts determine the exit status.

    A dry run says what it plans. None: the user cancelled it.
    """
    if outcome is None:
        output.line("cancelled: nothing was changed")
        return EXIT_REFUSED
    if output.json:
        document = outcome_json(outcome)
        if dry_run:
            document["dry_run"] = True
            document["what"] = outcome.what
            document["plan_id"] = plan_id(outcome)
            document["plan"] = [*outcome.plan.describe(), *outcome.besides]
        output.emit_json(document)
        return _status(outcome)
    if outcome.passed_over:
        output.note(
            f"passed over {plural(outcome.passed_over, 'newer command')} that changed nothing"
        )
    if dry_run:
        _show_plan(output, outcome)
    else:
        _show_done(output, outcome)
    _list(output, "kept as it is", outcome.kept, "yellow")
    for path, why in outcome.conflicts.items():
        output.line(Styled("conflict", "red"), f"  {display(path)}: {why}")
    for note in outcome.notes:
        output.note(note)
    command = recover_with(outcome)
    if command:
        output.line("to take this back: ", Styled(command, "cyan"))
    return _status(outcome)


def _show_plan(output: Output, outcome: Outcome) -> None:
    heading = _heading(outcome, _PLANNED)
    _line_with(output, Styled(heading.start, "bold"), heading.text, "  (dry run)")
    _list_commands(output, outcome, _PLANNED)
    for line in [*outcome.plan.describe(), *outcome.besides] or ["nothing would change"]:
        output.line(line)


def _show_done(output: Output, outcome: Outcome) -> None:
    entry = outcome.entry
    if outcome.conflicts and entry is None:
        output.line("nothing was changed: every path is in conflict with later work")
    elif outcome.kept and entry is None:
        output.line("nothing was taken back: every path in conflict keeps its present state")
    elif outcome.incomplete and entry is None:
        output.line("nothing was changed")
    elif not (outcome.refs or outcome.git_files) and (
        entry is None or not (entry.commit or outcome.restored or outcome.deleted)
    ):
        output.line("nothing to change: the files are already that way")
    else:
        heading = _heading(outcome, _DONE)
        files = len({*outcome.restored, *outcome.deleted, *outcome.merged})
        counted = f": {plural(files, 'file')}" if files else ""
        _line_with(output, Styled(heading.start, "bold"), heading.text, counted)
        _list_commands(output, outcome, _DONE)
        _list(output, "restored", outcome.restored, "green")
        _list(output, "deleted", outcome.deleted, "red")
        _list(output, "merged with later work", outcome.merged, "yellow")


class _Words(NamedTuple):
    undo: str
    redo: str
    take_back: str


_DONE = _Words("undid", "redid", "took back")
_PLANNED = _Words("would undo", "would redo", "would take back")


class _Heading(NamedTuple):
    start: str
    #: The text of a command, which is cut to the width of the terminal.
    text: str = ""


def _heading(outcome: Outcome, words: _Words) -> _Heading:
    """What was done to which command; for several, what was asked for."""
    subject, commands = outcome.subject, outcome.commands
    if subject is not None and len(commands) == 1:
        verb = words.redo if outcome.is_redo else words.undo
        return _Heading(f"{verb} {commands[0].command_id}", command_line(commands[0]))
    if subject is not None:
        return _Heading(f"{words.take_back} {subject.command_id}", command_line(subject))
    return _Heading(outcome.entry.command if outcome.entry else outcome.what)


def _list_commands(output: Output, outcome: Outcome, words: _Words) -> None:
    """The commands, where the heading does not name the only one."""
    commands = outcome.commands
    if outcome.subject is not None and len(commands) == 1:
        return
    verb = words.redo if outcome.is_redo else words.undo
    for one in commands[:_SHOWN_NAMES]:
        _line_with(output, f"  {verb} {one.command_id}", command_line(one))
    if len(commands) > _SHOWN_NAMES:
        output.line(f"  … and {len(commands) - _SHOWN_NAMES} more commands")


def _line_with(output: Output, start: Piece, text: str, end: str = "") -> None:
    """One line with a command's text in it, which alone is cut to the terminal's width."""
    if not text:
        output.line(start, end)
        return
    text = safe(text)
    if output.is_terminal:
        taken = width(start.text if isinstance(start, Styled) else start) + 2 + width(end)
        text = clip(text, max(output.columns - taken, _LEAST_TEXT))
    output.line(start, f"  {text}{end}")


def _status(outcome: Outcome) -> int:
    return EXIT_DIFFERENT if outcome.conflicts or outcome.incomplete else EXIT_OK


def _list(output: Output, label: str, paths: Sequence[RelPath], style: str) -> None:
    for path in paths[:_SHOWN_NAMES]:
        piece: Piece = Styled(label, style)  # type: ignore[arg-type]  # callers pass Style literals
        output.line("  ", piece, f"  {display(path)}")
    if len(paths) > _SHOWN_NAMES:
        output.line(f"  … and {len(paths) - _SHOWN_NAMES} more {label}")
