"""The fuse-overlayfs strategy: an overlay by a process, where the kernel makes none.

The file system is mounted by us, in the world, and served by a process outside of it: it is no
part of the world's pid namespace and reads the real tree by descriptors that the command never
gets. Its life is the mount's: when the world has ended, reading from ``/dev/fuse`` says so and it
ends by itself.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from substrate.errors import WorkspaceError
from substrate.system import channel as channels
from substrate.system import clock, environment
from substrate.system.channel import Channel, ClosedError
from substrate.system.linux import mounts
from substrate.world import fuse_marks, layers
from substrate.world.attend import Limits
from substrate.world.command import with_reason
from substrate.world.layered import LayeredWorld
from substrate.world.protocol import Isolation, Layer, RunOutcome, RunRequest

PROGRAM = "fuse-overlayfs"
DEVICE = "/dev/fuse"
#: For what is still to be written out when the command has ended.
_PATIENCE_S = 60.0
_PAUSE_S = 0.002
_MOST_FDS = 1 << 20
_EXIT_OURS = 125
_LOG = "fuse-overlayfs.log"


class FuseOverlayWorld(LayeredWorld):
    strategy = "fuse-overlayfs"
    #: Whatever serves the view must end with it, and with a pid namespace of its own it does.
    shares_processes = False

    _daemon: Daemon | None = None
    _broken = ""

    @property
    def isolation(self) -> Isolation:
        return with_reason(super().isolation, "what a command leaves running is ended with it")

    def make_layer(self, world_id: str) -> Layer:
        layer = layers.create(self._worlds, world_id, self._root, "overlay", fuse_marks.PREFIX)
        try:
            # Its marks are attributes; without them it would say everything by files.
            os.setxattr(layer.directory / "work", "user.substrate", b"y")
        except OSError as error:
            layers.remove(layer)
            raise WorkspaceError(
                f"{self._worlds} has no extended attributes: {error.strerror}",
                hint="place $SUBSTRATE_HOME on a file system that has them",
            ) from error
        return layer

    def view(self, layer: Layer) -> Callable[[], None]:
        if self._daemon is not None:  # the first try came to nothing
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
            os.stat(root)  # waits for it; nobody serves: ENOTCONN

        return mount_view

    def limits(self, request: RunRequest) -> Limits:
        # Until it has ended, what is to arrive lies among its marks.
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
        #: Who mounts hands the device over by it. Closed without that, the process ends.
        self.channel = channel

    def wait(self) -> str:
        """Once the world is gone: until everything is written. How it failed, or nothing."""
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
        """Whatever it does."""
        self.channel.close()
        with suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


def start(layer: Layer) -> Daemon:
    """A process that becomes fuse-overlayfs over `layer` once it is given the device."""
    ours, theirs = channels.pair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        _serve(layer, theirs)
    theirs.close()
    return Daemon(pid, ours)


def _serve(layer: Layer, channel: Channel) -> NoReturn:
    """In the child. Never returns into a second copy of our caller."""
    try:
        os.setsid()  # the keys of the terminal are the command's
        os.chdir("/")
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for signum in (signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(signum, signal.SIG_DFL)
        _close_all_but(channel.fileno())
        null = os.open(os.devnull, os.O_RDWR)
        log = os.open(layer.directory / _LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for fd, target in ((null, 0), (null, 1), (log, 2)):
            os.dup2(fd, target)
        # By descriptor: no name can then hold a character that the options would have to escape.
        lower = _open_inheritable(os.fsencode(layer.lower))
        directory = _open_inheritable(os.fsencode(layer.directory))
        _, (device,) = channel.receive()
        os.set_inheritable(device, True)
        options = f"lowerdir=/proc/self/fd/{lower},upperdir=/proc/self/fd/{directory}/upper"
        # What counts is made durable by the recorder.
        options += f",workdir=/proc/self/fd/{directory}/work,fsync=0"
        path = environment.current().get("PATH") or os.defpath
        os.execvpe(PROGRAM, [PROGRAM, "-f", "-o", options, f"/dev/fd/{device}"], {"PATH": path})
    except ClosedError:
        os._exit(0)
    finally:
        os._exit(127)


def _open_inheritable(path: bytes) -> int:
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY)
    os.set_inheritable(fd, True)
    return fd


def _close_all_but(kept: int) -> None:
    """Whoever waits for the end of a pipe that we have would wait for us, too."""
    os.closerange(0, kept)
    os.closerange(kept + 1, _MOST_FDS)
