"""The world that a shell runs in: each line that changes something has its own workspace view.

When a line ends, the next line's view takes the place of its view. Jobs of earlier lines that
keep running stay in their view, through their current directory and their open files. What they
write there is recorded with their line once the last of them has left the view. An absolute path
leads every process to the view of the line that is running now.

If a line changed nothing and left no process behind, the next line uses the same view.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from substrate.errors import SubstrateError, WorldFailedError
from substrate.history.arrival import orphan_worlds
from substrate.history.maintenance import crash_recovery
from substrate.history.record import record_entry
from substrate.recorder import Place
from substrate.recorder.arrival import collect_detached
from substrate.recorder.command import CommandRequest, overlay_for
from substrate.shell import pipe_directory as directories
from substrate.shell.shell_line import Turn
from substrate.system import clock, ids
from substrate.system.process import process_tree, spawn
from substrate.system.sync import liveness_locks
from substrate.world import Isolation, Layer, RunOutcome, RunRequest, with_reason
from substrate.world.layer import is_untouched, layer_dirs
from substrate.world.network import CommandNetwork
from substrate.world.standing import open_standing_world
from substrate.world.strategies import LayeredWorld

#: Called with the listening socket and the pid of the world's init.
OnCall = Callable[[int, int], None]

_REASON = (
    "a line of an interactive shell: what it prints goes to the terminal and is not kept; what "
    "its jobs write by paths from the root after its end belongs to the line that runs then"
)
_LOOKS = 5
_PAUSE_S = 0.01
_HANG_UP_S = 2.0


class Shown(NamedTuple):
    """The view that is mounted at the workspace's path."""

    layer: Layer
    key: str
    #: The tip of the history when the view was made, and the time of that.
    base: bytes
    since_ns: int


