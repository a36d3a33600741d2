"""A world that stays while what it shows at the workspace's path is changed, again and again.

For an interactive shell: one set of namespaces from the first prompt to the last, and an overlay
for each line.

    we ──fork──▶ maker ─┬─fork──▶ view changer   ┐ outside the pid namespace;
                        ├─fork──▶ view stower    ┘ may mount
                        └─fork──▶ init (pid 1) ──fork──▶ the shell

The changer mounts in its own mount namespace; what it mounts at the workspace's path appears in
the world's, which is a copy of it. Below every view is the real workspace, read-only and without
its history: it is visible only if a view cannot be made.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn, cast

from substrate.errors import WorldFailedError
from substrate.system import umask
from substrate.system.linux import mounts, namespaces, privileges
from substrate.system.process import Channel, ClosedError, fork_child, process_tree, spawn
from substrate.system.process import fd_channel as channels
from substrate.world.interface import Layer, RunRequest
from substrate.world.layer import layer_dirs
from substrate.world.process import Sandbox, SetupError, broker_socket
from substrate.world.process import sandbox as sandboxes
from substrate.world.standing import standing_init, swap_view
from substrate.world.standing.swap_view import Site
from substrate.world.strategies import TRUSTED, LayeredWorld

_STORE_NAME = b".substrate-git"
_USER_MOUNT_IPC = namespaces.NEWUSER | namespaces.NEWNS | namespaces.NEWIPC


class StandingWorld:
    """The waiting side. Nothing outlives us, unless `let_go` is called."""

    def __init__(self, sandbox: Sandbox, ends: _Ends, pids: _Pids) -> None:
        self._sandbox = sandbox
        self._init = ends.init
        self._views = ends.views
        self._stower = ends.stower
        self._pids = pids
        #: The listening socket of the world's door, and its path inside; -1 if it has none.
        self.door = pids.door
        self.door_path = os.path.join(sandbox.door, broker_socket.NAME) if sandbox.door else b""
        self._count = 0
        self._gone: list[str] = []
        self._stowed: dict[str, bytes] = {}

    @property
    def init_pid(self) -> int:
        return self._pids.init

    @property
    def descriptors(self) -> tuple[int, int]:
        """Readable when there is something for `news`, and for `gone`."""
        return self._init.fileno(), self._views.fileno()

    def show(self, layer: Layer, stow: Path | None = None) -> str:
        """Replace the view that is shown by the layer's view; returns its key.

        `stow`: an empty directory to move the replaced view to, because processes are in it. Raises
        `WorldFailedError`: then there may be no view at all.
        """
        key = str(self._count + 1)
        layer_dirs.scratch(layer)
        try:
            self._ask("lay", key, os.fsencode(layer.directory.name))
        finally:
            self._take(stow)
        self._count += 1
        return key

    def hide(self, stow: Path | None = None) -> None:
        """Show no view."""
        self._take(stow)

    def _take(self, stow: Path | None) -> None:
        if stow is not None:
            self._stow("stow", os.fsencode(stow))
            self._stowed[str(self._count)] = os.fsencode(stow)
        self._ask("take")

    def refresh(self) -> None:
        """Make changes in the real workspace since the last time visible from now on."""
        self._ask("refresh")

    def seek(self, names: tuple[bytes, ...]) -> None:
        """See `RunRequest.absent`."""
        if names:
            self._ask("seek", names)
            with suppress(ClosedError):
                self._init.send("absent", self._sandbox.root, names)

    def gone(self) -> list[str]:
        """The keys of views through which no process can write any more; each is reported once."""
        for key, path in list(self._stowed.items()):
            if not self._stow("drop", path):
                del self._stowed[key]
        self._ask("look")
        found, self._gone = self._gone, []
        return found

    def start(self, program: spawn.Program) -> int:
        """Start the shell; returns its pid out here."""
        env = dict(program.env or {})
        cwd = os.fsencode(program.cwd or b"/")
        stdio = tuple(fd if fd is not None else at for at, fd in enumerate(program.stdio))
        try:
            self._init.send("program", program.argv, cwd, env, umask.current(), fds=stdio)
            _, fds = self._init.receive()
            pid = _pid_of(fds[0])
            os.close(fds[0])
            if self._sandbox.network is not None:
                self._sandbox.network.parent(pid, ())
            message, _ = self._init.receive()
        except (ClosedError, IndexError) as error:
            raise WorldFailedError("the world ended before its shell did") from error
        if message[0] != "started":
            reason = os.strerror(cast(int, message[2]))
            raise WorldFailedError(f"the shell was not started: {message[1]}: {reason}")
        return pid

    def news(self) -> tuple[int, int] | None:
        """Wait status of the shell and how many processes it left; None: it has only stopped."""
        try:
            message, _ = self._init.receive()
        except ClosedError:  # the init was killed, and all with it
            return signal.SIGKILL, 0
        if message[0] != "ended":
            return None
        return cast(int, message[1]), cast(int, message[2])

    def others(self, shell_pid: int) -> list[process_tree.Process]:
        """The processes that run in there besides the shell."""
        return [one for one in process_tree.descendants(self.init_pid) if one.pid != shell_pid]

    def let_go(self, locks: tuple[int, ...] = ()) -> None:
        """End our part; processes left running continue until they end by themselves.

        The init holds the `locks` until then.
        """
        with suppress(ClosedError):
            self._init.send("keep", fds=locks)
        self._init.close()
        self._end_changer()

    def close(self) -> None:
        """End all of it; when this returns, no process and no mount is left."""
        self._init.close()
        _wait_for(self._pids.init)
        self._end_changer()

    def _end_changer(self) -> None:
        if self.door >= 0:
            os.close(self.door)
            self.door = -1
        self._views.close()
        self._stower.close()
        _wait_for(self._pids.changer)
        _wait_for(self._pids.stower)

    def _stow(self, word: str, path: bytes) -> str:
        """Why it failed, or empty; a view that cannot be stowed stays without a path."""
        try:
            self._stower.send(word, path)
            message, _ = self._stower.receive()
        except ClosedError:
            return "the process that stows views was ended"
        return cast(str, message[1])

    def _ask(self, *words: object) -> None:
        try:
            self._views.send(*words)
            while True:
                message, _ = self._views.receive()
                self._gone += cast("tuple[str, ...]", message[-1])
                if message[0] == "done":
                    break
        except ClosedError as error:
            raise WorldFailedError("the process that changes views was ended") from error
        if message[1]:
            raise WorldFailedError(f"the workspace's view: {message[1]}")


class _Pids:
    """Filled in as they become known."""

    def __init__(self) -> None:
        self.changer = 0
        self.stower = 0
        self.init = 0
        self.door = -1


class _Ends(NamedTuple):
    """One side of the three channels. When ours are closed, the world ends."""

    init: Channel
    views: Channel
    stower: Channel

    def close(self) -> None:
        for channel in self:
            channel.close()


def open_standing_world(world: LayeredWorld, request: RunRequest, layer: Layer) -> StandingWorld:
    """Make the namespaces; nothing is shown yet. `layer` is any one of those that will be shown.

    Raises `WorldFailedError` with the step that was refused.
    """
    sandbox = world._recipe(with_door=True).sandbox(layer, world.view(layer), request.network)
    if sandbox.network is not None:
        sandbox.network.before_fork()
    pairs = [channels.pair() for _ in range(3)]
    ours = _Ends(*(pair[0] for pair in pairs))
    theirs = _Ends(*(pair[1] for pair in pairs))
    process_tree.adopt_orphans(True)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:

        def make() -> None:
            ours.close()
            _make(sandbox, layer, theirs, mask)

        maker = fork_child(make)
        theirs.close()
        pids = _await_ready(ours.init, maker)
    except WorldFailedError:
        ours.close()
        raise
    finally:
        process_tree.adopt_orphans(False)
    return StandingWorld(sandbox, ours, pids)


def _make(sandbox: Sandbox, layer: Layer, ends: _Ends, mask: Iterable[int]) -> NoReturn:
    """In the maker: the outer namespace with the changer, the inner one with stower and init."""
    try:
        site = _enter_outer(sandbox, layer, ends.init)

        def change() -> None:
            ends.init.close()
            ends.stower.close()
            swap_view.serve(site, ends.views)

        def stow() -> None:
            ends.init.close()
            swap_view.serve_parking(site.root, ends.stower)

        changer = fork_child(change)
        ends.views.close()
        _enter_inner(ends.init)
        stower = fork_child(stow)
        ends.stower.close()
        namespaces.unshare(namespaces.NEWPID)
        pid = fork_child(lambda: standing_init.live(sandbox, ends.init, mask))
        ends.init.send("forked", changer, stower, pid)
        os._exit(0)
    except (SetupError, OSError) as error:
        with suppress(ClosedError):
            ends.init.send("failed", getattr(error, "strerror", None) or str(error))
    finally:
        os._exit(1)


def _enter_outer(sandbox: Sandbox, layer: Layer, channel: Channel) -> Site:
    uid, gid = os.geteuid(), os.getegid()
    if sandboxes.is_privileged():
        namespaces.unshare(namespaces.NEWNS)
    else:
        namespaces.unshare(_USER_MOUNT_IPC)
        privileges.own_proc_entries()
        namespaces.map_own_id(uid, gid)
    mounts.make_private()
    root = sandbox.root
    real = os.open(root, os.O_PATH | os.O_DIRECTORY)
    worlds = os.open(layer.directory.parent, os.O_PATH | os.O_DIRECTORY)
    site = Site(
        root, real, worlds, layer.xattr_prefix == TRUSTED,
        kept=_below(root, sandboxes.submounts(root)),
        read_only=_below(root, sandbox.read_only),
        masked=_below(root, sandbox.masked),
    )  # fmt: skip

    def floor() -> None:
        mounts.bind(root, root, recursive=True)
        mounts.restrict(root, mounts.RDONLY | mounts.NOSUID | mounts.NODEV, recursive=True)

    masked = (*sandbox.masked, os.path.join(root, _STORE_NAME))
    listener = sandboxes.arrange(sandbox._replace(mount_view=floor, masked=masked))
    if listener is not None:
        channel.send("door", fds=(listener,))
        os.close(listener)
    mounts.make_shared(root)
    return site


def _enter_inner(channel: Channel) -> None:
    if sandboxes.is_privileged():
        namespaces.unshare(_USER_MOUNT_IPC)
        # Only a process outside may map more than one id.
        channel.send("map")
        channel.receive()
    else:
        namespaces.unshare(namespaces.NEWNS)
        mounts.make_follower()


def _below(root: bytes, paths: Iterable[bytes]) -> tuple[bytes, ...]:
    inside = root.rstrip(b"/") + b"/"
    return tuple(path[len(inside) :] for path in paths if path.startswith(inside))


def _await_ready(channel: Channel, maker: int) -> _Pids:
    pids, ready = _Pids(), False
    try:
        while not (pids.init and ready):
            message, fds = channel.receive()
            if message[0] == "map":
                namespaces.map_every_id(maker)
                channel.send("go")
            elif message[0] == "forked":
                pids.changer, pids.stower, pids.init = cast("tuple[int, ...]", message[1:])
            elif message[0] == "door":
                pids.door = fds[0]
            elif message[0] == "ready":
                ready = True
            else:
                raise WorldFailedError(f"no world could be made: {message[-1]}")
    except ClosedError as error:
        raise WorldFailedError("no world could be made: its maker ended early") from error
    except OSError as error:
        raise WorldFailedError(f"no world could be made: {error}") from error
    finally:
        _wait_for(maker)
    return pids


def _wait_for(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _pid_of(pidfd: int) -> int:
    """The pid out here; -1 once the process is gone."""
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
        for line in file:
            if line.startswith("Pid:"):
                return int(line.split()[1])
    return -1
