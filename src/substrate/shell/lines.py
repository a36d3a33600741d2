"""The world that a shell lives in: a view of the workspace for each line that changes something.

A line's view takes the place of the one before when that one's line is over. Jobs of earlier lines
that go on stay in theirs, by their directory and their open files, and what they write there is
recorded with their line, once the last of them is gone from it. A path from the root leads
everybody to the view of the line that runs.

The view of a line that changed nothing, and left nobody behind, is kept for the next line.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from substrate.errors import SubstrateError, WorldFailedError
from substrate.history import record, settle, unclaimed
from substrate.recorder.held_worlds import collect_detached
from substrate.recorder.place import Place
from substrate.recorder.record_command import CommandRequest
from substrate.recorder.world_choice import overlay_for
from substrate.shell import directory as directories
from substrate.shell.turn import Turn
from substrate.system import clock, ids, process_tree, spawn
from substrate.world import layers
from substrate.world.command import with_reason
from substrate.world.layered import LayeredWorld
from substrate.world.network.command_network import CommandNetwork
from substrate.world.nothing_done import is_untouched
from substrate.world.protocol import Isolation, Layer, RunOutcome, RunRequest
from substrate.world.standing_world import open_standing_world

#: With the listening socket, and the world's init.
OnCall = Callable[[int, int], None]

_REASON = (
    "a line of an interactive shell: what it prints goes to the terminal and is not kept; what "
    "its jobs write by paths from the root after its end belongs to the line that runs then"
)
_LOOKS = 5
_PAUSE_S = 0.01
_HANG_UP_S = 2.0


class Shown(NamedTuple):
    """The view that is at the workspace's path."""

    layer: Layer
    key: str
    #: What history said when it was made, and when that was.
    base: bytes
    since_ns: int


