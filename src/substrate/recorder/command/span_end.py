"""The second line of a span: how the command ended and where its change is."""

from __future__ import annotations

from substrate.errors import NotArrivedError, SubstrateError
from substrate.history.record import ENDED_EARLY, Running
from substrate.recorder.command import not_arrived
from substrate.recorder.command.finish_command import Done, outcome_word
from substrate.system import clock
from substrate.trace import FsDiff, TraceWriter, spans
from substrate.world import Captured, RunOutcome


def close_span(trace: TraceWriter, span: dict[str, object]) -> list[str]:
    """Write the span; on failure return a note, because the command is already recorded."""
    try:
        trace.append(span)
    except SubstrateError as error:
        return [error.message]
    return []


def close_failed(
    trace: TraceWriter,
    command: spans.Command,
    outcome: RunOutcome,
    error: NotArrivedError,
    replay_context: dict[str, object],
) -> None:
    """Write the span of a command whose change is not in the tree: HTTP clients read it there."""
    extra: dict[str, object] = {"held": error.message}
    if outcome.layer is not None:
        extra["world_id"] = outcome.layer.world_id
    completion = completion_of(outcome, FsDiff(), None, None)._replace(extra=extra)
    if completion.outcome not in ENDED_EARLY:
        completion = completion._replace(outcome=not_arrived.APPLY_FAILED)
    close_span(trace, spans.command_complete(command, completion, replay_context))


def complete(
    command: spans.Command,
    running: Running,
    outcome: RunOutcome,
    done: Done,
    replay_context: dict[str, object],
) -> dict[str, object]:
    commit = done.entry.commit
    completion = completion_of(
        outcome, done.diff, commit.hex() if commit else None, running.base_commit.hex() or None
    )._replace(
        extra={**running.about, **done.extra, "recorded_by": _recorded_by(outcome)},
        conflicts=done.conflicts,
    )
    if outcome.layer is not None:
        completion = completion._replace(outcome=str(done.entry.detail["outcome"]))
    return spans.command_complete(command, completion, replay_context)


def _recorded_by(outcome: RunOutcome) -> str:
    return "observed" if outcome.layer is None else "world"


def completion_of(
    outcome: RunOutcome, diff: FsDiff, commit: str | None, base: str | None
) -> spans.Completion:
    return spans.Completion(
        clock.now_ns(), outcome.exit, outcome.duration_ms, diff, outcome.isolation,
        commit, base, outcome_word(outcome), outcome.scopes_used, outcome.net_denied,
        outcome.net_failed, outcome.fs_denied, outcome.fs_denied_notice,
        stdout=_output(outcome.stdout), stderr=_output(outcome.stderr),
    )  # fmt: skip


def _output(captured: Captured | None) -> spans.Output:
    if captured is None:
        return spans.Output()
    ref = str(captured.path) if captured.path is not None else None
    return spans.Output(captured.sha256, captured.size_bytes, ref)
