"""A workspace's history, opened: its lock, its commit point, and what publishes it to git.

The order of every change, which makes it all-or-nothing across a kill or a power cut:

    1. objects are written: small ones loose and unsynced, large ones and packs synced
    2. ONE ledger transaction: the entry, the refs, and the small objects' bytes    <- commit point
    3. the ref files are written, unsynced

A crash before 2 leaves unreferenced objects. A crash after 2 leaves refs (and, after a power cut,
loose objects) to be written again from the ledger, which `settle` does before anything else.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from substrate.errors import (
    DamagedStoreError,
    HistoryRefusedError,
    NotFoundError,
    SubstrateError,
)
from substrate.history.config import Config, load_config
from substrate.history.ledger import Detail, Intent, Ledger
from substrate.history.messages import BRANCH, parse_trailers
from substrate.objects import refs
from substrate.objects.batch import Batch
from substrate.objects.git import Git
from substrate.objects.snapshot import Snapshot
from substrate.objects.store import ObjectStore
from substrate.system import clock, files, ids, platform
from substrate.system.locks import FileLock
from substrate.workspace.exclude import Exclusions
from substrate.workspace.locate import Workspace, protect_store, why_not_opened

LOCK_TIMEOUT_S = 60.0
_KNOWN_SNAPSHOTS = 64
#: Names the quarantine of a repair that is not done yet; the store is not opened meanwhile.
UNFINISHED = Path("quarantine", "unfinished")


class HistoryStore:
    """Open with `open_store`; changes happen inside ``with store.writing("undo"):``."""

    def __init__(self, workspace: Workspace, config: Config, *, only_there: bool = False) -> None:
        """`only_there`: its index must be, and is not made."""
        self.workspace = workspace
        self.config = config
        self.root = workspace.root
        self.dir = workspace.store
        self.git_dir = self.dir / ".git"
        self.objects = ObjectStore(self.git_dir)
        self.ledger = Ledger(self.dir / "index" / "history.db", only_there=only_there)
        self.lock = FileLock(self.dir / "lock")
        self._exclusions: Exclusions | None = None
        self._snapshots: dict[bytes, Snapshot] = {}
        #: The ledger's version when all of it was settled and nothing of ours had failed since.
        self._settled: int | None = None
        #: Writes down what a first look saw, so that the next scan need not read it all.
        self._unsaved: Callable[[], None] | None = None

    # -- places -------------------------------------------------------------------------------

    @property
    def stat_cache_file(self) -> Path:
        return self.dir / "index" / "stat-cache"

    @property
    def trash_dir(self) -> Path:
        return self.dir / "trash"

    def scratch(self, intent_id: str) -> Path:
        """Where an operation stages files: same file system as the workspace, private."""
        return self.dir / "journal" / intent_id

    @property
    def git(self) -> Git:
        return Git(self.git_dir, self.root)

    @property
    def exclusions(self) -> Exclusions:
        if self._exclusions is None:
            self._exclusions = Exclusions.load(self.root, size_cap_bytes=self.config.max_file_bytes)
        return self._exclusions

    def forget_exclusions(self) -> None:
        """The rules are read again: a command may have edited ``.substrateignore``."""
        self._exclusions = None

    # -- the line -----------------------------------------------------------------------------

    @property
    def tip_commit(self) -> bytes | None:
        return self.ledger.ref(BRANCH)

    def tip(self) -> Snapshot:
        """The state of the workspace that history knows last."""
        commit = self.tip_commit
        if commit is None:
            raise NotFoundError("this workspace has no history yet", hint="run a command first")
        return self.snapshot_of(commit)

    def snapshot_of(self, commit: bytes) -> Snapshot:
        known = self._snapshots.get(commit)
        if known is not None:
            return known
        parsed = self.objects.read_commit(commit)
        trailers = parse_trailers(parsed.message)
        attrs = bytes.fromhex(trailers.attrs) if trailers and trailers.attrs else b""
        if len(self._snapshots) >= _KNOWN_SNAPSHOTS:
            self._snapshots.clear()
        self._snapshots[commit] = Snapshot(parsed.tree, attrs)
        return self._snapshots[commit]

    def parent_snapshot(self, commit: bytes) -> Snapshot | None:
        """The state before a commit; None before the baseline."""
        parents = self.objects.read_commit(commit).parents
        return self.snapshot_of(parents[0]) if parents else None

    # -- writing ------------------------------------------------------------------------------

    @contextmanager
    def writing(
        self, purpose: str, timeout_s: float = LOCK_TIMEOUT_S, *, only_this: bool = False
    ) -> Iterator[None]:
        """Hold the workspace's lock; what a crash left behind is settled first.

        `only_this`: the history as it was opened. If it stands there no more `NotFoundError` or
        `WorkspaceError` is raised, and nothing is made in its place.
        """
        self.lock.acquire(timeout_s=timeout_s, purpose=purpose, makes_file=not only_this)
        try:
            if not self.ledger.is_current:
                if only_this:
                    raise NotFoundError("the history was removed, or put aside")
                self._open_again()
            self.objects.reload()
            self._settle()
            yield
            self._settled = self.ledger.version()
        finally:
            self.lock.release()

    def _settle(self) -> None:
        """Unless nobody else has written since we did it."""
        # settle imports the operations it finishes
        from substrate.history.settle import settle, sweep

        settled, self._settled = self._settled, None
        if self.lock.predecessor_died:
            settle(self)
            sweep(self)
        elif settled is None or settled != self.ledger.version():
            settle(self)

    def _open_again(self) -> None:
        """Somebody has put the history aside, and perhaps begun a new one."""
        check_repaired(self.workspace)
        self.ledger.close()
        self.ledger = Ledger(self.dir / "index" / "history.db")
        self.objects.close()
        self.objects = ObjectStore(self.git_dir)
        self._settled = None
        self._unsaved = None

    def save_later(self, save: Callable[[], None]) -> None:
        """Keep this for `save_seen`; if that never comes, it costs the next scan some time."""
        self._unsaved = save

    def save_seen(self) -> None:
        """Write down what was seen on first use, if that was left for later and nobody did so."""
        if self._unsaved is not None:
            with self.writing("save what was seen"):  # who opens it anew there forgets this
                self._save_unsaved()

    def _save_unsaved(self) -> None:
        save, self._unsaved = self._unsaved, None
        if save is not None and not self.stat_cache_file.exists():
            save()

    def new_batch(self) -> Batch:
        return Batch(self.objects)

    @contextmanager
    def commit_point(self, batch: Batch | None = None, *, durable: bool = True) -> Iterator[Ledger]:
        """Steps 1–3 above around one ledger transaction."""
        small = []
        if batch is not None:
            small = batch.small_objects()
            batch.publish()
        ledger = self.ledger
        try:
            with ledger.transaction(durable=durable):
                if ledger.has_unpublished:
                    ledger.refs_were_published()
                    ledger.has_unpublished = False
                if small:
                    ledger.keep_objects(small)
                yield ledger
        except BaseException:
            ledger.has_unpublished = True
            raise
        if ledger.has_unpublished:
            self.publish_refs()

    def publish_refs(self) -> None:
        found = self.ledger.refs(unpublished_only=True)
        self.ledger.has_unpublished = bool(found)
        for name, oid in found.items():
            if oid is None:
                refs.delete_ref(self.git_dir, name)
            elif refs.read_ref(self.git_dir, name) != oid:
                refs.write_ref(self.git_dir, name, oid)

    def new_intent(self, kind: str, payload: Detail) -> Intent:
        pid = os.getpid()
        return Intent(
            ids.new_id("c"), kind, payload, pid, platform.process_start_token(pid),
            platform.boot_id(), clock.now_ns(),
        )  # fmt: skip

    def close(self, *, entirely: bool = False) -> None:
        """`entirely`: nothing of it stays open in this process, not even to save time."""
        self.ledger.close(entirely=entirely)


def is_alive(intent: Intent) -> bool:
    """Whether the process that began this is still the one running under that pid."""
    return (
        intent.boot_id == platform.boot_id()
        and platform.pid_alive(intent.pid)
        and platform.process_start_token(intent.pid) == intent.process_token
    )


def interrupted_repair(workspace: Workspace) -> Path | None:
    """Where a repair that never ended has put the damaged store, if there was one."""
    name = files.read_bytes_or_none(workspace.store / UNFINISHED)
    return None if name is None else workspace.store / "quarantine" / os.fsdecode(name)


def check_repaired(workspace: Workspace) -> None:
    """Refuse a history whose repair has not ended."""
    if (workspace.store / UNFINISHED).exists():
        raise DamagedStoreError(
            "a repair of the history was interrupted",
            hint="`substrate fsck --repair` finishes it; nothing of it is lost",
        )


def still_good(store: HistoryStore) -> bool:
    """Whether an open store is what opening it now would give; what forbids that is raised."""
    check_trusted(store.workspace)
    check_repaired(store.workspace)
    return store.ledger.is_current and os.path.exists(store.git_dir / "HEAD")


def open_store(workspace: Workspace, home_config: Path) -> HistoryStore:
    """Open a workspace's history, making an empty one on first use."""
    if workspace.history_refused:
        raise _refused(workspace)
    check_trusted(workspace)  # again: a command may have run since the workspace was looked at
    check_repaired(workspace)
    is_new = not (workspace.store / ".git" / "HEAD").exists()
    if is_new:
        lock = FileLock(_protected(workspace) / "lock")
        lock.acquire(timeout_s=LOCK_TIMEOUT_S, purpose="first use")
        try:
            make_store(workspace)
        finally:
            lock.release()
    return HistoryStore(workspace, load_config(home_config, workspace.store / "config.toml"))