class ShellWorld:
    def __init__(self, place: Place, room: Path, network: CommandNetwork | None) -> None:
        """`room`: an empty directory. Raises `SubstrateError` where such a world is impossible."""
        self.place = place
        self._room = room
        workspace = place.workspace
        with place.history() as store, store.writing("open a shell"):
            record_entry.ensure_baseline(store)
            # Where this file system cannot hold layers, they are in that directory.
            crash_recovery.sweep_elsewhere(store, place.environment.substrate_home / "worlds")
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
            layer_dirs.remove(layer)
            raise
        #: Shows that our views are in use. Our standing world ends with us, unless we let it go.
        self._lock = liveness_locks.handle(layer.directory.parent.parent)
        self._shell = 0
        self._on_call: OnCall | None = None
        self._shown: Shown | None = None
        try:
            self._show(layer)
        except BaseException:
            self._standing.close()
            raise
        #: Views of lines that have ended, in which processes are still running.
        self._lingering: dict[str, Layer] = {}
        self._is_fresh = False
        self._done_with: list[Layer] = []
        #: A view has come to rest, and its contents are not recorded yet.
        self._is_due = False
        #: The shell's status and the number of processes it left running, once it has ended.
        self.ended: tuple[int, int] | None = None
        #: Notes to show to the user at the next prompt.
        self.notes: list[str] = []

    # ------------------------------------------------------------------ the shell itself

    @property
    def isolation(self) -> Isolation:
        return with_reason(self._world.isolation, _REASON)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that describe the shell's world."""
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
        """The function to call for each descriptor that becomes readable."""

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
        """Set the function that answers calls of `substrate` from inside, from now on."""
        self._on_call = on_call

    def _called(self) -> None:
        on_call, self._on_call = self._on_call, None
        if on_call is not None:
            with suppress(OSError):
                on_call(self._standing.door, self._standing.init_pid)

    def hang_up(self) -> None:
        """The shell was killed: send the processes it started the hangup a terminal would send."""
        others = self._standing.others(self._shell)
        process_tree.send(others, signal.SIGHUP)
        process_tree.send(others, signal.SIGCONT)
        deadline = clock.monotonic_ns() + int(_HANG_UP_S * 1e9)
        while (left := self._standing.others(self._shell)) and clock.monotonic_ns() < deadline:
            clock.sleep(_PAUSE_S)
        if self.ended is not None:
            self.ended = self.ended[0], len(left)

    def close(self) -> None:
        """The shell has ended, and all its lines are recorded."""
        self.tidy()
        if self._network is not None:
            self._network.finish()
        if self.ended is not None and self.ended[1] > 0:
            kept = liveness_locks.handle(directories.home_of(self._room))
            directories.keep_for(self._room, self._standing.init_pid, kept.token)
            self._standing.let_go(tuple(one.fd for one in (self._lock, kept) if one.token))
            kept.close()
        else:
            self._standing.close()
            for layer in self._lingering.values():
                layer_dirs.note_kind(layer)
        if self._shown is not None and is_untouched(self._shown.layer):
            layer_dirs.remove(self._shown.layer)
        self._lock.close()
        if self._lingering or self._is_due:
            self.notes += collect_detached(self.place)[0]

    # ------------------------------------------------------------------ lines

    def is_touched(self) -> bool:
        """Whether a process wrote in the view after the last line ended."""
        return self._shown is not None and not is_untouched(self._shown.layer)

    def as_given(self, request: CommandRequest) -> CommandRequest:
        """The request of a line that will run in the view that is shown now."""
        shown = self._shown
        if shown is None:
            return request
        made_from = (shown.base, shown.since_ns) if self.is_touched() else None
        return request._replace(world_id=shown.layer.world_id, made_from=made_from)

    def prepare(self) -> None:
        """Before a line: make it see the workspace as it is now."""
        self.collect()
        if self._shown is None:
            self._try_to_show()
        else:
            layer_dirs.look_again(self._shown.layer)
            self._refresh()

    def adopt(self, absent: tuple[bytes, ...] = ()) -> Layer:
        """Give the view to a line, which does not see the `absent` paths if they appear."""
        if self._shown is None:
            raise WorldFailedError("no view of the workspace could be made")
        with suppress(WorldFailedError):  # the line then sees them, as it would without a world
            self._standing.seek(absent)
        self._is_fresh = False
        return self._shown.layer

    def part(self, turn: Turn) -> int:
        """The line has ended. Returns how many processes are still in its view; 0: at rest."""
        shown = self._shown
        assert shown is not None
        others = self._standing.others(self._shell)
        is_as_it_was = is_untouched(shown.layer) and not layer_dirs.new_look(shown.layer)
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
        layer_dirs.note_running(shown.layer, self._standing.init_pid, self._lock.token)
        self._lingering[shown.key] = shown.layer
        return max(1, len(others))

    def discard(self, layer: Layer) -> None:
        """The layer's changes are applied; remove the layer unless it is still shown."""
        if self._shown is None or layer != self._shown.layer:
            self._done_with.append(layer)

    def tidy(self) -> None:
        """Remove layers that are no longer needed, after the prompt is shown."""
        while self._done_with:
            layer_dirs.remove(self._done_with.pop())

    def after(self) -> None:
        """The line is recorded, and its changes are applied."""
        if self._shown is not None:
            if self._is_fresh:
                self._refresh()
            self._rebase(self._shown)
        self.collect()

    def _rebase(self, shown: Shown) -> None:
        """What is written in the view from now on is based on the current tip of the history."""
        base, since_ns = self._tip(), clock.now_ns()
        # A view that is touched holds changes made from the earlier tip.
        if is_untouched(shown.layer):
            self._shown = shown._replace(base=base, since_ns=since_ns)
            if base != shown.base:
                self._note_origin(self._shown)

    def collect(self) -> None:
        """Record what jobs wrote, once they have left their views."""
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
        """Keys of views that are at rest now; marks their layers as ended, too."""
        try:
            keys = self._standing.gone()
        except WorldFailedError:  # unknown: the views are at rest when the world ends
            return []
        for key in keys:
            layer = self._lingering.pop(key, None)
            with suppress(OSError):
                os.rmdir(self._room / key)
            if layer is not None and layer.directory.is_dir():
                layer_dirs.note_kind(layer)
                self._is_due = True
        return keys

    def _is_inside(self) -> bool:
        try:
            where = os.readlink(f"/proc/{self._shell}/cwd")
        except OSError:
            return True  # not readable: stepping aside once too often does no harm
        return where == self._root or where.startswith(self._root + "/")

    def with_scopes(self, outcome: RunOutcome) -> RunOutcome:
        """Add what the line, and jobs during the line, reached over the network."""
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
        """The directory to move a line's view to while its jobs are running in it."""
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
            layer_dirs.remove(layer)
            raise
        self._shown = shown
        self._note_origin(shown)

    def _tip(self) -> bytes:
        with self.place.history() as store:
            return store.tip_commit or b""

    def _note_origin(self, shown: Shown) -> None:
        """For recovery after a kill, when the view holds changes that belong to no line."""
        origin = orphan_worlds.Origin(
            shown.base.hex(), shown.since_ns, self.place.session, self.place.agent_id
        )
        orphan_worlds.note(shown.layer.directory, origin)
