"""Whether the programs that a project registers as tools may run in a replay.

They run outside any world, and `.ctx/config.json` may have come with a clone. So the user confirms
each set of tools once per project. A changed configuration must be confirmed again, and so must a
changed program inside the project, where any command in a world can write.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from substrate.errors import RefusedError
from substrate.packs.store import Store
from substrate.system import Environment
from substrate.system.files import files

_NAME = "trusted-tools"


def require(environment: Environment, store: Store, names: Sequence[str], *, given: bool) -> None:
    """Raise `RefusedError` unless these tools were trusted before, or trust is `given` now."""
    memory = environment.substrate_home / _NAME
    mark = _mark(store)
    if mark in _marks(memory):
        return
    if not given:
        raise RefusedError(
            f"{store.directory / 'config.json'} has programs run for {', '.join(names)}, outside"
            " any world, and you have not allowed them as they are now",
            hint="read it; then `ctx replay --trust-tools …` runs them, now and from now on",
        )
    memory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    files.write_atomic(memory, "".join(f"{one}\n" for one in [*_marks(memory), mark]).encode())


def _mark(store: Store) -> str:
    """A hash of this project's tools as they are configured now."""
    tools = store.config().get("tools")
    said = {
        "project": str(store.directory.resolve()),
        "tools": tools,
        "programs": _programs(tools, store.directory.parent),
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def _programs(tools: object, project: Path) -> list[str]:
    """Hashes of the files that the tools' commands name by a path, in order."""
    found: list[str] = []
    for one in tools.values() if isinstance(tools, dict) else ():
        command = one.get("command") if isinstance(one, dict) else None
        words = [command] if isinstance(command, str) else command
        if not isinstance(words, list):
            continue
        # All words, because a script may follow its interpreter.
        paths = [project / word for word in words if isinstance(word, str) and os.sep in word]
        found += [hashlib.sha256(p.read_bytes()).hexdigest() for p in paths if p.is_file()]
    return found


def _marks(memory: Path) -> list[str]:
    return (files.read_bytes_or_none(memory) or b"").decode("ascii", "replace").split()
