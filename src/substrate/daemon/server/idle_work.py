"""What the daemon does while no caller waits, each task in its own process.

Such a process is niced, takes the workspace's lock only if it is free, and releases it as soon as
another process wants it (`FileLock` sends it a TERM). Interrupted work is not lost: every step is
as safe against a kill as a command's own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

from substrate.errors import LockedError, MissingDependencyError, NotFoundError, SubstrateError
from substrate.history.arrival import held_world_rows
from substrate.history.maintenance import compact
from substrate.history.record import RUNNING, watched_edits
from substrate.model import RelPath
from substrate.recorder import Place
from substrate.recorder.arrival import collect_detached
from substrate.system import environment, user_notes
from substrate.system.process import fork_workers
from substrate.workspace import STORE_NAME
from substrate.workspace.watch import TreeWatch

#: Plain values, for the pipe: what was found or done, or ``busy``, ``why_not``, ``error``.
Result = dict[str, object]
Work = Callable[[Place], Result]

_NICENESS = 10


class _GiveWayError(BaseException):
    """Another process wants the lock. Not an `Exception`, so that no handler catches it early."""


def place_of(root: bytes, home: bytes) -> Place:
    """The workspace, with the settings of its last caller (`home` is its ``$SUBSTRATE_HOME``)."""
    variables = dict(environment.current().variables)
    variables["SUBSTRATE_HOME"] = os.fsdecode(home)
    return Place.at(Path(os.fsdecode(root)), environment.parse(variables))


def start(work: Callable[[], Result]) -> fork_workers.Forked | None:
    """Do `work` in a low-priority child that ends with us."""
    parent = os.getpid()
    return fork_workers.fork(lambda: _guarded(work, parent))


def _guarded(work: Callable[[], Result], parent: int) -> Result:
    from substrate.system.linux import syscalls

    user_notes.to = None  # the daemon's own stderr: the next call must tell its user
    signal.signal(signal.SIGTERM, _give_way)
    syscalls.call("prctl", 1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
    try:
        if os.getppid() != parent:
            return {"busy": True}
        os.nice(_NICENESS)
        return work()
    except (_GiveWayError, LockedError, NotFoundError):  # or the history is being created right now
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
    """Set up watches first, then scan: a change in between is in both."""
    with place.history_as_it_is() as store:
        store.tip()
        watch.set_up()
        found = watched_edits.differing_anywhere(store)
    return {
        "table": watch.table(),
        "linked": watch.linked.table(),
        "suspects": {bytes(path): deep for path, deep in found.items()},
    }


def record(place: Place, suspects: dict[RelPath, bool]) -> Result:
    """Compare without the lock, because most suspects are our own work; then record the rest.

    If only the store is left, the user may be removing the project: leave that to the next command.
    """
    if os.listdir(place.workspace.root) == [STORE_NAME]:
        return {"busy": True}
    with place.history_as_it_is() as store:
        found = watched_edits.differing(store, suspects)
        if not found or store.config.refuses_external:
            return {"recorded": []}
        if watched_edits.has_other_names(store, found):
            found = watched_edits.differing_anywhere(store)
        with store.writing("record outside edits", timeout_s=0.0, only_this=True, is_idle=True):
            if not watched_edits.record_suspects(store, found):
                return {"busy": True}
        return {"recorded": [bytes(path) for path in found]}


def collect(place: Place) -> Result:
    """Bring in what processes wrote that outlived their command and have ended since.

    This waits for the lock like a command, and is not asked to give way: the change arrives whole.
    """
    with place.history_as_it_is() as store:
        if not held_world_rows.may_be_detached(store):
            return {"running": [], "notes": []}
    notes, running = collect_detached(place)
    if notes:
        with place.history_as_it_is() as store, store.writing("keep notes", only_this=True):
            store.tell_later(notes)
    return {"running": [bytes(layer.directory) for layer in running], "notes": notes}


def tidy_up(place: Place, is_watched: bool) -> Result:
    """Do what `substrate compact` does, if useful; and scan a workspace that is not watched."""
    with place.history_as_it_is() as store:
        if any(one.kind == RUNNING and store.is_alive(one) for one in store.ledger.intents()):
            return {"busy": True}
        scans = not is_watched and not store.config.refuses_external
        found = watched_edits.differing_anywhere(store) if scans else {}
        report = None
        with store.writing("tidy up", timeout_s=0.0, only_this=True, is_idle=True):
            if found and not watched_edits.record_suspects(store, found):
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
