"""What the agent does while nobody waits for it, each in a process of its own.

Such a process is niced, takes the workspace's lock only if it is free, and lets go of it as soon
as anybody wants it (`FileLock` sends it a TERM). What it began and could not end is not lost:
every step is as safe against a kill as a command's own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

from substrate.errors import LockedError, MissingDependencyError, NotFoundError, SubstrateError
from substrate.history import compact, outside
from substrate.history.record import RUNNING
from substrate.history.store import is_alive
from substrate.model.paths import RelPath
from substrate.recorder.place import Place
from substrate.system import environment, forked
from substrate.system.locks import IDLE
from substrate.workspace.watch import TreeWatch

#: Plain values, for the pipe: what was found or done, or ``busy``, ``why_not``, ``error``.
Result = dict[str, object]
Work = Callable[[Place], Result]

_NICENESS = 10


class _GiveWayError(BaseException):
    """Somebody wants the lock. Not an `Exception`: nothing on the way may take it for one."""


def place_of(root: bytes, home: bytes) -> Place:
    """The workspace, with the settings of whoever works in it."""
    variables = dict(environment.current().variables)
    variables["SUBSTRATE_HOME"] = os.fsdecode(home)
    return Place.at(Path(os.fsdecode(root)), environment.parse(variables))


def start(work: Callable[[], Result]) -> forked.Forked | None:
    """Do `work` in a child of lowest importance that ends with us."""
    parent = os.getpid()
    return forked.fork(lambda: _guarded(work, parent))


def _guarded(work: Callable[[], Result], parent: int) -> Result:
    from substrate.system.linux import calls

    signal.signal(signal.SIGTERM, _give_way)
    calls.call("prctl", 1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
    try:
        if os.getppid() != parent:
            return {"busy": True}
        os.nice(_NICENESS)
        return work()
    except (_GiveWayError, LockedError, NotFoundError):  # or the history is just being made
        return {"busy": True}
    except MissingDependencyError as error:
        return {"why_not": error.message, "hint": error.hint}
    except SubstrateError as error:
        return {"error": error.message}
    except Exception as error:  # noqa: BLE001  a bug here must reach the log, not a user
        return {"error": f"{type(error).__name__}: {error}"}


def _give_way(_number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _GiveWayError


def set_up(place: Place, watch: TreeWatch) -> Result:
    """Watches first, then a scan: what changes in between is in both."""
    with place.existing_history() as store:
        store.tip()
        watch.set_up()
        found = outside.differing_anywhere(store)
    return {"table": watch.table(), "suspects": {bytes(path): deep for path, deep in found.items()}}


def record(place: Place, suspects: dict[RelPath, bool]) -> Result:
    """Compared without the lock, because most suspects are our own work; then only the rest."""
    with place.existing_history() as store:
        found = outside.differing(store, suspects)
        if not found:
            return {"recorded": []}
        if outside.has_other_names(store, found):
            found = outside.differing_anywhere(store)
        with store.writing(f"{IDLE}record outside edits", timeout_s=0.0, only_this=True):
            if not outside.record_suspects(store, found):
                return {"busy": True}
        return {"recorded": [bytes(path) for path in found]}


def tidy_up(place: Place, is_watched: bool) -> Result:
    """What `substrate compact` would do, if it is any use; and a scan where nobody watches."""
    with place.existing_history() as store:
        if any(one.kind == RUNNING and is_alive(one) for one in store.ledger.intents()):
            return {"busy": True}
        found = {} if is_watched else outside.differing_anywhere(store)
        report = None
        with store.writing(f"{IDLE}tidy up", timeout_s=0.0, only_this=True):
            if found and not outside.record_suspects(store, found):
                return {"busy": True}
            _, trashed = compact.expire(store)
            config = store.config
            if config.compact_auto:
                report = compact.compact_if_useful(
                    store, config.retention_checkpoints, config.retention_sessions
                )
    return {
        "recorded": [bytes(path) for path in found],
        "compacted": report is not None,
        "freed_bytes": max(0, report.size_before - report.size_after) if report else 0,
        "trash": len(trashed),
    }
