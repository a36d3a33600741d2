"""A command where no history is kept: it runs and is traced, with an fs_diff from two listings."""

from __future__ import annotations

from substrate.recorder.command import span_end
from substrate.recorder.command.command_request import CommandRequest, Recording
from substrate.recorder.command.running_command import replay_context, run_request
from substrate.recorder.command.unrecorded_changes import NOTE, Unrecorded, kept_notes
from substrate.recorder.session_context import Place
from substrate.system import clock, ids
from substrate.trace import TraceWriter, spans
from substrate.world import World


def run_unrecorded(place: Place, world: World, request: CommandRequest) -> Recording:
    """No history here: the command still runs and is traced, unless the user wants no record."""
    if place.workspace.is_unwanted:
        return _run_unnoticed(place, world, request)
    trace = TraceWriter.of(place.environment)
    session = place.session or ids.new_id("s")
    command = spans.Command(
        session, ids.new_id("c"), ids.new_id("spn"), place.environment.parent_span,
        place.agent_id, place.workspace.root, place.cwd, request.argv, request.shell,
    )  # fmt: skip
    trace.append(spans.command_start(command, clock.now_ns(), world.isolation))
    watched = Unrecorded(place)
    outcome = world.run(run_request(place, request, session, command.span_id))
    found = watched.changes(command.command_id)
    extra: dict[str, object] = {"history": place.workspace.history_refused, NOTE: found.note}
    if found.kept_in is not None:
        extra["kept_in"] = str(found.kept_in)
    completion = span_end.completion_of(outcome, found.diff, None, None)._replace(extra=extra)
    trace.append(spans.command_complete(command, completion, replay_context(place, command)))
    return Recording(
        outcome, command.command_id, command.span_id, session, None, [],
        place.workspace.refusal, kept_notes(found),
    )  # fmt: skip


def _run_unnoticed(place: Place, world: World, request: CommandRequest) -> Recording:
    """Recording is paused, or not wanted for this command: it leaves no trace either."""
    session, span_id = place.session or ids.new_id("s"), ids.new_id("spn")
    outcome = world.run(run_request(place, request, session, span_id))
    return Recording(outcome, ids.new_id("c"), span_id, session, None, [], place.workspace.refusal)
