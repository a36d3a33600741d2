"""Looking after a store: status, check, repair, reset."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from substrate.errors import MissingDependencyError, NotFoundError
from substrate.history import held, record, repair, sessions
from substrate.history.fsck import Problem
from substrate.history.held import Held
from substrate.history.observe import HashOnly, changed_paths, observe
from substrate.history.repair import Repaired
from substrate.history.store import LOCK_TIMEOUT_S, check_trusted
from substrate.model.paths import RelPath
from substrate.recorder.place import Place
from substrate.recorder.world_choice import Asked, world_for
from substrate.system import clock
from substrate.system.locks import FileLock
from substrate.workspace.exclude import Exclusions

#: How the names begin under which a reset puts a history aside.
_RESET = "reset-"


class Status(NamedTuple):
    workspace: Path
    #: "kept", "not begun", or why there is none here.
    history: str
    #: The session that is open, or was named.
    session_id: str | None
    agent_id: str
    cannot_promise: str
    #: What the next command will run in.
    strategy: str
    running: tuple[str, ...] = ()
    #: Worlds that wait for a decision, or whose processes go on.
    worlds: tuple[Held, ...] = ()
    outside_changes: tuple[RelPath, ...] = ()
    rules: tuple[tuple[str, str], ...] = ()
    excluded: tuple[tuple[RelPath, str], ...] = ()
    unreadable: tuple[tuple[RelPath, str], ...] = ()
    specials: tuple[RelPath, ...] = ()
    #: The most recently active session, open or closed: `undo` and `rollback` speak of it.
    last_session_id: str | None = None


def status(place: Place) -> Status:
    """Scans, but records nothing."""
    workspace = place.workspace
    found = Status(workspace.root, "kept", None, place.agent_id, *_what_applies(place))
    if workspace.history_refused:
        stays = "; what is recorded stays" if workspace.store.exists() else ""
        return found._replace(history=workspace.history_refused + stays)
    rules = tuple(Exclusions.load(workspace.root).describe())
    try:
        with place.existing_history() as store:
            current, last = sessions.open_one(store), sessions.latest(store.ledger)
            if store.tip_commit is None:
                return found._replace(history="not begun", rules=rules)
            seen = observe(store, HashOnly())
            return found._replace(
                session_id=place.session or (current.session_id if current else None),
                last_session_id=last.session_id if last else None,
                running=record.running_beside(store, None),
                worlds=tuple(held.all_held(store)),
                outside_changes=tuple(changed_paths(seen.changes)),
                rules=tuple(store.exclusions.describe()),
                excluded=tuple(sorted(seen.scan.excluded.items())),
                unreadable=tuple(sorted(seen.scan.unreadable.items())),
                specials=tuple(seen.scan.specials),
            )
    except NotFoundError:
        return found._replace(history="not begun", rules=rules)


def _what_applies(place: Place) -> tuple[str, str]:
    """What the next command will run in: what that cannot promise, and its strategy."""
    try:
        isolation = world_for(place, Asked()).isolation
    except MissingDependencyError as error:
        return error.message, "none"
    return isolation.reason, isolation.strategy


def check_store(place: Place) -> list[Problem]:
    _require_store(place)
    with _Locked(place, "fsck"):
        return repair.check_or_explain(place.workspace, _config(place))


def repair_store(place: Place) -> Repaired:
    _require_store(place)
    with _Locked(place, "repair"):
        return repair.repair(place.workspace, _config(place))


def reset_history(place: Place) -> Path:
    """Put the whole history aside, by rename; the next command begins a new one."""
    _require_store(place)
    store = place.workspace.store
    with _Locked(place, "reset"):
        aside = store / "quarantine" / (_RESET + clock.iso(clock.now_ns()).replace(":", ""))
        aside.mkdir(parents=True, mode=0o700)
        for name in (".git", "index", "journal"):
            if (store / name).exists():
                (store / name).rename(aside / name)
    return aside


def _require_store(place: Place) -> None:
    place.refuse_inside()
    check_trusted(place.workspace)
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
    """By a reset, with nothing recorded since: that is no damage."""
    if (store / ".git").exists() or (store / "index").exists():
        return False
    return any((store / "quarantine").glob(_RESET + "*"))


def _config(place: Place) -> Path:
    return place.environment.substrate_home / "config.toml"


class _Locked:
    """The workspace's lock without opening the store, which may be damaged."""

    def __init__(self, place: Place, purpose: str) -> None:
        self._lock = FileLock(place.workspace.store / "lock")
        self._purpose = purpose

    def __enter__(self) -> None:
        self._lock.acquire(timeout_s=LOCK_TIMEOUT_S, purpose=self._purpose)

    def __exit__(self, *exception: object) -> None:
        self._lock.release()
