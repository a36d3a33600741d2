"""Looking after a store: status, check, repair, reset."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from substrate.errors import MissingDependencyError, NotFoundError
from substrate.history.arrival import Held, held_world_rows
from substrate.history.maintenance import CapState, Problem, Repaired, disk_cap, repair
from substrate.history.record import HashOnly, changed_paths, observe, record_entry, sessions
from substrate.history.store import LOCK_TIMEOUT_S, UNFINISHED, check_trusted
from substrate.model import RelPath
from substrate.recorder.command import Asked, world_for
from substrate.recorder.session_context import Place
from substrate.system import clock
from substrate.system.sync import FileLock
from substrate.workspace import Exclusions, is_foreign, leave_mark

#: Prefix of the names under which a reset puts a history aside.
_RESET = "reset-"
_SHOWN_PROBLEMS = 3


class Status(NamedTuple):
    workspace: Path
    #: "kept", "not begun", or why there is no history here (`is_refused`).
    history: str
    #: The session that is open, or was named.
    session_id: str | None
    agent_id: str
    cannot_promise: str
    #: What the next command will run in.
    strategy: str
    running: tuple[str, ...] = ()
    #: Worlds that are held, or whose processes are still running.
    worlds: tuple[Held, ...] = ()
    outside_changes: tuple[RelPath, ...] = ()
    rules: tuple[tuple[str, str], ...] = ()
    excluded: tuple[tuple[RelPath, str], ...] = ()
    unreadable: tuple[tuple[RelPath, str], ...] = ()
    specials: tuple[RelPath, ...] = ()
    #: The disk cap: what it cost, and whether it is kept.
    cap: CapState | None = None
    #: The most recently active session, open or closed: the default of `undo` and `rollback`.
    last_session_id: str | None = None
    #: No history is kept here.
    is_refused: bool = False


def status(place: Place) -> Status:
    """The state of the workspace. Scans, but records nothing."""
    workspace = place.workspace
    found = Status(workspace.root, "kept", None, place.agent_id, *_what_applies(place))
    if workspace.history_refused:
        stays = "; what is recorded stays" if workspace.store.exists() else ""
        return found._replace(history=workspace.history_refused + stays, is_refused=True)
    rules = tuple(Exclusions.load(workspace.root).describe())
    try:
        with place.existing_history() as store:
            current, last = sessions.open_one(store, place.agent_id), sessions.latest(store.ledger)
            if store.tip_commit is None:
                return found._replace(history="not begun", rules=rules)
            seen = observe(store, HashOnly())
            return found._replace(
                session_id=place.session or (current.session_id if current else None),
                last_session_id=last.session_id if last else None,
                cap=disk_cap.state(store),
                running=record_entry.running_beside(store, None),
                worlds=tuple(held_world_rows.all_held(store)),
                outside_changes=tuple(changed_paths(seen.changes)),
                rules=tuple(store.exclusions.describe()),
                excluded=tuple(sorted(seen.scan.excluded.items())),
                unreadable=tuple(sorted(seen.scan.unreadable.items())),
                specials=tuple(seen.scan.specials),
            )
    except NotFoundError:
        return found._replace(history="not begun", rules=rules)


def accept_outside(place: Place) -> list[RelPath]:
    """Record outside edits, whatever the settings say. Returns their paths."""
    with place.existing_history() as store, store.writing("accept outside edits"):
        done = record_entry.record_outside(store, accepts=True)
    return changed_paths(done.changes) if done is not None else []


def _what_applies(place: Place) -> tuple[str, str]:
    """What the next command's world cannot promise, and its strategy."""
    try:
        isolation = world_for(place, Asked()).isolation
    except MissingDependencyError as error:
        return error.message, "none"
    return isolation.reason, isolation.strategy


def check_store(place: Place) -> list[Problem]:
    _require_store(place)
    with _Locked(place, "fsck", only_looks=True) as lock:
        problems = repair.check_or_explain(place.workspace, _config(place))
        # The next call that writes removes what a killed process left.
        died = lock.holder() is not None
    return [one for one in problems if not (died and one.is_leftover)]


