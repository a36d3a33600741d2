"""The two processes that change what a standing world shows at the workspace's path.

The changer is outside the world's pid namespace, so that nothing in there can see or signal it, and
it may mount, unlike the world's processes.

    receives: lay KEY NAME, take, refresh, seek NAMES, look
    reports:  done ERROR KEYS, and by itself: gone KEYS

`lay` mounts a view below the visible one, `take` removes the visible one. In between the stower may
move it elsewhere, for the processes that are still running in it. The stower is outside the world's
pid namespace, too, but in its mount namespace.

    receives: stow PATH, drop PATH
    reports:  done ERROR

A key names one view. It is *gone* once no process has a directory or a file of it open: then
nothing can write to its layer. As long as a background job runs in it, it is not gone.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from typing import NamedTuple, NoReturn, cast

from substrate.system.linux import Unmounts, mounts
from substrate.system.process import Channel, ClosedError
from substrate.world.process import look_for
from substrate.world.process import sandbox as sandboxes
from substrate.world.strategies import FLAGS, mount_overlay


class Site(NamedTuple):
    """What views are made of. The descriptors were opened before the world was arranged."""

    root: bytes
    #: The real workspace, and the directory with the layers.
    real: int
    worlds: int
    trusted: bool
    #: Below the root: mounts that are shown as they are, what is shown read-only, what is hidden.
    kept: tuple[bytes, ...] = ()
    read_only: tuple[bytes, ...] = ()
    masked: tuple[bytes, ...] = ()


def serve(site: Site, channel: Channel) -> NoReturn:
    """Serve until the other side is gone."""
    try:
        # The terminal's keys are not for us.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        os.chdir("/")
        _Changer(site, channel).run()
    except (ClosedError, OSError):
        pass
    finally:  # never return into a second copy of the caller's code
        os._exit(0)


class _Changer:
    def __init__(self, site: Site, channel: Channel) -> None:
        self._site = site
        self._channel = channel
        self._unmounts = Unmounts()
        self._keys: dict[int, str] = {}
        self._is_shown = False
        self._is_laid = False
        self._waiting = -1

    def run(self) -> None:
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        poll.register(self._unmounts.fileno(), select.POLLIN)
        while True:
            ready = {fd for fd, _ in poll.poll()}
            if self._channel.fileno() in ready:
                message, _ = self._channel.receive()
                error = self._do(message)
                self._channel.send("done", error, self._gone())
            elif gone := self._gone():
                self._channel.send("gone", gone)

    def _do(self, message: tuple[object, ...]) -> str:
        try:
            if message[0] == "lay":
                self._lay(cast(str, message[1]), cast(bytes, message[2]))
            elif message[0] == "take":
                self._take()
            elif message[0] == "refresh" and self._is_shown:
                mounts.forget_names(self._site.root, FLAGS)
            elif message[0] == "seek" and self._is_shown:
                names = cast("tuple[bytes, ...]", message[1])
                look_for(os.path.join(self._site.root, name) for name in names)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def _gone(self) -> tuple[str, ...]:
        return tuple(self._keys.pop(number) for number in self._unmounts.gone())

    def _lay(self, key: str, name: bytes) -> None:
        """Make the new view complete before it is visible."""
        stage = b"/proc/self/fd/%d/%s/root" % (self._site.worlds, name)
        self._mount(stage, name)
        try:
            tree = mounts.take_mount(stage)
            self._keys[self._unmounts.watch(stage)] = key
        except OSError:
            mounts.unmount(stage)
            raise
        self._waiting = tree
        if self._is_shown:
            with suppress(OSError):  # before Linux 6.5
                mounts.attach_beneath(tree, self._site.root)
                os.close(tree)
                self._is_laid, self._waiting = True, -1

    def _take(self) -> None:
        """What was laid is visible from now on.

        If it had to wait, the real files are visible for a moment, read-only.
        """
        if self._is_shown:
            mounts.unmount(self._site.root)
        self._is_shown, self._is_laid = self._is_laid, False
        if self._waiting >= 0:
            tree, self._waiting = self._waiting, -1
            try:
                mounts.attach_tree(tree, self._site.root)
            finally:
                os.close(tree)
            self._is_shown = True

    def _mount(self, stage: bytes, name: bytes) -> None:
        site = self._site
        directory = os.open(name, os.O_PATH | os.O_DIRECTORY, dir_fd=site.worlds)
        try:
            mount_overlay(site.real, directory, stage, trusted=site.trusted)
        finally:
            os.close(directory)
        try:
            for path in (*site.kept, *site.read_only):
                self._attach(stage, path)
            for path in site.masked:
                sandboxes.mask(stage + b"/" + path)
        except OSError:
            mounts.unmount(stage)
            raise

    def _attach(self, stage: bytes, path: bytes) -> None:
        with suppress(FileNotFoundError):
            tree = mounts.clone_tree(b"/proc/self/fd/%d/%s" % (self._site.real, path))
            try:
                mounts.attach_tree(tree, stage + b"/" + path)
            finally:
                os.close(tree)
            if path in self._site.read_only:
                mounts.restrict(stage + b"/" + path, mounts.RDONLY, recursive=True)


def serve_parking(root: bytes, channel: Channel) -> NoReturn:
    """The stower: serve until the other side is gone.

    A job that keeps running after its line keeps the line's view, through its directory and its
    open files. If that view were only unmounted, the job's directory would have no path any more
    (getcwd fails, and many programs with it). So it is moved, within the world, to a directory of
    its own.
    """
    try:
        # The terminal's keys are not for us.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        os.chdir("/")
        while True:
            message, _ = channel.receive()
            channel.send("done", _park(root, cast(str, message[0]), cast(bytes, message[1])))
    except (ClosedError, OSError):
        pass
    finally:  # never return into a second copy of the caller's code
        os._exit(0)


def _park(root: bytes, word: str, path: bytes) -> str:
    try:
        if word == "stow":
            mounts.move(root, path)
        else:
            mounts.unmount_if_unused(path)
    except OSError as error:
        return error.strerror or str(error)
    return ""
