"""Which session runs in which process of a coding agent.

MCP carries no session id. But an agent starts both its hooks and its MCP server, at most through
shells: the first ancestor that is no shell is the agent itself.

    claude ── sh ── substrate-hook ── substrate hook      announces the session of `claude`
       └───── substrate-mcp                               asks for the session of `claude`

    $SUBSTRATE_HOME/hooks/processes/<pid>-<start>         agent, newline, the agent's session id

The note is for programs that make mistakes, not against hostile ones of the same user.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from substrate.system.files import make_directory, read_bytes_or_none, write_atomic
from substrate.system.process import process_start_token, process_tree

#: Set by `launcher/door.c`, which a hook's process starts with: PID-START of the agent.
HOOK_AGENT = "SUBSTRATE_HOOK_AGENT"
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "busybox"})
_OURS = "substrate"
_MOST_LEVELS = 16


def announce(substrate_home: Path, variables: Mapping[str, str], agent: str, session: str) -> None:
    """The agent that started this hook works in this session from now on."""
    process = variables.get(HOOK_AGENT) or agent_process()
    if not _is_note(process):
        return
    directory = _directory(substrate_home)
    note = f"{agent}\n{session}".encode("utf-8", "surrogatepass")
    with suppress(OSError):  # without the note, the agent's MCP server can only read
        if read_bytes_or_none(directory / process) == note:
            return
        for above in (directory.parent, directory):
            make_directory(above, 0o700)
        _forget_ended(directory)
        write_atomic(directory / process, note, durable=False)


def session_of_caller(substrate_home: Path) -> str:
    """The agent's own id of the session in which it started this process; empty if unknown."""
    process = agent_process()
    data = read_bytes_or_none(_directory(substrate_home) / process) if _is_note(process) else None
    return (data or b"").partition(b"\n")[2].decode("utf-8", "replace")


def agent_process() -> str:
    """PID-START of the nearest ancestor that is neither a shell nor a part of Substrate."""
    pid = os.getppid()
    for _ in range(_MOST_LEVELS):
        if pid <= 1:
            break
        name = _name(pid)
        if name and name not in _SHELLS and not name.startswith(_OURS):
            return f"{pid}-{process_start_token(pid)}"
        pid = process_tree.parent(pid)
    return ""


def _name(pid: int) -> str:
    data = read_bytes_or_none(Path(f"/proc/{pid}/comm"))
    return (data or b"").decode("utf-8", "replace").strip().lstrip("-")


def _directory(substrate_home: Path) -> Path:
    return substrate_home / "hooks" / "processes"


def _is_note(name: str) -> bool:
    pid, _, start = name.partition("-")
    return name.isascii() and pid.isdecimal() and start.isdecimal()


def _forget_ended(directory: Path) -> None:
    for name in os.listdir(directory):
        pid, _, start = name.partition("-")
        if _is_note(name) and process_start_token(int(pid)) != start:
            with suppress(OSError):
                (directory / name).unlink()