class Lines:
    def __init__(self, place: Place, room: Path, network: CommandNetwork | None) -> None:
        """`room`: an empty directory. Raises `SubstrateError` where no such world can be had."""
        self.place = place
        self._room = room
        workspace = place.workspace
        with place.history() as store, store.writing("open a shell"):
            record.ensure_baseline(store)
            # Where this file system can hold no layer, they lie there.
            settle.sweep_elsewhere(store, place.environment.substrate_home / "worlds")
        made = overlay_for(place)
        assert isinstance(made, LayeredWorld)
        self._world = made
        self._network = network
        self._root = os.path.realpath(workspace.root)
        layer = made.make_layer(ids.new_id("wld"))
        try:
            request = RunRequest(workspace.root, network=network)
            self._standing = open_standing_world(made, request, layer)
        except BaseException:
            layers.remove(layer)
            raise
        self._shell = 0
        self._on_call: OnCall | None = None
        self._shown: Shown | None = None
        try:
            self._show(layer)
        except BaseException:
            self._standing.close()
            raise
        #: Views of lines that are over, in which somebody still is.
        self._lingering: dict[str, Layer] = {}
        self._is_fresh = False
        self._done_with: list[Layer] = []
        #: A view is at rest, and what is in it not yet brought in.
        self._is_due = False
        #: The shell's status and what it left running, once it has ended.
        self.ended: tuple[int, int] | None = None
        #: What the user should be told at the next prompt.
        self.notes: list[str] = []

    # ------------------------------------------------------------------ the shell itself

    @property
    def isolation(self) -> Isolation:
        return with_reason(self._world.isolation, _REASON)

    @property
    def variables(self) -> dict[str, str]:
        """What the shell's environment says of its world."""
        assert self._shown is not None
        found = {"SUBSTRATE_WORLD_ID": self._shown.layer.world_id}
        if self._standing.door >= 0:
            found["SUBSTRATE_BROKER"] = os.fsdecode(self._standing.door_path)
        return found

    @property
    def shell_pid(self) -> int:
        return self._shell

    def start(self, program: spawn.Program) -> None:
        self._shell = self._standing.start(program)

    def heard(self, stopped: Callable[[int], None]) -> dict[int, Callable[[], None]]:
        """Whom to call when a descriptor becomes readable."""

        def init() -> None:
            if self.ended is None:
                self.ended = self._standing.news()
                if self.ended is None:
                    stopped(self._shell)

        news, gone = self._standing.descriptors
        found: dict[int, Callable[[], None]] = {gone: self.collect}
        if self._standing.door >= 0 and self._on_call is not None:
            found[self._standing.door] = self._called
        return found if self.ended is not None else {news: init, **found}

    def answer_by(self, on_call: OnCall | None) -> None:
        """Who answers calls of `substrate` from inside, from now on."""
        self._on_call = on_call

    def _called(self) -> None:
        on_call, self._on_call = self._on_call, None
        if on_call is not None:
            with suppress(OSError):
                on_call(self._standing.door, self._standing.init_pid)

    def hang_up(self) -> None:
        """The shell was killed: what it ran is told what a terminal would tell it."""
        others = self._standing.others(self._shell)
        process_tree.send(others, signal.SIGHUP)
        process_tree.send(others, signal.SIGCONT)
        deadline = clock.monotonic_ns() + int(_HANG_UP_S * 1e9)
        while (left := self._standing.others(self._shell)) and clock.monotonic_ns() < deadline:
            clock.sleep(_PAUSE_S)
        if self.ended is not None:
            self.ended = self.ended[0], len(left)

    def close(self) -> None:
        """The shell is over, and all its lines are recorded."""
        self.tidy()
        if self._network is not None:
            self._network.finish()
        if self.ended is not None and self.ended[1] > 0:
            directories.keep_for(self._room, self._standing.init_pid)
            self._standing.let_go()
        else:
            self._standing.close()
            for layer in self._lingering.values():
                layers.note_kind(layer)
        if self._shown is not None and is_untouched(self._shown.layer):
            layers.remove(self._shown.layer)
        if self._lingering or self._is_due:
            self.notes += collect_detached(self.place)[0]

    # ------------------------------------------------------------------ lines

    def is_touched(self) -> bool:
        """Whether somebody wrote in the view since the last line was over."""
        return self._shown is not None and not is_untouched(self._shown.layer)

    def as_given(self, request: CommandRequest) -> CommandRequest:
        """The request of a line that is to have the view that is shown."""
        shown = self._shown
        if shown is None:
            return request
        made_from = (shown.base, shown.since_ns) if self.is_touched() else None
        return request._replace(world_id=shown.layer.world_id, made_from=made_from)

    def prepare(self) -> None:
        """Before a line: it shall see the workspace as it is now."""
        self.collect()
        if self._shown is None:
            self._try_to_show()
        else:
            layers.look_again(self._shown.layer)
            self._refresh()

    def adopt(self, absent: tuple[bytes, ...] = ()) -> Layer:
        """The view becomes that of a line, which does not see it if any of the `absent` comes."""
        if self._shown is None:
            raise WorldFailedError("no view of the workspace could be made")
        with suppress(WorldFailedError):  # it then sees them, as it would bare
            self._standing.seek(absent)
        self._is_fresh = False
        return self._shown.layer

    def part(self, turn: Turn) -> int:
        """The line is over. How many processes still are in its view; 0: it is at rest."""
        shown = self._shown
        assert shown is not None
        others = self._standing.others(self._shell)
        is_as_it_was = is_untouched(shown.layer) and not layers.new_look(shown.layer)
        if self.ended is None and not others and is_as_it_was:
            return 0
        if self.ended is None and self._is_inside():
            turn.step_aside()
        self._lingering[shown.key] = shown.layer
        self._shown, self._is_fresh = None, True
        stow = self._stow(shown.key) if others else None
        if self.ended is not None:
            with suppress(WorldFailedError):
                self._standing.hide(stow)
        else:
            self._try_to_show(stow)
        for _ in range(1 if others else _LOOKS):
            if shown.key in self._gone():
                return 0
            if not others:
                clock.sleep(_PAUSE_S)
        layers.note_running(shown.layer, self._standing.init_pid)
        self._lingering[shown.key] = shown.layer
        return max(1, len(others))

    def discard(self, layer: Layer) -> None:
        """It has arrived; unless it is shown still, nobody needs it."""
        if self._shown is None or layer != self._shown.layer:
            self._done_with.append(layer)

    def tidy(self) -> None:
        """Nobody waits for this: the prompt is there."""
        while self._done_with:
            layers.remove(self._done_with.pop())

    def after(self) -> None:
        """The line is recorded and has arrived."""
        if self._shown is not None:
            if self._is_fresh:
                self._refresh()
            self._rebase(self._shown)
        self.collect()

    def _rebase(self, shown: Shown) -> None:
        """Who writes in it from now on has seen what history says now."""
        base, since_ns = self._tip(), clock.now_ns()
        # Otherwise it holds what was made from the state before.
        if is_untouched(shown.layer):
            self._shown = shown._replace(base=base, since_ns=since_ns)
            if base != shown.base:
                self._note_origin(self._shown)

    def collect(self) -> None:
        """Bring in what jobs wrote that are gone from their views."""
        if self._lingering:
            self._gone()
        if not self._is_due:
            return
        self._is_due = False
        try:
            self.notes += collect_detached(self.place)[0]
            self._refresh()
        except SubstrateError as error:
            self.notes.append(error.message)

    def _gone(self) -> list[str]:
        """Keys of views at rest; their layers say so, too."""
        try:
            keys = self._standing.gone()
        except WorldFailedError:  # nobody can tell: they are at rest when the world ends
            return []
        for key in keys:
            layer = self._lingering.pop(key, None)
            with suppress(OSError):
                os.rmdir(self._room / key)
            if layer is not None and layer.directory.is_dir():
                layers.note_kind(layer)
                self._is_due = True
        return keys

    def _is_inside(self) -> bool:
        try:
            where = os.readlink(f"/proc/{self._shell}/cwd")
        except OSError:
            return True  # we may not look: better once too often
        return where == self._root or where.startswith(self._root + "/")

    def with_scopes(self, outcome: RunOutcome) -> RunOutcome:
        """What the line reached over the network, with what jobs did meanwhile."""
        if self._network is None:
            return outcome
        scopes = self._network.take()
        return outcome._replace(
            isolation=with_reason(outcome.isolation, self._network.notice), scopes_used=scopes
        )

    # ------------------------------------------------------------------ views

    def _refresh(self) -> None:
        try:
            self._standing.refresh()
        except WorldFailedError as error:
            self.notes.append(f"edits from outside may not be seen: {error.message}")

    def _stow(self, key: str) -> Path:
        """Where the view of a line goes, while its jobs are in it."""
        path = self._room / key
        path.mkdir(0o700)
        return path

    def _try_to_show(self, stow: Path | None = None) -> None:
        try:
            self._show(self._world.make_layer(ids.new_id("wld")), stow)
        except SubstrateError as error:
            with suppress(SubstrateError):
                self._standing.hide(stow)
            self.notes.append(f"the workspace is read-only until the next prompt: {error.message}")

    def _show(self, layer: Layer, stow: Path | None = None) -> None:
        base, since_ns = self._tip(), clock.now_ns()
        try:
            shown = Shown(layer, self._standing.show(layer, stow), base, since_ns)
        except BaseException:
            layers.remove(layer)
            raise
        self._shown = shown
        self._note_origin(shown)

    def _tip(self) -> bytes:
        with self.place.history() as store:
            return store.tip_commit or b""

    def _note_origin(self, shown: Shown) -> None:
        """For whoever finds it after a kill, with something in it that no line has claimed."""
        origin = unclaimed.Origin(
            shown.base.hex(), shown.since_ns, self.place.session, self.place.agent_id
        )
        unclaimed.note(shown.layer.directory, origin)
