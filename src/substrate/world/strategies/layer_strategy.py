"""What the strategies that keep a command's changes in a layer have in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from substrate.errors import WorldFailedError
from substrate.system import afterwards, environment, ids, platform, spawn, streams
from substrate.system.files import real_path
from substrate.system.process import Stdio
from substrate.world import ahead, door, layers, pid_space, surroundings
from substrate.world.ahead import Made
from substrate.world.attend import Limits
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
from substrate.world.open_world import Ended, OpenWorld, open_world
from substrate.world.pid_space import Entrance, PidSpace
from substrate.world.protocol import (
    Isolation,
    Layer,
    ResourceLimits,
    RunOutcome,
    RunRequest,
    Wanted,
)
from substrate.world.recipe import Recipe
from substrate.world.sandbox import Sandbox, submounts


class LayeredWorld:
    """Runs each command over a fresh view of the workspace, in namespaces of its own.

    What it changed lies in `RunOutcome.layer`. A strategy says how its view is made.
    """

    strategy = ""
    #: Whether what a command leaves running goes on, for later ones to see.
    shares_processes = True
    #: Whether its view goes by what it found under a name before.
    remembers_names = True
    #: Whether its view shows the workspace as it is when the command starts, however early it was
    #: mounted.
    can_be_ahead = False

    def __init__(self, wanted: Wanted, worlds: Path, why: str = "") -> None:
        """`worlds`: where the layers go, on a file system that can hold one."""
        self._wanted = wanted
        self._worlds = worlds
        self._root = Path(real_path(wanted.root))
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
        with self._company(request) as company:
            return self._run(request, company)

    def _run(self, request: RunRequest, company: Entrance | None) -> RunOutcome:
        argv = tuple(os.fsencode(arg) for arg in argv_of(request))
        world_id = request.world_id or ids.new_id("wld")
        recipe = self._recipe(with_door=request.on_call is not None)
        made = self._made_ahead(recipe, request, company, world_id)
        if made is not None:
            request = request._replace(network=made.network)
        layer = made.layer if made is not None else self.make_layer(world_id)
        capturing = Capturing(request.capture, request.stdout, request.stderr)
        limiter = Limiter(request.limits, world_id)
        program = _program(argv, request._replace(world_id=world_id), recipe, capturing)
        isolation: Isolation | None = None

        def begun() -> None:
            nonlocal isolation
            # There is time while the command runs. What fails must not keep us from waiting for
            # it, and is met again by whoever asks later.
            with suppress(Exception):
                isolation = self.isolation
                if request.meanwhile is not None:
                    request.meanwhile()

        def run_in(opened: OpenWorld) -> Ended:
            mark = os.fsencode(layers.ended_mark(layer))
            limits = self.limits(request)
            opened.absent = request.absent if self.remembers_names else ()
            return opened.run(program, limits, begun, capturing.start, mark, request.on_call)

        def open_one(company: Entrance | None) -> OpenWorld:
            sandbox = recipe.sandbox(layer, self.view(layer), request.network)
            return self._open(sandbox._replace(company=company), limiter)

        try:
            if made is not None:
                ended = run_in(made.opened)
            elif company is None:
                ended = run_in(open_one(None))
            else:
                try:
                    ended = run_in(open_one(company))
                except WorldFailedError:  # the last of them may have ended just now
                    layers.remove(layer)  # an overlay takes the same directories only once
                    layer = self.make_layer(world_id)
                    ended = run_in(open_one(None))
        except BaseException:
            capturing.finish()
            limiter.close()
            layers.remove(layer)
            raise
        ahead.over(layer, ended)
        limiter.close()
        stdout, stderr = capturing.finish()
        self._leave(layer, request, ended, company)
        isolation = with_reason(isolation or self.isolation, limiter.reason)
        outcome = outcome_of(request, ended.finished, isolation)._replace(
            layer=layer, left_running=ended.left_running, stdout=stdout, stderr=stderr
        )
        return outcome if request.network is None else with_network(outcome, request.network)

    def _leave(
        self, layer: Layer, request: RunRequest, ended: Ended, company: Entrance | None
    ) -> None:
        """The layer as who brings the change in will find it."""
        if ended.left_running:
            layers.note_running(layer, ended.init_pid, self._space(request, ended, company))
        else:
            self.settle(layer)

    def _made_ahead(
        self, recipe: Recipe, request: RunRequest, company: Entrance | None, world_id: str
    ) -> Made | None:
        """The world that was made ahead of this command, if it is the one it should get."""
        # Elsewhere than beside history nobody would clear it away after a kill.
        beside = self._wanted.store / "worlds"
        is_open = request.network is not None and request.network.mode == "open"
        is_ordinary = company is None and request.limits == ResourceLimits()
        if not (self.can_be_ahead and is_open and is_ordinary):
            ahead.forget(recipe.root)
        elif self._worlds == beside:
            return ahead.take(recipe, world_id)
        elif self._next_worlds() == beside:
            # The first command of all: its world was chosen when there was no history yet.
            ahead.forget(recipe.root, then=recipe._replace(worlds=os.fsencode(beside)))
        else:
            ahead.forget(recipe.root)
        return None

    def _next_worlds(self) -> Path:
        """Where the next command's world will be."""
        from substrate.world.choose import worlds_directory  # which imports this

        return worlds_directory(self._wanted)

    def discard(self, layer: Layer) -> None:
        if afterwards.is_postponing():
            ahead.leave(layer, environment.current().substrate_home / "worlds")
        else:
            layers.remove(layer)

    def limits(self, request: RunRequest) -> Limits:
        return Limits(request.timeout_s, request.kill_children)

    def _open(self, sandbox: Sandbox, limiter: Limiter) -> OpenWorld:
        opened = open_world(sandbox._replace(resources=limiter.resources))
        try:
            for pid in opened.pids:
                limiter.admit(pid)
        except OSError:
            opened.close()
            raise
        return opened

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

    def _recipe(self, *, with_door: bool = False) -> Recipe:
        here = environment.current()
        is_full = self._wanted.tier == "full"
        where = door.directory(self._wanted.tier, here.substrate_home) if with_door else b""
        elsewhere = here.substrate_home / "worlds"
        for directory in (self._worlds, elsewhere):
            if not directory.is_dir():  # only what is there is hidden: not from the first of all
                with suppress(OSError):
                    layers.make_private(directory)
        masked = surroundings.masked(here, allow_host_services=self._wanted.allow_host_services)
        return Recipe(
            worlds=os.fsencode(self._worlds),
            root=os.fsencode(self._root),
            tier=self._wanted.tier,
            read_only=(
                *surroundings.read_only(here, self._root),
                *surroundings.stays_shut(self._wanted),
            ),
            masked=tuple(path for path in masked if path != where),
            writable=surroundings.writable(here, self._wanted),
            readable=surroundings.readable(here, self._wanted) if is_full else (),
            private=(os.fsencode(here.home),) if is_full and here.home is not None else (),
            door=where,
            elsewhere=os.fsencode(elsewhere),
        )


def _program(
    argv: tuple[bytes, ...], request: RunRequest, recipe: Recipe, capturing: Capturing
) -> spawn.Program:
    env = {**environment_of(request), "SUBSTRATE_WORLD_ID": request.world_id}
    if recipe.door:
        env["SUBSTRATE_BROKER"] = os.fsdecode(os.path.join(recipe.door, door.NAME))
    # Ours by number: a world made ahead was forked before we had them.
    given = (request.stdin, *capturing.streams)
    stdio = Stdio(
        *(at if fd is None and at not in streams.absent else fd for at, fd in enumerate(given))
    )
    return spawn.Program(argv, directory_of(request), env, stdio)
