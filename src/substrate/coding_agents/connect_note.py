"""``$SUBSTRATE_HOME/connect.json``: what `connect` added where, so that it can be removed exactly.

The note holds places in files, never their contents: settings hold API keys.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from substrate.coding_agents.agent import Scope
from substrate.coding_agents.text_insertions import Extended, without_ranges
from substrate.errors import DamagedStoreError
from substrate.system.files import read_bytes_or_none, write_atomic

_VERSION = 1
NAME = "connect.json"


class Addition(NamedTuple):
    """What was added to one file, and for which agents."""

    #: The file as the agent names it.
    path: str
    agents: tuple[str, ...]
    scope: Scope
    #: The project's root, for the scopes `project` and `local`.
    project: str
    #: What the file held after the edit.
    sha256: str
    inserted: tuple[tuple[int, int], ...]
    containers: tuple[tuple[str, ...], ...]
    made_file: bool
    made_directories: tuple[str, ...]

    def exact_original(self, text: str) -> str | None:
        """The file as it was before; None if it was edited since."""
        return without_ranges(text, self.inserted) if digest(text) == self.sha256 else None


class Note(NamedTuple):
    """All additions, by the real path of the file."""

    files: dict[str, Addition]

    def without(self, real: str) -> Note:
        return Note({path: one for path, one in self.files.items() if path != real})


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def addition_of(extended: Extended, base: Addition) -> Addition:
    """`base` with the places that an edit added."""
    return base._replace(
        sha256=digest(extended.text),
        inserted=extended.inserted,
        containers=tuple(dict.fromkeys((*base.containers, *extended.containers))),
    )


def load(substrate_home: Path) -> Note:
    """The note; empty if there is none."""
    path = substrate_home / NAME
    data = read_bytes_or_none(path)
    if data is None:
        return Note({})
    try:
        found = json.loads(data)
        return Note({real: _addition(one) for real, one in found["files"].items()})
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DamagedStoreError(
            f"{path} is damaged",
            hint="move it away; `substrate disconnect` then removes what it finds in the settings",
        ) from None


def covers(substrate_home: Path, agent: str, project: Path) -> bool:
    """Whether the user has connected the agent for all projects, or for this one."""
    try:
        noted = load(substrate_home).files.values()
    except DamagedStoreError:
        return False
    return any(
        agent in one.agents and (one.scope == "user" or one.project == str(project))
        for one in noted
    )


def save(substrate_home: Path, note: Note) -> None:
    """Replace the note."""
    document = {
        "version": _VERSION,
        "files": {real: one._asdict() for real, one in sorted(note.files.items())},
    }
    data = json.dumps(document, indent=1).encode() + b"\n"
    write_atomic(substrate_home / NAME, data)


def _addition(one: dict[str, Any]) -> Addition:
    return Addition(
        path=one["path"],
        agents=tuple(one["agents"]),
        scope=one["scope"],
        project=one["project"],
        sha256=one["sha256"],
        inserted=tuple((start, size) for start, size in one["inserted"]),
        containers=tuple(tuple(keys) for keys in one["containers"]),
        made_file=one["made_file"],
        made_directories=tuple(one["made_directories"]),
    )
