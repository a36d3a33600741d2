"""What coding agents report by their hooks: sessions, prompts, edits, observed shell commands."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.coding_agents import HOOKED_AGENTS as HOOKED_AGENTS
    from substrate.recorder.agent_events import calling_agent as calling_agent
    from substrate.recorder.agent_events.agreement import as_agreed as as_agreed
    from substrate.recorder.agent_events.take_event import take_report as take_report

__getattr__ = lazy_names(
    __name__,
    {
        "substrate.coding_agents": "HOOKED_AGENTS",
        "agreement": "as_agreed",
        "take_event": "take_report",
    },
)
