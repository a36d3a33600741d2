"""The span of a tool call that was observed: it ran without a world of ours."""

from __future__ import annotations

from pathlib import Path

from substrate.coding_agents import HookEvent
from substrate.errors import SubstrateError
from substrate.history.record import Recorded
from substrate.recorder.session_context import Place
from substrate.system import clock, ids
from substrate.trace import TraceWriter, fs_diff, spans
from substrate.world import Isolation

_ABOUT = ("prompt_id", "tool", "model", "subagent", "recorded_by", "uncertain")


def write(place: Place, event: HookEvent, recorded: Recorded) -> None:
    """Write it; the entry is recorded already, so a failure is not an error."""
    entry = recorded.entry
    command = spans.Command(
        entry.session_id or "", entry.command_id, entry.span_id or ids.new_id("spn"), None,
        event.agent, place.workspace.root, Path(event.cwd), shell=entry.command,
    )  # fmt: skip
    isolation = Isolation("direct", "none", "open", "a tool of the coding agent, observed")
    completion = spans.Completion(
        clock.now_ns(), entry.exit, entry.duration_ms or 0, fs_diff(recorded.changes), isolation,
        entry.commit.hex() if entry.commit else None, None, "completed",
        extra={name: entry.detail[name] for name in _ABOUT if name in entry.detail},
    )  # fmt: skip
    try:
        TraceWriter.of(place.environment).append(spans.command_complete(command, completion, {}))
    except (SubstrateError, OSError):
        pass
