"""Where a use case happens: the workspace, the environment, and the history opened for it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from substrate.errors import RefusedError, SubstrateError, UsageError
from substrate.history.store import Config, HistoryStore, history_store, load_config
from substrate.model import RelPath, display, rel_path
from substrate.system import Environment
from substrate.system.process import deferred_work
from substrate.workspace import Workspace, find_workspace

#: In a forked child: references that keep the garbage collector from closing the stores.
_inherited: list[HistoryStore | None] = []


class Kept:
    """A history that stays open between the steps of one use case, without its lock.

    It belongs to the process that opened it: SQLite's locks do not survive a fork.
    """

    def __init__(self, store: HistoryStore | None = None) -> None:
        self._store = store
        self._pid = os.getpid()

    def belongs_to(self, workspace: Workspace, home_config: Path) -> bool:
        """Whether it is the history of `workspace`; if so, apply the current settings to it."""
        store = self._store
        if store is None or store.workspace != workspace:
            return False
        store.config = load_config(home_config, workspace.store / "config.toml")
        return True

    def opened(self, anew: Callable[[], HistoryStore]) -> HistoryStore:
        """The open store if it is still the one at its path, otherwise a new one from `anew`."""
        self._leave_to_parent()
        if self._store is not None and not history_store.still_good(self._store):
            self._store.refuse_if_moved("record a command")
            self.close()
        if self._store is None:
            self._store = anew()
        # A command may have edited the rules.
        self._store.forget_exclusions()
        return self._store

    @property
    def store(self) -> HistoryStore | None:
        """The open store; a process that postpones work keeps it open until that is done."""
        return self._store if self._pid == os.getpid() else None

    def save_seen(self) -> None:
        """See `HistoryStore.save_seen`. It only saves time, so errors are ignored."""
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
        """Close it so that a forked child can open it.

        SQLite shares its knowledge of a file within a process: a child would mistake its parent's
        locks for its own.
        """
        store, self._store = self._store, None
        if store is not None:
            store.close(entirely=True)
        deferred_work.close_left_open()

    def _leave_to_parent(self) -> None:
        """In a forked child, neither use nor close the parent's store."""
        if self._pid != os.getpid():
            _inherited.append(self._store)
            self._store, self._pid = None, os.getpid()


class Place(NamedTuple):
    workspace: Workspace
    environment: Environment
    cwd: Path
    #: ``--session`` and ``--agent-id``, otherwise from the environment.
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
            # It goes into text records: bytes that are not text are escaped.
            display(os.fsencode(agent_id or environment.agent_id)),
        )

    @property
    def _home_config(self) -> Path:
        return self.environment.substrate_home / "config.toml"

    def user_config(self) -> Config:
        """The user's own settings, without the workspace's."""
        return load_config(self._home_config)

    @contextmanager
    def keeping(self) -> Iterator[Place]:
        """This place, with a history that is opened once and closed at the end.

        This takes no lock: other processes may read, write, compact and even reset it.
        """
        if self.kept is not None:
            yield self
            return
        kept = history_ahead.take(self.workspace, self._home_config) or Kept()
        try:
            yield self._replace(kept=kept)
        finally:
            kept.close()

    def history(self) -> AbstractContextManager[HistoryStore]:
        """Open the history, and create it on first use; raises where history is refused."""
        return self._opened(history_store.open_store)

    def existing_history(self) -> AbstractContextManager[HistoryStore]:
        """Open an existing history; a query never creates one."""
        return self._opened(history_store.existing_store)

    def history_as_it_is(self) -> AbstractContextManager[HistoryStore]:
        """Open an existing history for work in the background: this mends nothing."""
        return self._opened(history_store.store_as_it_is)

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
        """Whether this process was started by a command that runs in a world."""
        return "SUBSTRATE_WORLD_ID" in self.environment.variables

    def refuse_inside(self) -> None:
        """For operations that only work outside: raises `RefusedError` in a world."""
        if self.is_inside_world:
            raise RefusedError(
                "this cannot be done from inside a world",
                hint="log, show, diff, status, checkpoint and undo work in here, where the world"
                " has a way out; ask for the rest when the command around this one is over;"
                " in Substrate's shell, ask in another terminal",
            )

    def rel_path(self, text: str | bytes) -> RelPath:
        """A path as the user typed it (relative to `cwd`) → relative to the workspace's root.

        Links are not followed below the root: history records the link itself.
        """
        raw = os.fsencode(text)
        if not raw:  # an unset variable must not mean the whole directory
            raise UsageError("a path is empty", hint="name a file or a directory; . is this one")
        here = os.path.normpath(os.path.join(os.fsencode(self.cwd.resolve()), raw))
        root = os.fsencode(self.workspace.root)
        if here == root:
            return RelPath(b"")
        prefix = root if root.endswith(b"/") else root + b"/"
        if not here.startswith(prefix):
            raise UsageError(
                f"{os.fsdecode(raw)!r} is outside the workspace {self.workspace.root}",
                hint="give a path inside it",
            )
        return rel_path(here[len(prefix) :])


class HistoryAhead:
    """A history opened before its call is known: only the speed layer opens one."""

    def __init__(self) -> None:
        self._kept: Kept | None = None

    def open(self, root: Path) -> None:
        """Open the history at `root` for a later call; on an error that call reports it.

        This takes no lock. If another process puts the history aside, the later call notices it.
        """
        # Here: it imports what writes entries, which a verb that only reads does not need.
        from substrate.history.store import open_ahead

        self.drop()
        try:
            store = open_ahead(find_workspace(root))
        except (SubstrateError, OSError):
            return
        self._kept = None if store is None else Kept(store)

    def drop(self) -> None:
        """Close it, if no call has used it."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def take(self, workspace: Workspace, home_config: Path) -> Kept | None:
        """The history opened ahead, if it is the one of `workspace`."""
        kept, self._kept = self._kept, None
        if kept is None or kept.belongs_to(workspace, home_config):
            return kept
        kept.close()
        return None


#: Of this process.
history_ahead = HistoryAhead()
