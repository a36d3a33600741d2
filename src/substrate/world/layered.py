"""What the strategies that keep a command's changes in a layer have in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from substrate.errors import WorldFailedError
from substrate.system import environment, ids, platform, spawn
from substrate.system.process import Stdio
from substrate.world import layers, pid_space, surroundings
from substrate.world.capture import Capturing
from substrate.world.command import (
    argv_of,
    directory_of,
    environment_of,
    outcome_of,
    with_network,
    with_reason,
)
from substrate.world.limits import Limiter
from substrate.world.open_world import Ended, Limits, OpenWorld, open_world
from substrate.world.pid_space import Entrance, PidSpace
from substrate.world.protocol import Isolation, Layer, RunOutcome, RunRequest, Wanted
from substrate.world.sandbox import Sandbox, submounts


class LayeredWorld:
    """Runs each command over a fresh view of the workspace, in namespaces of its own.

    What it changed lies in `RunOutcome.layer`. A strategy says how its view is made.
    """

    strategy = ""
    #: Whether what a command leaves running goes on, for later ones to see.
    shares_processes = True

    def __init__(self, wanted: Wanted, worlds: Path, why: str = "") -> None:
        """`worlds`: where the layers go, on a file system that can hold one."""
        self._wanted = wanted
        self._worlds = worlds
        self._root = Path(os.path.realpath(wanted.root))
        self._why = why

    def make_layer(self, world_id: str) -> Layer:
        """The layer of a new world, in its state before the command."""
        raise NotImplementedError

    def view(self, layer: Layer) -> Callable[[], None]:
        """What mounts the layer's view at the workspace's own path."""
        raise NotImplementedError

    def settle(self, layer: Layer) -> None:
        """After the command, when nothing runs in the world any more."""

    @property
    def isolation(self) -> Isolation:
        reasons = [self._why] if self._why else []
        bound = [os.fsdecode(path) for path in submounts(os.fsencode(self._root))]
        if bound:
            reasons.append(f"mounts inside the workspace are not protected: {', '.join(bound)}")
        return Isolation(self.strategy, self._wanted.tier, "open", "; ".join(reasons))

    def run(self, request: RunRequest) -> RunOutcome:
        argv = tuple(os.fsencode(arg) for arg in argv_of(request))
        world_id = request.world_id or ids.new_id("wld")
        layer = self.make_layer(world_id)
        capturing = Capturing(request.capture, request.stdout, request.stderr)
        limiter = Limiter(request.limits, world_id)
        env = {**environment_of(request), "SUBSTRATE_WORLD_ID": world_id}
        stdio = Stdio(request.stdin, *capturing.streams)
        program = spawn.Program(argv, directory_of(request), env, stdio)
        try:
            sandbox = self._sandbox(request, layer)._replace(resources=limiter.resources)
            sandbox = sandbox._replace(ended_mark=os.fsencode(layers.ended_mark(layer)))
            with self._company(request) as company:
                sandbox = sandbox._replace(company=company)
                ended = self._run_in(sandbox, program, request, limiter, capturing, layer)
        except BaseException:
            capturing.finish()
            limiter.close()
            layers.remove(layer)
            raise
        limiter.close()
        stdout, stderr = capturing.finish()
        if ended.left_running:
            layers.note_running(layer, ended.init_pid, self._space(request, ended, company))
        else:
            self.settle(layer)
        isolation = with_reason(self.isolation, limiter.reason)
        outcome = outcome_of(request, ended.finished, isolation)._replace(
            layer=layer, left_running=ended.left_running, stdout=stdout, stderr=stderr
        )
        return outcome if request.network is None else with_network(outcome, request.network)

    def discard(self, layer: Layer) -> None:
        layers.remove(layer)

    def limits(self, request: RunRequest) -> Limits:
        return Limits(request.timeout_s, request.kill_children)

    def _run_in(
        self,
        sandbox: Sandbox,
        program: spawn.Program,
        request: RunRequest,
        limiter: Limiter,
        capturing: Capturing,
        layer: Layer,
    ) -> Ended:
        opened = self._open(sandbox, layer)
        try:
            limiter.admit(opened.init_pid)
        except OSError:
            opened.close()
            raise
        return opened.run(program, self.limits(request), capturing.start)

    def _open(self, sandbox: Sandbox, layer: Layer) -> OpenWorld:
        if sandbox.company is not None:
            try:
                return open_world(sandbox)
            except WorldFailedError:  # the last of them may have ended just now
                layers.remove(layer)  # an overlay takes the same directories only once
                self.make_layer(layer.world_id)
        return open_world(sandbox._replace(company=None))

    def _key(self, request: RunRequest) -> str:
        network = "open" if request.network is None else request.network.mode
        services = self._wanted.allow_host_services
        return pid_space.key_of(
            request.session_id, self._wanted.tier, network, host_services=services
        )

    def _space(
        self, request: RunRequest, ended: Ended, company: Entrance | None
    ) -> PidSpace | None:
        """The pid namespace in which processes go on, for later commands to join."""
        key = self._key(request) if self.shares_processes else ""
        if not key or ended.namespaces is None:
            return None
        if company is not None and company.space[1:3] == ended.namespaces:
            return company.space
        start = platform.process_start_token(ended.init_pid)
        return PidSpace(key, *ended.namespaces, ended.init_pid, start)

    @contextmanager
    def _company(self, request: RunRequest) -> Iterator[Entrance | None]:
        """The way to the processes of earlier commands that this one shall see, if there are."""
        found = None
        key = self._key(request) if request.beside and self.shares_processes else ""
        for layer in request.beside if key else ():
            running = layers.pid_space(layer)
            if running is not None and running[1].key == key:
                found = pid_space.open_entrance(running[1], running[0])
                if found is not None:
                    break
        try:
            yield found
        finally:
            if found is not None:
                found.close()

    def _sandbox(self, request: RunRequest, layer: Layer) -> Sandbox:
        here = environment.current()
        return Sandbox(
            root=os.fsencode(self._root),
            mount_view=self.view(layer),
            tier=self._wanted.tier,
            read_only=(
                *surroundings.read_only(here, self._root),
                *surroundings.stays_shut(self._wanted),
            ),
            masked=surroundings.masked(here, allow_host_services=self._wanted.allow_host_services),
            writable=surroundings.writable(here, self._wanted),
            readable=surroundings.readable(here, self._wanted.readable),
            private=() if here.home is None else (os.fsencode(here.home),),
            scratch=os.fsencode(layers.scratch(layer)) if self._wanted.tier == "full" else b"",
            network=request.network,
        )
