"""Finish a command in one of two ways: bring its world's change in, or scan for changes."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

from substrate.errors import (
    HalfAppliedError,
    NotArrivedError,
    SubstrateError,
    WorkspaceMovedError,
)
from substrate.history.record import Recorded, Running, live_parts, record_entry
from substrate.history.store import Entry
from substrate.model import Change, Hold, HoldCause, RelPath, display, hold_causes_json
from substrate.recorder.arrival import Brought, Request
from substrate.recorder.command import excluded_paths, foreign_files, outside_edits
from substrate.recorder.command.check_change import Checked
from substrate.recorder.command.command_request import CommandRequest
from substrate.recorder.command.not_arrived import NotArrived, of_conflicts, world_steps
from substrate.recorder.command.repair_and_retry import mending
from substrate.recorder.command.unrecorded_changes import NOTE
from substrate.recorder.session_context import Place
from substrate.recorder.user_git import Effect, GitWatch, UserGit
from substrate.trace import FsDiff, fs_denied_fields, fs_diff
from substrate.trace.redact import redact
from substrate.workspace.apply import Trash
from substrate.world import RunOutcome

_SHOWN_NAMES = 20
_SHOWN_DENIALS = 100


class Done(NamedTuple):
    """A recorded command, finished in either way."""

    entry: Entry
    changes: list[Change]
    diff: FsDiff
    #: More fields for the span.
    extra: dict[str, object]
    conflicts: tuple[RelPath, ...] = ()
    notes: tuple[str, ...] = ()
    #: Why the change is held; empty if it has arrived.
    causes: tuple[HoldCause, ...] = ()
    is_kept: bool = False
    #: None if the tree has all of the change, or if the call asked for a hold.
    not_arrived: NotArrived | None = None


def arrival_request(
    place: Place, running: Running, outcome: RunOutcome, request: CommandRequest, git: GitWatch,
    nested: tuple[str, ...] = (), *, checked: Checked | None = None,
) -> Request:  # fmt: skip
    """`nested`: spans of commands that ran inside this one; their ids resolve to this entry."""
    assert outcome.layer is not None
    detail = _detail(place, outcome, request)
    if nested:
        detail["nested_spans"] = list(nested)
    detail["base_known"] = running.base_known
    if checked is not None:
        detail["check"] = checked.to_detail()
    hold = _wish_to_hold(outcome, request, checked)
    result = record_entry.Result(outcome.exit, outcome.duration_ms, detail)
    return Request(running, outcome.layer, result, git, hold, outcome.left_running)


def brought_in(
    place: Place, running: Running, outcome: RunOutcome, request: CommandRequest, git: GitWatch,
    arrived: tuple[Brought, list[str]],
) -> Done:  # fmt: skip
    """`arrived`: what came of it, and messages on a repair of the history."""
    brought, mended = arrived
    extra: dict[str, object] = {"base_known": running.base_known}
    for name in ("git", "check"):
        if name in brought.entry.detail:
            extra[name] = brought.entry.detail[name]
    extra.update(_world_fields(running, brought))
    not_arrived = _not_arrived(running, brought, request)
    notes = [*mended, *(brought.notes if not_arrived else brought.with_version)]
    outside = UserGit(place.workspace).code_changed(git)
    if outside:
        extra["runs_code"] = [*cast("list[str]", extra.get("runs_code", [])), *outside]
    if brought.runs_code or outside:
        found = [*(display(path) for path in brought.runs_code), *outside]
        names = ", ".join(found[:_SHOWN_NAMES])
        notes.append(f"this change makes other programs run code: {names}")
    if outcome.left_running and not brought.causes:
        count = outcome.left_running
        processes = "1 process is" if count == 1 else f"{count} processes are"
        arrives = (
            "the daemon brings in what they change when they have ended"
            if outside_edits.tell_left_running(place)
            else "the first recorded command after they have ended brings in what they changed"
        )
        notes.append(f"{processes} still running in {running.world_id}; {arrives}")
    notes += foreign_files.note(place, request, outcome)
    if brought.causes and not_arrived is None:
        notes.append(f"not applied ({brought.held}). {world_steps(running.world_id)}")
    return Done(
        brought.entry, brought.changes, _whole_diff(place, brought), extra,
        tuple(brought.conflicts), tuple(notes), brought.causes, brought.is_kept, not_arrived,
    )  # fmt: skip


def _wish_to_hold(
    outcome: RunOutcome, request: CommandRequest, checked: Checked | None
) -> tuple[HoldCause, ...]:
    if outcome.broken:
        return (HoldCause(Hold.WORLD_FAILED, (outcome.broken,)),)
    asked = (HoldCause(Hold.REQUESTED),) if request.hold else ()
    return (*asked, *(checked.causes if checked is not None else ()))


def _whole_diff(place: Place, brought: Brought) -> FsDiff:
    """The diff, including excluded paths."""
    diff = fs_diff(brought.changes)
    if not any(one.beyond for one in brought.diff.entries) and not brought.excluded.paths():
        return diff
    if brought.causes:
        return diff.with_excluded(excluded_paths.held(brought.diff))
    trash = Trash(place.workspace.store / "trash")
    command_id = brought.entry.command_id
    return diff.with_excluded(
        excluded_paths.arrived(brought.diff, brought.excluded, trash, command_id)
    )


def _not_arrived(running: Running, brought: Brought, request: CommandRequest) -> NotArrived | None:
    if brought.causes:
        if request.hold:
            return None
        entries = sorted(brought.diff.entries, key=lambda one: one.beyond)  # recorded paths first
        paths = tuple(one.path for one in entries) or tuple(c.path for c in brought.changes)
        return NotArrived(brought.held, paths, world_steps(running.world_id))
    if not brought.conflicts:
        return None
    rest = running.world_id if brought.is_left_over else ""
    return of_conflicts(
        brought.entry.command_id,
        brought.conflicts,
        rest,
        is_kept_version=bool(brought.recovery_ref),
    )


def _world_fields(running: Running, brought: Brought) -> dict[str, object]:
    extra: dict[str, object] = {}
    if brought.runs_code:
        extra["runs_code"] = [display(path) for path in brought.runs_code]
    if brought.diff.left_out:
        extra["left_out"] = [display(one.path) for one in brought.diff.left_out]
    beyond = [one for one in brought.diff.entries if one.beyond]
    if beyond:
        extra["excluded_changes"] = len(beyond)
    if brought.causes:
        extra["world_id"], extra["held"] = running.world_id, brought.held
        extra["held_causes"] = hold_causes_json(brought.causes)
    if brought.recovery_ref:
        extra["recovery_ref"] = brought.recovery_ref
    return extra


def found_by_scan(
    place: Place,
    running: Running,
    outcome: RunOutcome,
    request: CommandRequest,
    git: GitWatch,
) -> Done:
    effect = UserGit(place.workspace).effect_since(git.state)
    recorded, mended = _record(place, running, outcome, request, effect)
    extra: dict[str, object] = {}
    if recorded.excluded_gone:
        extra["unprotected"] = [display(path) for path in recorded.excluded_gone]
    for name in ("beside", "git", live_parts.PARTS):
        if name in recorded.entry.detail:
            extra[name] = recorded.entry.detail[name]
    notes = tuple(mended)
    if "history_lost" in recorded.entry.detail:
        notes += ("the history was removed while the command ran; it starts over from here",)
    diff = _with_excluded(fs_diff(recorded.changes), recorded.still_there)
    diff = diff.with_excluded(excluded_paths.unprotected(place, recorded.excluded_gone))
    not_seen = excluded_paths.directories(place, recorded.not_seen)
    if not_seen:
        diff = diff._replace(truncated=True)
        extra[NOTE] = f"without a world, changes in excluded directories are not listed: {not_seen}"
    entry = recorded.entry._replace(commit=recorded.last_commit)  # as the span reports it
    return Done(entry, recorded.changes, diff, extra, notes=notes)


def _record(
    place: Place,
    running: Running,
    outcome: RunOutcome,
    request: CommandRequest,
    git: Effect,
) -> tuple[Recorded, list[str]]:
    detail = _detail(place, outcome, request)
    if git:
        detail["git"] = git
    result = record_entry.Result(outcome.exit, outcome.duration_ms, detail)

    def finish() -> Recorded:
        # Open the history again: the command may have removed the store.
        with place.history() as store, store.writing("record a command"):
            return record_entry.finish(store, running, result)

    with translated(outcome):
        return mending(place, finish)


def _detail(place: Place, outcome: RunOutcome, request: CommandRequest) -> dict[str, object]:
    detail: dict[str, object] = {
        "isolation": outcome.isolation._asdict(),
        "outcome": outcome_word(outcome),
        "cwd": display(str(place.cwd).encode("utf-8", "surrogateescape")),
        "exact": exact(request),
    }
    if outcome.scopes_used:
        detail["scopes_used"] = [redact(scope) for scope in outcome.scopes_used]
    if outcome.net_denied:
        detail["net_denied"] = [redact(scope) for scope in outcome.net_denied]
    if outcome.net_failed:
        detail["net_failed"] = [redact(scope) for scope in outcome.net_failed]
    if outcome.fs_denied or outcome.fs_denied_notice:
        # The entry keeps only the first ones; the span has all of them.
        first = (outcome.fs_denied or ())[:_SHOWN_DENIALS]
        detail |= fs_denied_fields(first, outcome.fs_denied_notice)
    return detail


@contextmanager
def translated(outcome: RunOutcome) -> Iterator[None]:
    """Turn an error into one that says that the command did run."""
    try:
        yield
    except (SubstrateError, OSError) as error:
        reason = error.message if isinstance(error, SubstrateError) else _in_words(error)
        hint = error.hint if isinstance(error, SubstrateError) else ""
        if isinstance(error, WorkspaceMovedError):
            hint += _where_the_world_is(outcome, error)
        elif not isinstance(error, HalfAppliedError):  # the next call finishes that one
            hint += ("; " if hint else "") + _later(outcome)
        message = f"the command ran (exit {outcome.exit}) but could not be recorded yet: {reason}"
        if outcome.layer is None:  # the tree has it
            raise SubstrateError(message, hint=hint) from error
        raise NotArrivedError(message, hint=hint, command_exit=outcome.exit) from error


def _in_words(error: OSError) -> str:
    """The error's text without the errno that Python puts in front."""
    where = f": {os.fsdecode(error.filename)}" if error.filename is not None else ""
    return f"{error.strerror}{where}" if error.strerror else str(error)


