"""Have everything imported before the first command asks for it.

Which modules a command needs is not written down anywhere, because many are imported where they
are used. So a command is rehearsed: a fork runs `true` in a scratch workspace and tells what it
had to import. It also shows early, in the log, that commands cannot run here at all.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from substrate.agent.runner import Program
from substrate.system import environment, files, forked


def preload(program: Program, scratch: Path) -> None:
    """Import what a rehearsal imports; whatever goes wrong, commands will just start slower."""
    try:
        files.remove_tree(scratch)
        (scratch / "project").mkdir(parents=True, mode=0o700)
        rehearsal = forked.fork(lambda: _rehearse(program, scratch))
        learned = rehearsal.answer() if rehearsal is not None else None
    except OSError:
        return
    finally:
        try:
            files.remove_tree(scratch)
        except OSError:
            pass  # a mount that lingers; the next agent tries again
    for name in learned if isinstance(learned, list) else ():
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
    kept.update(HOME=str(scratch), SUBSTRATE_HOME=str(scratch / "home"), SUBSTRATE_AGENT="off")
    environment.replace({os.fsencode(name): os.fsencode(value) for name, value in kept.items()})
    os.chdir(scratch / "project")
    # Twice: the first call makes the history, every later one finds it.
    for line in ("true", "echo rehearsal > file"):
        program(["-c", line])
    return sorted(sys.modules)
