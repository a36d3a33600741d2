"""What a verb is given besides its own words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from substrate.cli.output import Output
    from substrate.recorder.place import Place
    from substrate.system.environment import Environment


class Context(NamedTuple):
    """Where the program was started, with what around it, and where its words go.

    `session` and `agent_id` are what `--session` and `--agent-id` said, or None; the
    environment's own wishes are in `environment`, so that a verb can tell the two apart.
    """

    #: Absolute; `-C DIR` has been applied. The process itself does not change directory.
    cwd: Path
    environment: Environment
    output: Output
    json: bool = False
    session: str | None = None
    agent_id: str | None = None
    #: Where it happens, if that is not to be found by `cwd`: for a call from inside a world.
    place: Place | None = None
