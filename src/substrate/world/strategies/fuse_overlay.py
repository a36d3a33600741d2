"""The fuse-overlayfs strategy: an overlay served by a process, where the kernel has none.

We mount the file system in the world, and a process outside serves it: that process is not in the
world's pid namespace and reads the real tree by descriptors that the command never gets. It lives
as long as the mount: when the world has ended, reading from ``/dev/fuse`` fails and the process
ends by itself.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from substrate.errors import WorkspaceError
from substrate.system import clock, environment
from substrate.system.linux import mounts
from substrate.system.process import Channel, ClosedError, fork_child, spawn
from substrate.system.process import fd_channel as channels
from substrate.world.interface import Isolation, Layer, RunOutcome, RunRequest
from substrate.world.layer import layer_dirs
from substrate.world.prepare_command import with_reason
from substrate.world.process import Limits
from substrate.world.strategies import fuse_marks
from substrate.world.strategies.layer_strategy import LayeredWorld

PROGRAM = "fuse-overlayfs"
DEVICE = "/dev/fuse"
#: How long it may take to write out the rest when the command has ended.
_PATIENCE_S = 60.0
_PAUSE_S = 0.002
_MOST_FDS = 1 << 20
_EXIT_OURS = 125
_LOG = "fuse-overlayfs.log"


class FuseOverlayWorld(LayeredWorld):
    strategy = "fuse-overlayfs"
    #: The server of the view must end with it; with a pid namespace per world it does.
    shares_processes = False

    _daemon: Daemon | None = None
    _broken = ""

    @property
    def isolation(self) -> Isolation:
        return with_reason(super().isolation, "what a command leaves running is ended with it")

    def make_layer(self, world_id: str) -> Layer:
        layer = layer_dirs.create(self._worlds, world_id, self._root, "overlay", fuse_marks.PREFIX)
        try:
            # Its marks are attributes; without them it would make all marks files.
            os.setxattr(layer.directory / "work", "user.substrate", b"y")
        except OSError as error:
            layer_dirs.remove(layer)
            raise WorkspaceError(
                f"{self._worlds} has no extended attributes: {error.strerror}",
                hint="place $SUBSTRATE_HOME on a file system that has them",
            ) from error
        return layer

    def view(self, layer: Layer) -> Callable[[], None]:
        if self._daemon is not None:  # the first attempt failed
            self._daemon.end()
        self._daemon = daemon = start(layer)

        def mount_view() -> None:
            root = os.fsencode(layer.lower)
            device = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
            options = b"fd=%d,rootmode=40000,user_id=%d,group_id=%d,allow_other,default_permissions"
            options %= (device, os.geteuid(), os.getegid())
            mounts.mount(b"substrate", root, b"fuse." + PROGRAM.encode(),
                         mounts.NOSUID | mounts.NODEV, options)  # fmt: skip
            with suppress(ClosedError):
                daemon.channel.send("serve", fds=(device,))
            daemon.channel.close()
            os.close(device)
            os.stat(root)  # waits for the server; ENOTCONN if there is none

        return mount_view

    def limits(self, request: RunRequest) -> Limits:
        # Until it has ended, its marks are among the changes to apply.
        return Limits(request.timeout_s, kill_children=True)

    def settle(self, layer: Layer) -> None:
        assert self._daemon is not None
        self._broken = self._daemon.wait()
        fuse_marks.tidy(layer)

    def run(self, request: RunRequest) -> RunOutcome:
        try:
            outcome = super().run(request)
        except BaseException:
            if self._daemon is not None:
                self._daemon.end()
            raise
        assert self._daemon is not None
        self._daemon.channel.close()
        if not self._broken:
            return outcome
        return outcome._replace(exit=outcome.exit or _EXIT_OURS, broken=self._broken)


class Daemon:
    """The process that serves one world's files, our child."""

    def __init__(self, pid: int, channel: Channel) -> None:
        self.pid = pid
        #: The mounting process sends the device over it. Closed without that, the process ends.
        self.channel = channel

    def wait(self) -> str:
        """Once the world is gone: wait until all is written. Returns the failure, or empty."""
        deadline = clock.monotonic_ns() + int(_PATIENCE_S * 1e9)
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
            if clock.monotonic_ns() >= deadline:
                self.end()
                return f"{PROGRAM} did not end with its world"
            clock.sleep(_PAUSE_S)
        code = os.waitstatus_to_exitcode(status)
        if code == 0:
            return ""
        how = f"was killed by signal {-code}" if code < 0 else f"failed with status {code}"
        return f"{PROGRAM} {how} while the command ran; what it had written by then is here"

    def end(self) -> None:
        """Kill it, in any state."""
        self.channel.close()
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def start(layer: Layer) -> Daemon:
    """A process that becomes fuse-overlayfs over `layer` once it is given the device."""
    ours, theirs = channels.pair()

    def serve() -> None:
        ours.close()
        _serve(layer, theirs)

    pid = fork_child(serve)
    theirs.close()
    return Daemon(pid, ours)


def _serve(layer: Layer, channel: Channel) -> NoReturn:
    """In the child. Never returns into a second copy of the caller's code."""
    try:
        os.setsid()  # the terminal's keys are for the command
        os.chdir("/")
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for signum in (signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(signum, signal.SIG_DFL)
        _close_all_but(channel.fileno())
        null = os.open(os.devnull, os.O_RDWR)
        log = os.open(layer.directory / _LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for fd, target in ((null, 0), (null, 1), (log, 2)):
            os.dup2(fd, target)
        # By descriptor: so no name can contain a character that the options would have to escape.
        lower = _open_inheritable(os.fsencode(layer.lower))
        directory = _open_inheritable(os.fsencode(layer.directory))
        _, (device,) = channel.receive()
        os.set_inheritable(device, True)
        options = f"lowerdir=/proc/self/fd/{lower},upperdir=/proc/self/fd/{directory}/upper"
        # The recorder makes durable what must be.
        options += f",workdir=/proc/self/fd/{directory}/work,fsync=0"
        path = environment.current().get("PATH") or os.defpath
        words = (PROGRAM, "-f", "-o", options, f"/dev/fd/{device}")
        spawn.exec_first(tuple(map(os.fsencode, words)), {b"PATH": os.fsencode(path)})
    except ClosedError:
        os._exit(0)
    finally:
        os._exit(127)


def _open_inheritable(path: bytes) -> int:
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY)
    os.set_inheritable(fd, True)
    return fd


def _close_all_but(kept: int) -> None:
    """A process that waits for the end of a pipe that we inherited would wait for us, too."""
    os.closerange(0, kept)
    os.closerange(kept + 1, _MOST_FDS)
