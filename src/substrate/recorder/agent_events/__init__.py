"""What coding agents report by their hooks: sessions, prompts, edits, observed shell commands."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.coding_agents import HOOKED_AGENTS as HOOKED_AGENTS
    from substrate.recorder.agent_events import calling_agent as calling_agent
    from substrate.recorder.agent_events.record_event import take_report as take_report
    from substrate.recorder.agent_events.recording_consent import as_agreed as as_agreed

__getattr__ = lazy_names(
    __name__,
    {
        "substrate.coding_agents": "HOOKED_AGENTS",
        "recording_consent": "as_agreed",
        "record_event": "take_report",
    },
)
