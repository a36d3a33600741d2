"""The way a command travels, from its words to its place in history.

    1. history   outside edits get their own commit; the command is announced in the ledger
    2. trace     command_start
    3. world     the command runs
    4. history   what it changed becomes a commit; nothing changed, no commit
    5. trace     command_complete, with the commit

A kill between 1 and 4 leaves the announcement, from which the next call records the rest.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from substrate.errors import SubstrateError
from substrate.history import record
from substrate.history.ledger import Entry
from substrate.history.record import Recorded, Running
from substrate.model.nodes import Change
from substrate.model.paths import RelPath, display
from substrate.recorder.keep import keep_under_cap
from substrate.recorder.place import Place
from substrate.recorder.user_git import git_effect, git_state
from substrate.system import clock, ids, process
from substrate.trace import spans
from substrate.trace.fs_diff import FsDiff, fs_diff
from substrate.trace.writer import TraceWriter
from substrate.world.protocol import RunOutcome, RunRequest, World


class CommandRequest(NamedTuple):
    """What to run: `argv`, or a line for the shell."""

    cwd: Path
    argv: tuple[str | bytes, ...] = ()
    shell: str | bytes = ""
    timeout_s: float | None = None
    kill_children: bool = False


class Recording(NamedTuple):
    """The command as it went. `entry` is None where no history is kept."""

    outcome: RunOutcome
    command_id: str
    span_id: str
    session_id: str
    entry: Entry | None
    changes: list[Change]
    #: Why there is no history here, if there is none.
    no_history: str
    #: Sentences that the user should see.
    notes: tuple[str, ...] = ()


def record_command(place: Place, world: World, request: CommandRequest) -> Recording:
    """Run one command in `world` and write it down."""
    if place.workspace.history_refused:
        return _run_unrecorded(place, world, request)
    trace = TraceWriter.of(place.environment)
    words = spans.Command("", "", "", None, "", place.workspace.root, place.cwd,
                          request.argv, request.shell)  # fmt: skip
    with place.history() as store, store.writing("record a command"):
        running = record.begin(
            store, session=place.session, agent_id=place.agent_id,
            command=spans.command_text(words), exact=_exact(request),
        )  # fmt: skip
    command = _named(words, place, running)
    trace.append(spans.command_start(command, clock.now_ns(), world.isolation))

    git_before = git_state(place.workspace)
    outcome = world.run(_world_request(request, running.session_id, running.span_id))
    effect = git_effect(git_before, git_state(place.workspace))

    recorded = _record(place, running, outcome, request, effect)
    notes = _close_span(trace, _complete(place, command, running, outcome, recorded))
    if "history_lost" in recorded.entry.detail:
        notes.append("the history was removed while the command ran; it starts over from here")
    notes += keep_under_cap(place)
    entry = recorded.entry
    return Recording(
        outcome, entry.command_id, running.span_id, running.session_id, entry, recorded.changes,
        "", tuple(notes),
    )  # fmt: skip


def _close_span(trace: TraceWriter, span: dict[str, object]) -> list[str]:
    """The command is recorded already: a trace that cannot be written is said, not fatal."""
    try:
        trace.append(span)
    except SubstrateError as error:
        return [error.message]
    return []


def _record(
    place: Place,
    running: Running,
    outcome: RunOutcome,
    request: CommandRequest,
    git: dict[str, object],
) -> Recorded:
    detail: dict[str, object] = {
        "isolation": outcome.isolation._asdict(),
        "outcome": _outcome_word(outcome),
        "cwd": display(str(place.cwd).encode("utf-8", "surrogateescape")),
        "exact": _exact(request),
    }
    if git:
        detail["git"] = git
    result = record.Result(outcome.exit, outcome.duration_ms, detail)
    try:
        # Opened anew: the command may have removed the store, and others may have compacted it.
        with place.history() as store, store.writing("record a command"):
            recorded = record.finish(store, running, result)
    except (SubstrateError, OSError) as error:
        reason = error.message if isinstance(error, SubstrateError) else str(error)
        hint = error.hint if isinstance(error, SubstrateError) else ""
        raise SubstrateError(
            f"the command ran (exit {outcome.exit}) but could not be recorded yet: {reason}",
            hint=(hint + "; " if hint else "") + "the next substrate call records what it changed",
        ) from error
    return recorded


def _run_unrecorded(place: Place, world: World, request: CommandRequest) -> Recording:
    """No history here: the command still runs and is traced."""
    trace = TraceWriter.of(place.environment)
    session = place.session or ids.new_id("s")
    command = spans.Command(
        session, ids.new_id("c"), ids.new_id("spn"), place.environment.parent_span,
        place.agent_id, place.workspace.root, place.cwd, request.argv, request.shell,
    )  # fmt: skip
    trace.append(spans.command_start(command, clock.now_ns(), world.isolation))
    outcome = world.run(_world_request(request, session, command.span_id))
    completion = _completion(outcome, FsDiff(), None, None)._replace(
        extra={"history": place.workspace.history_refused}
    )
    trace.append(spans.command_complete(command, completion, _replay_context(place, command)))
    return Recording(
        outcome, command.command_id, command.span_id, session, None, [],
        place.workspace.history_refused,
    )  # fmt: skip


def _world_request(request: CommandRequest, session_id: str, span_id: str) -> RunRequest:
    return RunRequest(
        cwd=request.cwd,
        argv=request.argv,
        shell=request.shell,
        # A nested substrate joins this session and knows its parent.
        env={"SUBSTRATE_SESSION_ID": session_id, "SUBSTRATE_PARENT_SPAN": span_id},
        timeout_s=request.timeout_s,
        kill_children=request.kill_children,
    )


def _named(words: spans.Command, place: Place, running: Running) -> spans.Command:
    return words._replace(
        session_id=running.session_id,
        command_id=running.command_id,
        span_id=running.span_id,
        parent_span=place.environment.parent_span,
        agent_id=place.agent_id,
    )


def _complete(
    place: Place,
    command: spans.Command,
    running: Running,
    outcome: RunOutcome,
    recorded: Recorded,
) -> dict[str, object]:
    commit = recorded.entry.commit
    diff = _with_excluded(fs_diff(recorded.changes), recorded.still_there)
    completion = _completion(
        outcome, diff, commit.hex() if commit else None, running.base_commit.hex()
    )
    extra: dict[str, object] = {}
    if recorded.excluded_gone:
        extra["unprotected"] = [display(path) for path in recorded.excluded_gone]
    for name in ("beside", "git"):
        if name in recorded.entry.detail:
            extra[name] = recorded.entry.detail[name]
    completion = completion._replace(extra=extra)
    return spans.command_complete(command, completion, _replay_context(place, command))


def _with_excluded(diff: FsDiff, still_there: frozenset[RelPath]) -> FsDiff:
    """A file that history leaves out from now on was changed, not deleted."""
    if not still_there:
        return diff
    deletes = tuple(path for path in diff.deletes if path not in still_there)
    mods = tuple(sorted({*diff.mods, *(still_there & {*diff.deletes})}))
    return diff._replace(mods=mods, deletes=deletes)


def _completion(
    outcome: RunOutcome, diff: FsDiff, commit: str | None, base: str | None
) -> spans.Completion:
    return spans.Completion(
        clock.now_ns(), outcome.exit, outcome.duration_ms, diff, outcome.isolation,
        commit, base, _outcome_word(outcome), outcome.scopes_used,
    )  # fmt: skip


def _replay_context(place: Place, command: spans.Command) -> dict[str, object]:
    return spans.replay_context(
        command, place.environment.variables,
        umask=process.current_umask(), stdin=process.stdin_kind(),
    )  # fmt: skip


def _outcome_word(outcome: RunOutcome) -> str:
    if outcome.timed_out:
        return "timed_out"
    if outcome.notice:
        return "not_started"
    return "killed" if outcome.signal else "completed"


def _exact(request: CommandRequest) -> str:
    """The command word for word, for replay; it stays in the private ledger, never in a trace."""
    import json

    if request.argv:
        return json.dumps([_text(arg) for arg in request.argv])
    return _text(request.shell)


def _text(raw: str | bytes) -> str:
    return raw.decode("utf-8", "surrogateescape") if isinstance(raw, bytes) else raw
