"""What a verb gets besides its own arguments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from substrate.cli.frame.output import Output
    from substrate.recorder import Place
    from substrate.system import Environment


class Context(NamedTuple):
    """The directory and the environment of the call, and where its output goes.

    `session` and `agent_id` are the values of `--session` and `--agent-id`, or None; settings
    from the environment are in `environment`, so that a verb can tell the two apart.
    """

    #: Absolute; `-C DIR` has been applied. The process itself does not change directory.
    cwd: Path
    environment: Environment
    output: Output
    json: bool = False
    session: str | None = None
    agent_id: str | None = None
    #: The place, if it is not found from `cwd`: for a call from inside a world.
    place: Place | None = None
