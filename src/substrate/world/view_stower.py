"""The process that puts views aside in which somebody still works.

A job that goes on after its line keeps the line's view, by its directory and its open files. If
that view were only taken away, the job's directory would have no path any more (getcwd fails, and
half the programs with it). So it is moved, within the world, to a place of its own.

Outside the world's pid namespace, as the view changer is, but in its mount namespace.

    told:    stow PATH, drop PATH
    reports: done ERROR
"""

from __future__ import annotations

import os
import signal
from typing import NoReturn, cast

from substrate.system.channel import Channel, ClosedError
from substrate.system.linux import mounts


def serve(root: bytes, channel: Channel) -> NoReturn:
    """Do as told until the other side is gone."""
    try:
        # The keys of the terminal are not for us.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        os.chdir("/")
        while True:
            message, _ = channel.receive()
            channel.send("done", _do(root, cast(str, message[0]), cast(bytes, message[1])))
    except (ClosedError, OSError):
        pass
    finally:  # never return into a second copy of our caller
        os._exit(0)


def _do(root: bytes, word: str, path: bytes) -> str:
    try:
        if word == "stow":
            mounts.move(root, path)
        else:
            mounts.unmount_if_unused(path)
    except OSError as error:
        return error.strerror or str(error)
    return ""