def existing_store(workspace: Workspace, home_config: Path) -> HistoryStore:
    """Open a history that is there already; asking a question never makes one."""
    check_trusted(workspace)
    check_repaired(workspace)
    if not (workspace.store / "index" / "history.db").exists():
        # Without a commit nothing is lost: somebody is making it, or was killed while at it.
        if (workspace.store / ".git" / BRANCH).exists():
            raise _index_lost()
        if workspace.history_refused:
            raise _refused(workspace)
        raise NotFoundError(
            f"no history in {workspace.root}",
            hint="run something first: substrate -c 'your command'",
        )
    if not (workspace.store / ".git").is_dir():
        raise DamagedStoreError(
            "the history's repository is gone",
            hint="`substrate fsck --repair` begins a new one; the workspace stays as it is",
        )
    config = load_config(home_config, workspace.store / "config.toml")
    # Who removes the project may have come this far.
    store = HistoryStore(workspace, config, only_there=True)
    if is_index_lost(store):
        store.close()
        raise _index_lost()
    _look_after_boot(store)
    return store


def check_trusted(workspace: Workspace) -> None:
    """Refuse somebody else's history, or one with links in it, before anything is opened."""
    reason = why_not_opened(workspace.store)
    if reason:
        raise HistoryRefusedError(
            f"{workspace.store} is not opened: {reason}",
            hint="run substrate as that user, or move that directory (or link) away",
        )