def _later(outcome: RunOutcome) -> str:
    if outcome.layer is None:
        return "the next substrate call records what it changed"
    return f"its change is kept in its world. {world_steps(outcome.layer.world_id)}"


def _where_the_world_is(outcome: RunOutcome, error: WorkspaceMovedError) -> str:
    """The world moved with the project: `world list` there shows whether its change arrived."""
    if outcome.layer is None or not error.now_at:
        return ""
    there = f"substrate -C {shlex.quote(error.now_at)} world"
    world_id = outcome.layer.world_id
    return f"; if `{there} list` then shows {world_id}: `{there} apply {world_id}`"


def _with_excluded(diff: FsDiff, still_there: frozenset[RelPath]) -> FsDiff:
    """A file that history excludes from now on was changed, not deleted."""
    if not still_there:
        return diff
    deletes = tuple(path for path in diff.deletes if path not in still_there)
    mods = tuple(sorted({*diff.mods, *(still_there & {*diff.deletes})}))
    return diff._replace(mods=mods, deletes=deletes)


def outcome_word(outcome: RunOutcome) -> str:
    if outcome.timed_out:
        return "timed_out"
    if outcome.notice:
        return "not_started"
    if outcome.left_running:
        return "detached"
    return "killed" if outcome.signal else "completed"


def exact(request: CommandRequest) -> str:
    """The exact command, for replay; it stays in the private ledger and never goes to a trace."""
    import json

    if request.argv:
        return json.dumps([_text(arg) for arg in request.argv])
    return _text(request.shell)


def _text(raw: str | bytes) -> str:
    return raw.decode("utf-8", "surrogateescape") if isinstance(raw, bytes) else raw
