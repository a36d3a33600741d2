"""Import everything before the first command needs it.

No list says which modules a command needs, because many are imported where they are used. So a
command is rehearsed: a fork runs `true` in a scratch workspace and reports what it had to import.
The same for a report of a coding agent's hook.
If commands cannot run here at all, that also shows early, in the log.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from substrate.system import environment
from substrate.system.files import files
from substrate.system.process import fork_workers

#: Runs the command line on some arguments and returns its status.
Program = Callable[[list[str]], int]
#: What the end of a command may need beyond the rehearsal: worlds made ahead, holds, crash reports.
#: The install may be removed while a command runs: its end must still be recorded and answered.
_NOT_REHEARSED = (
    "substrate.history.store.preopen",
    "substrate.system.linux.rename_equivalence",
    "substrate.world.prewarm.parked_layers",
    "substrate.recorder.arrival.held_worlds",
    "substrate.cli.frame.crash_report",
)
#: A hook's report, as far as the rehearsal needs it.
_REPORT: dict[str, object] = {
    "session_id": "rehearsal", "prompt_id": "rehearsal", "prompt": "rehearsal",
    "tool_name": "Edit", "tool_use_id": "rehearsal", "tool_input": {"file_path": "file"},
    "tool_response": {"originalFile": "", "oldString": "", "newString": "rehearsal\n"},
}  # fmt: skip


def preload(program: Program, scratch: Path) -> None:
    """Import what a rehearsal imports. On any error, commands just start more slowly."""
    try:
        files.remove_tree(scratch)
        (scratch / "project").mkdir(parents=True, mode=0o700)
        rehearsal = fork_workers.fork(lambda: _rehearse(program, scratch))
        learned = rehearsal.answer() if rehearsal is not None else None
    except OSError:
        return
    finally:
        try:
            files.remove_tree(scratch)
        except OSError:
            pass  # a mount that is still there; the next daemon tries again
    for name in (*(learned if isinstance(learned, list) else ()), *_NOT_REHEARSED):
        if name not in sys.modules:
            try:
                importlib.import_module(name)
            except Exception:  # noqa: BLE001  a module that only its importer understands
                continue


def _rehearse(program: Program, scratch: Path) -> list[str]:
    os.setsid()
    kept = {
        name: value
        for name, value in environment.current().variables.items()
        if name in ("PATH", "LANG", "LC_ALL", "TMPDIR")
    }
    kept.update(HOME=str(scratch), SUBSTRATE_HOME=str(scratch / "home"), SUBSTRATE_DAEMON="off")
    environment.replace({os.fsencode(name): os.fsencode(value) for name, value in kept.items()})
    os.chdir(scratch / "project")
    # Twice: the first call creates the history, every later one finds it.
    for line in ("true", "echo rehearsal > file"):
        program(["-c", line])
    for name in ("UserPromptSubmit", "PreToolUse", "PostToolUse"):
        report = json.dumps(_REPORT | {"hook_event_name": name, "cwd": os.getcwd()})
        sys.stdin = io.TextIOWrapper(io.BytesIO(report.encode()))
        program(["hook", "claude-code"])
    return sorted(sys.modules)
