"""What the strategies that keep a command's changes in a layer have in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from substrate.errors import WorldFailedError
from substrate.system import environment, ids
from substrate.system.files import real_path
from substrate.system.process import Stdio, process_identity, spawn
from substrate.system.terminal import standard_streams
from substrate.world.interface import (
    Isolation,
    Layer,
    ResourceLimits,
    RunOutcome,
    RunRequest,
    Wanted,
)
from substrate.world.layer import layer_dirs
from substrate.world.prepare_command import (
    argv_of,
    directory_of,
    environment_of,
    outcome_of,
    with_network,
    with_reason,
    with_refused_writes,
)
from substrate.world.prewarm import no_prewarm
from substrate.world.process import (
    Capturing,
    Ended,
    Entrance,
    Limiter,
    Limits,
    OpenWorld,
    PidSpace,
    Recipe,
    Sandbox,
    broker_socket,
    host_masks,
    host_services,
    open_world,
    pid_space,
    submounts,
)

if TYPE_CHECKING:
    from substrate.world.prewarm import Made


class LayeredWorld:
    """Runs each command over a fresh view of the workspace, in its own namespaces.

    What it changed is in `RunOutcome.layer`. A strategy says how its view is made.
    """

    strategy = ""
    #: Whether processes that a command leaves keep running, for later commands to see.
    shares_processes = True
    #: Whether its view remembers what it found under a name before.
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
        """A function that mounts the layer's view at the workspace's own path."""
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
            # There is time while the command runs. An error here must not stop us from waiting
            # for the command; later code meets the same error again.
            with suppress(Exception):
                isolation = self.isolation
                if request.meanwhile is not None:
                    request.meanwhile()

        def run_in(opened: OpenWorld) -> Ended:
            mark = os.fsencode(layer_dirs.ended_mark(layer))
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
                    layer_dirs.remove(layer)  # an overlay uses directories only once
                    layer = self.make_layer(world_id)
                    ended = run_in(open_one(None))
        except BaseException:
            capturing.finish()
            limiter.close()
            layer_dirs.remove(layer)
            raise
        no_prewarm.current.worlds.over(layer, ended)
        limiter.close()
        stdout, stderr = capturing.finish()
        self._leave(layer, request, ended, company)
        isolation = with_reason(isolation or self.isolation, limiter.reason)
        outcome = outcome_of(request, ended.finished, isolation)._replace(
            layer=layer, left_running=ended.left_running, stdout=stdout, stderr=stderr
        )
        if request.network is None:
            return outcome
        outcome = with_network(outcome, request.network)
        return with_refused_writes(outcome, request.network) if recipe.explains_denials else outcome

    def _leave(
        self, layer: Layer, request: RunRequest, ended: Ended, company: Entrance | None
    ) -> None:
        """Prepare the layer for applying its changes."""
        if ended.left_running:
            space = self._space(request, ended, company)
            layer_dirs.note_running(layer, ended.init_pid, ended.alive, space)
        else:
            self.settle(layer)

    def _made_ahead(
        self, recipe: Recipe, request: RunRequest, company: Entrance | None, world_id: str
    ) -> Made | None:
        """The world that was made ahead of this command, if it fits the command."""
        # In another place than beside history it would not be removed after a kill.
        beside = self._wanted.store / "worlds"
        is_open = request.network is not None and request.network.mode == "open"
        is_ordinary = company is None and request.limits == ResourceLimits()
        worlds = no_prewarm.current.worlds
        if not (self.can_be_ahead and is_open and is_ordinary):
            worlds.forget(recipe.root)
        elif self._worlds == beside:
            return worlds.take(recipe, world_id)
        elif self._next_worlds() == beside:
            # The very first command: its world was chosen when there was no history yet.
            worlds.forget(recipe.root, then=recipe._replace(worlds=os.fsencode(beside)))
        else:
            worlds.forget(recipe.root)
        return None

    def _next_worlds(self) -> Path:
        """Where the next command's world will be."""
        from substrate.world.select_strategy import worlds_directory  # which imports this

        return worlds_directory(self._wanted)

    def discard(self, layer: Layer) -> None:
        elsewhere = environment.current().substrate_home / "worlds"
        no_prewarm.current.worlds.discard(layer, elsewhere)

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
        """The pid namespace in which processes keep running, for later commands to join."""
        key = self._key(request) if self.shares_processes else ""
        if not key or ended.namespaces is None:
            return None
        if company is not None and company.space[1:3] == ended.namespaces:
            return company.space
        start = process_identity.process_start_token(ended.init_pid)
        return PidSpace(key, *ended.namespaces, ended.init_pid, start, ended.space_alive)

    @contextmanager
    def _company(self, request: RunRequest) -> Iterator[Entrance | None]:
        """The pid namespace of earlier commands that this one joins, if there is one."""
        found = None
        key = self._key(request) if request.beside and self.shares_processes else ""
        for layer in request.beside if key else ():
            running = layer_dirs.pid_space(layer)
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
        where = (
            broker_socket.directory(self._wanted.tier, here.substrate_home) if with_door else b""
        )
        elsewhere = here.substrate_home / "worlds"
        for directory in (self._worlds, elsewhere):
            if not directory.is_dir():  # only existing paths are masked: make it first
                with suppress(OSError):
                    layer_dirs.make_private(directory)
        masked = host_masks.masked(here, allow_host_services=self._wanted.allow_host_services)
        return Recipe(
            worlds=os.fsencode(self._worlds),
            root=os.fsencode(self._root),
            tier=self._wanted.tier,
            read_only=(
                *host_masks.read_only(here, self._root),
                *host_masks.stays_shut(self._wanted),
            ),
            masked=tuple(path for path in masked if path != where),
            writable=host_masks.writable(here, self._wanted),
            readable=host_masks.readable(here, self._wanted) if is_full else (),
            private=(os.fsencode(here.home),) if is_full and here.home is not None else (),
            door=where,
            elsewhere=os.fsencode(elsewhere),
            explains_denials=self._wanted.tier in ("guarded", "full"),
            abstract=(
                () if self._wanted.allow_host_services else host_services.abstract_names(here)
            ),
        )


def _program(
    argv: tuple[bytes, ...], request: RunRequest, recipe: Recipe, capturing: Capturing
) -> spawn.Program:
    env = {**environment_of(request), "SUBSTRATE_WORLD_ID": request.world_id}
    if recipe.abstract:
        env = host_services.without_abstract(env)
    if recipe.door:
        env["SUBSTRATE_BROKER"] = os.fsdecode(os.path.join(recipe.door, broker_socket.NAME))
    # Our own by number: a world made ahead was forked before we had them.
    given = (request.stdin, *capturing.streams)
    stdio = Stdio(
        *(
            at if fd is None and at not in standard_streams.absent else fd
            for at, fd in enumerate(given)
        )
    )
    return spawn.Program(argv, directory_of(request), env, stdio)
