"""How a command ended, by either way: brought in from its world, or found by a scan."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar, cast

from substrate.errors import HalfAppliedError, SubstrateError
from substrate.history import parts, record
from substrate.history.ledger import Entry
from substrate.history.record import Recorded, Running
from substrate.model.nodes import Change
from substrate.model.paths import RelPath, display
from substrate.recorder import git_arrival, worlds
from substrate.recorder.git_outside import code_changed
from substrate.recorder.place import Place
from substrate.recorder.user_git import effect_since
from substrate.trace.fs_diff import FsDiff, fs_diff
from substrate.trace.redact import redact
from substrate.world.protocol import RunOutcome

Value = TypeVar("Value")
_SHOWN_NAMES = 20


class Words(Protocol):
    """What is asked of a request here."""

    @property
    def argv(self) -> tuple[str | bytes, ...]: ...

    @property
    def shell(self) -> str | bytes: ...

    @property
    def hold(self) -> bool: ...


class Done(NamedTuple):
    """A command that is recorded, by either way."""

    entry: Entry
    changes: list[Change]
    diff: FsDiff
    #: More fields for the span.
    extra: dict[str, object]
    conflicts: tuple[RelPath, ...] = ()
    notes: tuple[str, ...] = ()
    held: str = ""
    is_kept: bool = False


def brought_in(
    place: Place,
    running: Running,
    outcome: RunOutcome,
    request: Words,
    git: git_arrival.GitWatch,
    nested: tuple[str, ...] = (),
) -> Done:
    """`nested`: spans of commands that ran inside this one, so that they are found by it."""
    assert outcome.layer is not None
    detail = _detail(place, outcome, request)
    if nested:
        detail["nested_spans"] = list(nested)
    detail["base_known"] = running.base_known
    hold = outcome.broken or ("asked for with --hold" if request.hold else "")
    result = record.Result(outcome.exit, outcome.duration_ms, detail)
    brought = _translated(
        outcome,
        lambda: worlds.bring_in(
            place,
            worlds.Request(running, outcome.layer, result, git, hold, outcome.left_running),  # type: ignore[arg-type]
        ),
    )
    extra: dict[str, object] = {"base_known": running.base_known}
    if "git" in brought.entry.detail:
        extra["git"] = brought.entry.detail["git"]
    extra.update(_world_fields(running, brought))
    notes = list(brought.notes)
    outside = code_changed(git.code, place.workspace) if git.code else []
    if outside:
        extra["runs_code"] = [*cast("list[str]", extra.get("runs_code", [])), *outside]
    if brought.runs_code or outside:
        found = [*(display(path) for path in brought.runs_code), *outside]
        names = ", ".join(found[:_SHOWN_NAMES])
        notes.append(f"this change makes other programs run code: {names}")
    if outcome.left_running and not brought.held:
        notes.append(
            f"{outcome.left_running} process(es) go on in {running.world_id}; what they change is"
            " recorded when they have ended"
        )
    if brought.held:
        notes.append(
            f"not applied, {brought.held}: `substrate world diff {running.world_id}` shows it,"
            f" `substrate world apply {running.world_id}` or `discard` decides"
        )
    return Done(
        brought.entry, brought.changes, fs_diff(brought.changes), extra,
        tuple(brought.conflicts), tuple(notes), brought.held, brought.is_kept,
    )  # fmt: skip


def _world_fields(running: Running, brought: worlds.Brought) -> dict[str, object]:
    extra: dict[str, object] = {}
    if brought.runs_code:
        extra["runs_code"] = [display(path) for path in brought.runs_code]
    if brought.diff.left_out:
        extra["left_out"] = [display(one.path) for one in brought.diff.left_out]
    beyond = [one for one in brought.diff.entries if one.beyond]
    if beyond:
        extra["excluded_changes"] = len(beyond)
    if brought.held:
        extra["world_id"], extra["held"] = running.world_id, brought.held
    if brought.recovery_ref:
        extra["recovery_ref"] = brought.recovery_ref
    return extra


def found_by_scan(
    place: Place,
    running: Running,
    outcome: RunOutcome,
    request: Words,
    git: git_arrival.GitWatch,
) -> Done:
    effect = effect_since(place.workspace, git.state)
    recorded = _record(place, running, outcome, request, effect)
    extra: dict[str, object] = {}
    if recorded.excluded_gone:
        extra["unprotected"] = [display(path) for path in recorded.excluded_gone]
    for name in ("beside", "git", parts.PARTS):
        if name in recorded.entry.detail:
            extra[name] = recorded.entry.detail[name]
    notes: tuple[str, ...] = ()
    if "history_lost" in recorded.entry.detail:
        notes = ("the history was removed while the command ran; it starts over from here",)
    diff = _with_excluded(fs_diff(recorded.changes), recorded.still_there)
    entry = recorded.entry._replace(commit=recorded.last_commit)  # as the span tells it
    return Done(entry, recorded.changes, diff, extra, notes=notes)


def _record(
    place: Place,
    running: Running,
    outcome: RunOutcome,
    request: Words,
    git: dict[str, object],
) -> Recorded:
    detail = _detail(place, outcome, request)
    if git:
        detail["git"] = git
    result = record.Result(outcome.exit, outcome.duration_ms, detail)

    def finish() -> Recorded:
        # Looked at anew: the command may have removed the store.
        with place.history() as store, store.writing("record a command"):
            return record.finish(store, running, result)

    return _translated(outcome, finish)


def _detail(place: Place, outcome: RunOutcome, request: Words) -> dict[str, object]:
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
    return detail


def _translated(outcome: RunOutcome, work: Callable[[], Value]) -> Value:
    """A failure to record is told as what it is: the command did run."""
    try:
        return work()
    except (SubstrateError, OSError) as error:
        reason = error.message if isinstance(error, SubstrateError) else _in_words(error)
        hint = error.hint if isinstance(error, SubstrateError) else ""
        if not isinstance(error, HalfAppliedError):  # that is finished by whoever comes next
            hint += ("; " if hint else "") + _later(outcome)
        raise SubstrateError(
            f"the command ran (exit {outcome.exit}) but could not be recorded yet: {reason}",
            hint=hint,
        ) from error


def _in_words(error: OSError) -> str:
    """Without the number that Python puts in front."""
    where = f": {os.fsdecode(error.filename)}" if error.filename is not None else ""
    return f"{error.strerror}{where}" if error.strerror else str(error)


def _later(outcome: RunOutcome) -> str:
    if outcome.layer is None:
        return "the next substrate call records what it changed"
    world_id = outcome.layer.world_id
    return f"what it changed waits in its world: `substrate world apply {world_id}`"


def _with_excluded(diff: FsDiff, still_there: frozenset[RelPath]) -> FsDiff:
    """A file that history leaves out from now on was changed, not deleted."""
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


def exact(request: Words) -> str:
    """The command word for word, for replay; it stays in the private ledger, never in a trace."""
    import json

    if request.argv:
        return json.dumps([_text(arg) for arg in request.argv])
    return _text(request.shell)


def _text(raw: str | bytes) -> str:
    return raw.decode("utf-8", "surrogateescape") if isinstance(raw, bytes) else raw
