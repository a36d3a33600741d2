"""Where a use case happens: the workspace, the environment, and the history opened for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from substrate.errors import RefusedError, SubstrateError, UsageError
from substrate.history import store as history_store
from substrate.history.ahead import open_ahead as open_history_ahead
from substrate.history.config import load_config
from substrate.history.store import HistoryStore
from substrate.model.paths import RelPath, display, rel_path
from substrate.system import afterwards
from substrate.system.environment import Environment
from substrate.workspace.locate import Workspace, find_workspace

#: In a forked child: kept from the garbage collector, which would close it.
_inherited: list[HistoryStore | None] = []


class Kept:
    """A history that stays open between the steps of one use case, without its lock.

    It belongs to the process that opened it: SQLite's locks do not survive a fork.
    """

    def __init__(self, store: HistoryStore | None = None) -> None:
        self._store = store
        self._pid = os.getpid()

    def belongs_to(self, workspace: Workspace, home_config: Path) -> bool:
        """Whether it is this one's; from now on it goes by this user's settings."""
        store = self._store
        if store is None or store.workspace != workspace:
            return False
        store.config = load_config(home_config, workspace.store / "config.toml")
        return True

    def opened(self, anew: Callable[[], HistoryStore]) -> HistoryStore:
        """The open store if nobody has put it aside meanwhile, else opened `anew`."""
        self._leave_to_parent()
        if self._store is not None and not history_store.still_good(self._store):
            self.close()
        if self._store is None:
            self._store = anew()
        # A command may have edited them.
        self._store.forget_exclusions()
        return self._store

    @property
    def store(self) -> HistoryStore | None:
        """What is open now; it stays so in a process that postpones work, until that is done."""
        return self._store if self._pid == os.getpid() else None

    def save_seen(self) -> None:
        """See `HistoryStore.save_seen`; it is only for speed, so that nothing here is an error."""
        self._leave_to_parent()
        if self._store is not None:
            with suppress(SubstrateError, OSError):
                self._store.save_seen()

    def close(self) -> None:
        self._leave_to_parent()
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def let_go(self) -> None:
        """Close it so that a forked child can open it: SQLite shares within a process what it
        knows of a file, and a child would take its parent's locks for its own."""
        store, self._store = self._store, None
        if store is not None:
            store.close(entirely=True)
        afterwards.close_left_open()

    def _leave_to_parent(self) -> None:
        """In a forked child to close it would be as wrong as to use it."""
        if self._pid != os.getpid():
            _inherited.append(self._store)
            self._store, self._pid = None, os.getpid()


class Place(NamedTuple):
    workspace: Workspace
    environment: Environment
    cwd: Path
    #: ``--session`` and ``--agent-id``, else what the environment says.
    session: str | None
    agent_id: str
    #: See `keeping`.
    kept: Kept | None = None

    @classmethod
    def at(
        cls,
        cwd: Path,
        environment: Environment,
        session: str | None = None,
        agent_id: str | None = None,
    ) -> Place:
        return cls(
            find_workspace(cwd),
            environment,
            cwd,
            session or environment.session_id,
            # It goes into records that are text: bytes that are none are spelt out.
            display(os.fsencode(agent_id or environment.agent_id)),
        )

    @property
    def _home_config(self) -> Path:
        return self.environment.substrate_home / "config.toml"

    @contextmanager
    def keeping(self) -> Iterator[Place]:
        """This place, with a history that is opened once and closed at the end.

        Nothing is locked by that: others read, write, compact and even reset it meanwhile.
        """
        if self.kept is not None:
            yield self
            return
        kept = _take_ahead(self.workspace, self._home_config) or Kept()
        try:
            yield self._replace(kept=kept)
        finally:
            kept.close()

    def history(self) -> AbstractContextManager[HistoryStore]:
        """Open the history, making it on first use; refused places raise."""
        return self._opened(history_store.open_store)

    def existing_history(self) -> AbstractContextManager[HistoryStore]:
        """Open a history that is there; a question never makes one."""
        return self._opened(history_store.existing_store)

    @contextmanager
    def _opened(self, way: Callable[[Workspace, Path], HistoryStore]) -> Iterator[HistoryStore]:
        self.refuse_inside()
        if self.kept is not None:
            yield self.kept.opened(lambda: way(self.workspace, self._home_config))
            return
        store = way(self.workspace, self._home_config)
        try:
            yield store
        finally:
            store.close()

    @property
    def is_inside_world(self) -> bool:
        """Whether we were called by a command that runs in a world."""
        return "SUBSTRATE_WORLD_ID" in self.environment.variables

    def refuse_inside(self) -> None:
        """For what only works outside: raises `RefusedError` in a world."""
        if self.is_inside_world:
            raise RefusedError(
                "this cannot be done from inside a world",
                hint="log, show, diff, status, checkpoint and undo work in here, where the world"
                " has a way out; ask for the rest when the command around this one is over;"
                " in Substrate's shell, ask in another terminal",
            )

    def rel_path(self, text: str | bytes) -> RelPath:
        """A path as the user typed it (from where they stand) → below the workspace's root.

        Links are not followed below the root: the link itself is what history knows.
        """
        raw = os.fsencode(text)
        here = os.path.normpath(os.path.join(os.fsencode(self.cwd.resolve()), raw))
        root = os.fsencode(self.workspace.root)
        if here == root:
            return RelPath(b"")
        prefix = root if root.endswith(b"/") else root + b"/"
        if not here.startswith(prefix):
            raise UsageError(
                f"{os.fsdecode(raw)!r} lies outside the workspace {self.workspace.root}",
                hint="give a path inside it",
            )
        return rel_path(here[len(prefix) :])


# ------------------------------------------------------------------------------ ahead of a call

_ahead: Kept | None = None


def open_ahead(root: Path) -> None:
    """Open the history at `root` for the call that may come; whatever is in the way, it will say.

    Nothing is locked. Whoever puts the history aside meanwhile is noticed when it is used.
    """
    global _ahead
    drop_ahead()
    try:
        store = open_history_ahead(find_workspace(root))
    except (SubstrateError, OSError):
        return
    _ahead = None if store is None else Kept(store)


def drop_ahead() -> None:
    """Close it, if it is still there."""
    global _ahead
    kept, _ahead = _ahead, None
    if kept is not None:
        kept.close()


def _take_ahead(workspace: Workspace, home_config: Path) -> Kept | None:
    global _ahead
    kept, _ahead = _ahead, None
    if kept is None or kept.belongs_to(workspace, home_config):
        return kept
    kept.close()
    return None
