"""Writing entries: baseline, commands, outside edits, sessions, checkpoints."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.history.record import agent_edits as agent_edits
    from substrate.history.record import agent_sessions as agent_sessions
    from substrate.history.record import checkpoints as checkpoints
    from substrate.history.record import excluded_paths as excluded_paths
    from substrate.history.record import late_entry as late_entry
    from substrate.history.record import live_parts as live_parts
    from substrate.history.record import prompts as prompts
    from substrate.history.record import record_entry as record_entry
    from substrate.history.record import record_named_paths as record_named_paths
    from substrate.history.record import sessions as sessions
    from substrate.history.record import tool_calls as tool_calls
    from substrate.history.record import watched_edits as watched_edits
    from substrate.history.record.agent_sessions import AgentSession as AgentSession
    from substrate.history.record.baseline_race import perhaps_unseen as perhaps_unseen
    from substrate.history.record.checkpoints import Checkpoint as Checkpoint
    from substrate.history.record.decided_parts import DecidedParts as DecidedParts
    from substrate.history.record.excluded_paths import ARRIVED as ARRIVED
    from substrate.history.record.excluded_paths import Excluded as Excluded
    from substrate.history.record.excluded_paths import of_detail as of_detail
    from substrate.history.record.prompts import Prompt as Prompt
    from substrate.history.record.record_entry import ENDED_EARLY as ENDED_EARLY
    from substrate.history.record.record_entry import ON_MOUNTS as ON_MOUNTS
    from substrate.history.record.record_entry import RUNNING as RUNNING
    from substrate.history.record.record_entry import InWorld as InWorld
    from substrate.history.record.record_entry import Recorded as Recorded
    from substrate.history.record.record_entry import Result as Result
    from substrate.history.record.record_entry import Running as Running
    from substrate.history.record.record_entry import ensure_baseline as ensure_baseline
    from substrate.history.record.scan_against_tip import HashOnly as HashOnly
    from substrate.history.record.scan_against_tip import changed_paths as changed_paths
    from substrate.history.record.scan_against_tip import count_files as count_files
    from substrate.history.record.scan_against_tip import edited as edited
    from substrate.history.record.scan_against_tip import observe as observe
    from substrate.history.record.sessions import Session as Session
    from substrate.history.record.tool_calls import ToolCall as ToolCall

__getattr__ = lazy_names(
    __name__,
    {
        "agent_sessions": "AgentSession",
        "baseline_race": "perhaps_unseen",
        "checkpoints": "Checkpoint",
        "decided_parts": "DecidedParts",
        "excluded_paths": "ARRIVED, Excluded, of_detail",
        "prompts": "Prompt",
        "record_entry": (
            "ENDED_EARLY, InWorld, ON_MOUNTS, RUNNING, Recorded, Result, Running, ensure_baseline"
        ),
        "scan_against_tip": "HashOnly, changed_paths, count_files, edited, observe",
        "sessions": "Session",
        "tool_calls": "ToolCall",
    },
)
