"""What to run and record, and what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from substrate.history.store import Entry
from substrate.model import Change, HoldCause, hold_words
from substrate.recorder.command import not_arrived
from substrate.recorder.command.check_change import Check, Checked
from substrate.recorder.command.nested_requests import Inside
from substrate.recorder.command.not_arrived import NotArrived
from substrate.world import Capture, Network, ResourceLimits, RunOutcome


class CommandRequest(NamedTuple):
    """What to run: `argv`, or a shell command line."""

    cwd: Path
    argv: tuple[str | bytes, ...] = ()
    shell: str | bytes = ""
    timeout_s: float | None = None
    kill_children: bool = False
    #: Record it while it runs, by watching, and not only at its end.
    live: bool = False
    #: Do not apply the change: `substrate world apply` can do it later.
    hold: bool = False
    #: The change arrives only if this passes; needs a world.
    check: Check | None = None
    #: File descriptors instead of our own.
    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None
    pty: bool = False
    capture: Capture | None = None
    limits: ResourceLimits = ResourceLimits()
    network: Network | None = None
    #: The world exists already: its id, and, if it was written to, see `InWorld.made_from`.
    world_id: str = ""
    made_from: tuple[bytes, int] | None = None
    #: Answers calls from inside the command's world; `None`: they are not answered.
    inside: Inside | None = None


class Recording(NamedTuple):
    """The result of a command. `entry` is None where no history is kept."""

    outcome: RunOutcome
    command_id: str
    span_id: str
    session_id: str
    entry: Entry | None
    changes: list[Change]
    #: Why there is no history here, if there is none.
    no_history: str
    #: Sentences that the user should see.
    notes: tuple[str, ...] = ()
    #: The held world, and why it is held; empty if everything has arrived.
    world_id: str = ""
    causes: tuple[HoldCause, ...] = ()
    #: What kept the change out of the tree, unless the user asked for a hold.
    not_arrived: NotArrived | None = None
    #: How its check ended, if it had one that ran.
    checked: Checked | None = None

    @property
    def held(self) -> str:
        """Why it is held, for people; empty if everything has arrived."""
        return hold_words(self.causes)

    @property
    def status(self) -> int:
        """The exit status of the call: the command's own, or 122."""
        own = self.outcome.exit
        return own if self.not_arrived is None else not_arrived.status(own)
