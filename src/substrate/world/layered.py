"""What the strategies that keep a command's changes in a layer have in common."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from substrate.system import environment, ids, spawn
from substrate.system.process import Stdio
from substrate.world import layers, surroundings
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
from substrate.world.open_world import Ended, Limits, open_world
from substrate.world.protocol import Isolation, Layer, RunOutcome, RunRequest, Wanted
from substrate.world.sandbox import Sandbox, submounts


class LayeredWorld:
    """Runs each command over a fresh view of the workspace, in namespaces of its own.

    What it changed lies in `RunOutcome.layer`. A strategy says how its view is made.
    """

    strategy = ""

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
            ended = self._run_in(sandbox, program, request, limiter, capturing)
        except BaseException:
            capturing.finish()
            limiter.close()
            layers.remove(layer)
            raise
        limiter.close()
        stdout, stderr = capturing.finish()
        if ended.left_running:
            layers.note_running(layer, ended.init_pid)
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
    ) -> Ended:
        opened = open_world(sandbox)
        try:
            limiter.admit(opened.init_pid)
        except OSError:
            opened.close()
            raise
        return opened.run(program, self.limits(request), capturing.start)

    def _sandbox(self, request: RunRequest, layer: Layer) -> Sandbox:
        here = environment.current()
        return Sandbox(
            root=os.fsencode(self._root),
            mount_view=self.view(layer),
            tier=self._wanted.tier,
            read_only=surroundings.read_only(here, self._root),
            masked=surroundings.masked(here, allow_host_services=self._wanted.allow_host_services),
            writable=surroundings.writable(here, self._wanted),
            readable=surroundings.readable(here),
            private=() if here.home is None else (os.fsencode(here.home),),
            scratch=os.fsencode(layers.scratch(layer)) if self._wanted.tier == "full" else b"",
            network=request.network,
        )
