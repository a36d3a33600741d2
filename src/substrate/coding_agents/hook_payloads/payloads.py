"""Choose the format of a hook's input by the agent's name."""

from __future__ import annotations

import os

from substrate.coding_agents.hook_events import HookEvent
from substrate.coding_agents.hook_payloads import (
    claude_code,
    codex,
    cursor,
    gemini_cli,
    opencode,
)
from substrate.coding_agents.hook_payloads.fields import Payload

_PARSERS = {
    "claude-code": claude_code.parse,
    "codex": codex.parse,
    "cursor": cursor.parse,
    "gemini-cli": gemini_cli.parse,
    "opencode": opencode.parse,
}


def parse(agent: str, payload: Payload) -> HookEvent | None:
    parser = _PARSERS.get(agent)
    event = parser(payload) if parser is not None else None
    if event is None or not event.session or not _is_name(event.cwd):
        return None
    return event._replace(edits=tuple(one for one in event.edits if _is_name(one.path)))


def _is_name(path: str) -> bool:
    """Whether a file can have this name."""
    try:
        return bool(path) and b"\0" not in os.fsencode(path)
    except UnicodeEncodeError:
        return False
