"""Reports of one session are recorded in the order in which its hooks began.

A hook returns before its report is recorded, so several reports of a session can be served at once,
and the history's lock does not keep their order. Each report has a file while it is served, named
by the time of its hook, and waits for those of earlier hooks:

    $SUBSTRATE_HOME/hooks/<session>/01794989651000000000-4711     locked as long as it is served
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from substrate.errors import SubstrateError
from substrate.system import Environment, clock
from substrate.system.files import files
from substrate.system.sync import FileLock

#: A report waits this long for earlier ones: an order that is not kept costs only attribution.
_MOST_S = 20.0
_PAUSE_S = 0.01


@contextmanager
def in_order(environment: Environment, session: str, began_ns: int) -> Iterator[None]:
    """Serve a report once those of earlier hooks of its session are served."""
    name = hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    directory = environment.substrate_home / "hooks" / name
    own = directory / f"{began_ns:020d}-{os.getpid()}"
    lock = FileLock(own)
    try:
        files.make_directory(directory.parent, 0o700)
        files.make_directory(directory, 0o700)
        lock.acquire(1.0, "a hook's report")
    except (OSError, SubstrateError):  # a full disk: the record itself says so
        yield
        return
    try:
        _await_earlier(directory, own)
        yield
    finally:
        with suppress(OSError):
            own.unlink()
        lock.release()
        with suppress(OSError):
            directory.rmdir()  # fails if there are others


def _await_earlier(directory: Path, own: Path) -> None:
    until_ns = clock.elapsed_ns() + int(_MOST_S * 1e9)
    while clock.elapsed_ns() < until_ns:
        with suppress(OSError):
            earlier = [one for one in os.listdir(directory) if one < own.name]
            if not any(_is_served(directory / one) for one in earlier):
                return
        clock.sleep(_PAUSE_S)


def _is_served(path: Path) -> bool:
    """Whether its process runs; a file that a killed process left is removed."""
    if not FileLock(path).is_free():
        return True
    with suppress(OSError):
        path.unlink()
    return False