def _look_after_boot(store: HistoryStore) -> None:
    """A question right after a power cut must not take what was not synced for damage."""
    if store.ledger.meta("boot_id") == platform.boot_id():
        return
    try:
        with store.writing("look after a restart"):
            pass
    except (SubstrateError, OSError):
        pass  # read-only, or held by another: the question is answered as well as it can be


def _index_lost() -> DamagedStoreError:
    return DamagedStoreError(
        "the history is there, but its index is gone",
        hint="`substrate fsck --repair` rebuilds it from the recorded commits",
    )


def _refused(workspace: Workspace) -> HistoryRefusedError:
    return HistoryRefusedError(
        workspace.refusal,
        hint=workspace.refusal_hint,
    )


def is_index_lost(store: HistoryStore) -> bool:
    """Whether there are commits of which the ledger knows nothing."""
    # In this order: somebody may be making the first one, which the ledger knows before git does.
    return (store.git_dir / BRANCH).exists() and store.tip_commit is None


def _protected(workspace: Workspace) -> Path:
    protect_store(workspace)
    return workspace.store


def make_store(workspace: Workspace) -> None:
    """An empty store, inside the lock."""
    for name in ("index", "journal", "trash", "worlds"):
        (workspace.store / name).mkdir(mode=0o700, exist_ok=True)
    ObjectStore(workspace.store / ".git").init()