def repair_store(place: Place) -> Repaired:
    _require_store(place)
    with _Locked(place, "repair"):
        return repair.repair(place.workspace, _config(place))


def mend(place: Place, damage: BaseException) -> list[str]:
    """Repair the history because a command found `damage`. Returns messages on the outcome.

    The damaged history is kept in the quarantine. If no damage is found, `damage` is raised again.
    """
    if place.kept is not None:
        place.kept.close()
    if not place.workspace.store.is_dir():
        raise damage
    done = repair_store(place)
    if done.extent == "nothing":
        raise damage
    if done.extent == "objects":
        return []  # the next step reports it
    what = "; ".join(problem.what for problem in done.problems[:_SHOWN_PROBLEMS])
    if done.carried is None:
        return [f"the history was damaged and is mended, nothing is lost: {what}"]
    kept, lost = len(done.carried.kept), len(done.carried.lost)
    said = (
        f"the history was damaged: {what}; a new one was started, {kept} entries kept, {lost} lost"
    )
    said += f" (`substrate log` shows them); the damaged one is kept in {done.quarantine}"
    return [said]


def reset_history(place: Place) -> Path:
    """Put the whole history aside by a rename; the next command begins a new one.

    Of a history that was not made here, nothing stays in use.
    """
    _require_store(place, made_anywhere=True)
    store = place.workspace.store
    with _Locked(place, "reset"):
        parts = [".git", "index", "journal"]
        if is_foreign(store):
            kept = (".gitignore", "lock", UNFINISHED.parts[0])
            parts = [name for name in os.listdir(store) if name not in kept]
            parts.append(os.fspath(UNFINISHED))
        aside = store / "quarantine" / (_RESET + clock.iso(clock.now_ns()).replace(":", ""))
        aside.mkdir(parents=True, mode=0o700)
        for name in parts:
            if (store / name).exists():
                (store / name).rename(aside / os.path.basename(name))
    return aside


def adopt_history(place: Place, *, is_dry_run: bool = False) -> bool:
    """Use a history that was not made here. Returns whether it was one."""
    _require_store(place, made_anywhere=True)
    store = place.workspace.store
    if not is_foreign(store):
        return False
    if not is_dry_run:
        with _Locked(place, "adopt"):
            leave_mark(store)
    return True


def _require_store(place: Place, *, made_anywhere: bool = False) -> None:
    place.refuse_inside()
    check_trusted(place.workspace, made_anywhere=made_anywhere)
    if not place.workspace.store.is_dir():
        raise NotFoundError(
            f"no history in {place.workspace.root}",
            hint="run something first: substrate -c 'your command'",
        )
    if _is_put_aside(place.workspace.store):
        raise NotFoundError(
            f"no history in {place.workspace.root}: it was put aside",
            hint="the next command begins a new one",
        )


def _is_put_aside(store: Path) -> bool:
    """Whether a reset put it aside and nothing was recorded since: that is not damage."""
    if (store / ".git").exists() or (store / "index").exists():
        return False
    return any((store / "quarantine").glob(_RESET + "*"))


def _config(place: Place) -> Path:
    return place.environment.substrate_home / "config.toml"


class _Locked:
    """The workspace's lock without opening the store, which may be damaged."""

    def __init__(self, place: Place, purpose: str, *, only_looks: bool = False) -> None:
        """`only_looks`: take a shared lock. It keeps the record of a holder that died, and works
        on a read-only copy."""
        self._lock = FileLock(place.workspace.store / "lock")
        self._purpose = purpose
        self._only_looks = only_looks

    def __enter__(self) -> FileLock:
        self._lock.acquire(LOCK_TIMEOUT_S, self._purpose, shared=self._only_looks)
        return self._lock

    def __exit__(self, *exception: object) -> None:
        self._lock.release()
