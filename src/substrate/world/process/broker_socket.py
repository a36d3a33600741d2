"""The way out of a world: a socket that is made inside and listened to outside.

Processes inside reach it by its path, in every tier and without a network. No other process can,
because its directory is mounted in that world alone. It leaves nothing on any disk.
"""

from __future__ import annotations

import os
from pathlib import Path

from substrate.system.files import real_path
from substrate.system.linux import mounts

NAME = b"broker"
#: In a world with its own root directory.
_IN_NEW_ROOT = b"/run/substrate"
_BACKLOG = 64


def directory(tier: str, home: Path) -> bytes:
    """Its directory, seen from inside; `home` is Substrate's own. Empty where it is impossible."""
    if tier == "full":
        return _IN_NEW_ROOT
    where = os.path.join(real_path(home), "run")
    try:
        os.mkdir(where, 0o700)
    except FileExistsError:
        pass
    except OSError:
        return b""
    return os.fsencode(where)


def make(where: bytes, tier: str) -> int:
    """In the world's mount namespace: make a listening socket; returns its descriptor."""
    import _socket

    if tier == "full":
        os.makedirs(where, 0o700)
    else:
        flags = mounts.NOSUID | mounts.NODEV | mounts.NOEXEC
        mounts.mount(b"tmpfs", where, b"tmpfs", flags, b"size=4k,mode=700")
    here = os.open(b".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        os.chdir(where)  # an address has no room for a long path
        listener.bind(NAME)
        os.chmod(NAME, 0o600)
    finally:
        os.fchdir(here)
        os.close(here)
    listener.listen(_BACKLOG)
    if tier != "full":
        mounts.restrict(where, mounts.RDONLY)
    return listener.detach()
