"""The overlay strategy: the kernel's overlayfs over the workspace, in namespaces of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from substrate.system import environment, ids, spawn
from substrate.system.linux import mounts, namespaces
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
from substrate.world.open_world import Limits, open_world
from substrate.world.protocol import Isolation, Layer, RunOutcome, RunRequest, Wanted
from substrate.world.sandbox import Sandbox, is_privileged, submounts

TRUSTED = b"trusted.overlay."
USER = b"user.overlay."


class OverlayWorld:
    """Runs each command over a fresh overlay; what it changed lies in `RunOutcome.layer`."""

    def __init__(self, wanted: Wanted, worlds: Path, why: str = "") -> None:
        """`worlds`: where the layers go, on a file system that can hold an upper."""
        self._wanted = wanted
        self._worlds = worlds
        self._root = Path(os.path.realpath(wanted.root))
        self._why = why

    @property
    def isolation(self) -> Isolation:
        reasons = [self._why] if self._why else []
        bound = [os.fsdecode(path) for path in submounts(os.fsencode(self._root))]
        if bound:
            reasons.append(f"mounts inside the workspace are not protected: {', '.join(bound)}")
        return Isolation("overlay", self._wanted.tier, "open", "; ".join(reasons))

    def run(self, request: RunRequest) -> RunOutcome:
        world_id = request.world_id or ids.new_id("wld")
        argv = tuple(os.fsencode(arg) for arg in argv_of(request))
        env = {**environment_of(request), "SUBSTRATE_WORLD_ID": world_id}
        prefix = TRUSTED if _may_use_trusted() else USER
        layer = layers.create(self._worlds, world_id, self._root, "overlay", prefix)
        capturing = Capturing(request.capture, request.stdout, request.stderr)
        limiter = Limiter(request.limits, world_id)
        try:
            opened = open_world(self._sandbox(request, layer)._replace(resources=limiter.resources))
            limiter.admit(opened.init_pid)
            stdio = Stdio(request.stdin, *capturing.streams)
            program = spawn.Program(argv, directory_of(request), env, stdio)
            limits = Limits(request.timeout_s, request.kill_children)
            ended = opened.run(program, limits, capturing.start)
        except BaseException:
            capturing.finish()
            limiter.close()
            layers.remove(layer)
            raise
        limiter.close()
        stdout, stderr = capturing.finish()
        if ended.left_running:
            layers.note_running(layer, ended.init_pid)
        isolation = with_reason(self.isolation, limiter.reason)
        outcome = outcome_of(request, ended.finished, isolation)._replace(
            layer=layer, left_running=ended.left_running, stdout=stdout, stderr=stderr
        )
        return outcome if request.network is None else with_network(outcome, request.network)

    def discard(self, layer: Layer) -> None:
        layers.remove(layer)

    def _sandbox(self, request: RunRequest, layer: Layer) -> Sandbox:
        here = environment.current()
        return Sandbox(
            root=os.fsencode(self._root),
            mount_view=overlay_view(layer),
            tier=self._wanted.tier,
            read_only=surroundings.read_only(here, self._root),
            masked=surroundings.masked(here, allow_host_services=self._wanted.allow_host_services),
            writable=surroundings.writable(here, self._wanted),
            readable=surroundings.readable(here),
            private=() if here.home is None else (os.fsencode(here.home),),
            scratch=os.fsencode(layers.scratch(layer)) if self._wanted.tier == "full" else b"",
            network=request.network,
        )


def overlay_view(layer: Layer) -> Callable[[], None]:
    """What mounts the overlay at the workspace's own path."""

    def mount_view() -> None:
        root = os.fsencode(layer.lower)
        lower = os.open(root, os.O_PATH | os.O_DIRECTORY)
        directory = os.open(layer.directory, os.O_PATH | os.O_DIRECTORY)
        # By descriptor: no name can then hold a character that the options would have to escape.
        options = b"lowerdir=/proc/self/fd/%d,upperdir=/proc/self/fd/%d/upper" % (lower, directory)
        # volatile: what counts is made durable by the recorder; a copy-up need not be.
        options += b",workdir=/proc/self/fd/%d/work,volatile" % directory
        if layer.xattr_prefix == TRUSTED:
            # Nothing may be said by reference to the lower tree: it is read from the upper alone
            # (with userxattr that is so anyway). With an index a changed hard link is proved to
            # be a copy of its lower file.
            options += b",redirect_dir=off,metacopy=off,index=on"
        else:
            options += b",userxattr"
        mounts.mount(b"substrate", root, b"overlay", mounts.NOSUID | mounts.NODEV, options)
        os.close(lower)
        os.close(directory)

    return mount_view


def _may_use_trusted() -> bool:
    return is_privileged() and namespaces.in_initial_user_namespace()
