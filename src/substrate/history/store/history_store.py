"""A workspace's open history: its lock, its commit point, and how it is published to git.

This order makes every change all-or-nothing across a kill or a power cut:

    1. objects are written: small ones loose and unsynced, large ones and packs synced
    2. ONE ledger transaction: the entry, the refs, and the small objects' bytes    <- commit point
    3. the ref files are written, unsynced

A crash before 2 leaves unreferenced objects. A crash after 2 leaves refs (and, after a power cut,
loose objects) to be written again from the ledger, which `settle` does before anything else.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from substrate.errors import (
    DamagedStoreError,
    HistoryRefusedError,
    LockedError,
    NotFoundError,
    SubstrateError,
    WorkspaceMovedError,
)
from substrate.history.store.config import Config, load_config
from substrate.history.store.intents import Intent
from substrate.history.store.ledger import TO_TELL, Detail, Ledger
from substrate.history.store.messages import BRANCH, parse_trailers
from substrate.objects.git import Git
from substrate.objects.snapshots import Snapshot
from substrate.objects.store import Batch, ObjectStore, objects_aside, refs
from substrate.system import clock, ids, user_notes
from substrate.system.files import files, name_folding
from substrate.system.process import deferred_work, process_identity
from substrate.system.sync import FileLock, OwnDays, liveness_locks, seen_now
from substrate.workspace import (
    STORE_NAME,
    Anchor,
    Exclusions,
    Workspace,
    is_foreign,
    is_marked,
    leave_mark,
    protect_store,
    why_not_opened,
)

#: In the ledger: the time that has passed, as this store saw it.
_OWN_DAYS = "own_days"
LOCK_TIMEOUT_S = 60.0
_PATIENCE_MS = 60_000
_KNOWN_SNAPSHOTS = 64
#: Names the quarantine of an unfinished repair; until it is finished, the store is not opened.
UNFINISHED = Path("quarantine", "unfinished")


class HistoryStore:
    """Open with `open_store`; changes happen inside ``with store.writing("undo"):``."""

    def __init__(self, workspace: Workspace, config: Config, *, only_there: bool = False) -> None:
        """`only_there`: the index must exist, and is not created."""
        self.workspace = workspace
        self.config = config
        self.root = workspace.root
        self.dir = workspace.store
        self.git_dir = self.dir / ".git"
        self.anchor = Anchor(workspace)
        self.objects = ObjectStore(self.git_dir)
        try:
            self.ledger = Ledger(self.dir / "index" / "history.db", only_there=only_there)
        except Exception as error:
            if self.anchor.is_there:
                raise
            raise self.anchor.moved("open the history") from error
        self.lock = FileLock(self.dir / "lock")
        self._exclusions: Exclusions | None = None
        self._snapshots: dict[bytes, Snapshot] = {}
        #: The ledger's version when everything was settled; None after a failed operation.
        self._settled: int | None = None
        #: Whether this process recorded something: then the index of touched paths may be due.
        self._has_written = False
        #: Small objects were added to the ledger since `_pack_if_due`.
        self._has_kept = False
        #: Messages on intents that were set aside because they could not be settled; see
        #: `set_aside` and `take_said`. Shown to the user when the store is closed at the latest.
        self.said: list[str] = []
        #: Saves the stat cache of the baseline, so that the next scan need not read every file.
        self._unsaved: Callable[[], None] | None = None

    # -- places -------------------------------------------------------------------------------

    @property
    def stat_cache_file(self) -> Path:
        return self.dir / "index" / "stat-cache"

    @property
    def trash_dir(self) -> Path:
        return self.dir / "trash"

    def scratch(self, intent_id: str) -> Path:
        """Where an operation stages files: private, on the workspace's file system.

        A dry run stages nothing but needs a directory: for a read-only copy it is elsewhere.
        """
        above = self.dir / "journal"
        if self.ledger.is_rehearsing and not os.access(above, os.W_OK):
            above = Path(self.objects.objects_dir)
        return above / intent_id

    def world_place(self, place: Path) -> Path:
        """The present path of a world recorded as `place`: it moves with the project."""
        for above in place.parents:
            if above.name == "worlds" and above.parent.name == STORE_NAME:
                return self.dir / place.relative_to(above.parent)
        return place

    @property
    def git(self) -> Git:
        aside = self.objects.objects_dir if self.ledger.is_rehearsing else None
        return Git(self.git_dir, self.root, aside)

    @property
    def exclusions(self) -> Exclusions:
        if self._exclusions is None:
            self._exclusions = Exclusions.load(self.root, size_cap_bytes=self.config.max_file_bytes)
        return self._exclusions

    def forget_exclusions(self) -> None:
        """Read the rules again next time: a command may have edited ``.substrateignore``."""
        self._exclusions = None

    # -- the line -----------------------------------------------------------------------------

    @property
    def tip_commit(self) -> bytes | None:
        return self.ledger.ref(BRANCH)

    def tip(self) -> Snapshot:
        """The newest recorded state of the workspace."""
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
        self,
        purpose: str,
        timeout_s: float = LOCK_TIMEOUT_S,
        *,
        only_this: bool = False,
        settles: bool = True,
        is_idle: bool = False,
    ) -> Iterator[None]:
        """Hold the workspace's lock, and first settle what a crash left behind.

        `only_this`: only the history that was opened. If it is gone, or objects of it are missing,
        raise `NotFoundError` or `WorkspaceError`, and create nothing in its place: the user may be
        removing it. Without `settles`, raise `LockedError` if another process has written since
        this one settled. `is_idle`: see `FileLock.acquire`. If the workspace is moved while the
        lock is held, every failure is a `WorkspaceMovedError`.
        """
        self.refuse_if_moved(purpose)
        self.lock.acquire(
            timeout_s=timeout_s, purpose=purpose, makes_file=not only_this, is_idle=is_idle
        )
        try:
            if not self.ledger.is_current:
                if only_this:
                    raise NotFoundError("the history was removed, or put aside")
                self._open_again()
            self.objects.reload()
            if not settles and not self._is_settled:
                raise LockedError("another process has written", hint="the next command settles it")
            self._settle(mends=not only_this)
            self._note_the_day()
            self._has_written = True
            yield
            self._pack_if_due()
            self._settled = self.ledger.version()
        except Exception as error:
            if self.anchor.is_there or (isinstance(error, WorkspaceMovedError) and error.now_at):
                raise
            raise self.anchor.moved(purpose) from error
        finally:
            # If the workspace moved, temporary files are left: the release is not clean.
            self.lock.release(is_clean=self.anchor.is_there)

    def refuse_if_moved(self, purpose: str) -> None:
        """Raise `WorkspaceMovedError` if the workspace was moved since this was opened."""
        if not self.anchor.is_there:
            raise self.anchor.moved(purpose)

    def own_days(self) -> OwnDays:
        """For computing ages; see `OwnDays`."""
        return seen_now(self.ledger.meta(_OWN_DAYS))[0]

    def _note_the_day(self) -> None:
        """Save the passed time: once a day, after a boot, and when the clock jumped."""
        days, is_news = seen_now(self.ledger.meta(_OWN_DAYS))
        if is_news:
            with self.ledger.transaction(durable=False):
                self.ledger.set_meta(_OWN_DAYS, days.to_text())

    @contextmanager
    def rehearsing(self, purpose: str) -> Iterator[None]:
        """For queries and dry runs: like `writing`, but nothing is kept.

        What a crash left is not settled, entries and refs are rolled back at the end, and objects
        go to a temporary directory. The lock is shared, so that its file still names a holder
        that died.
        """
        self.lock.acquire(LOCK_TIMEOUT_S, purpose, shared=True)
        own = self.objects
        try:
            with objects_aside(self.git_dir) as aside, self.ledger.rehearsal(_PATIENCE_MS):
                self.objects = aside
                yield
        finally:
            self.objects = own
            self.lock.release()

    @property
    def _is_settled(self) -> bool:
        """Whether no other process has written, or was killed, since this one settled."""
        return not self.lock.predecessor_died and self._settled == self.ledger.version()

    def _settle(self, *, mends: bool) -> None:
        # settle imports the operations it finishes
        from substrate.history.maintenance import settle, sweep

        is_settled, self._settled = self._is_settled, None
        if is_settled:
            return
        if mends and not is_marked(self.dir):
            leave_mark(self.dir)  # an older version made this store
        done = settle(self, mends=mends)
        if self.lock.predecessor_died:
            sweep(self)
        new = [line for line in done if line not in self.said]  # the caller shows the others
        if new and not mends:
            self.tell_later(new)
            return
        for line in new:
            user_notes.tell(line)

    def _open_again(self) -> None:
        """Open again: another process put the history aside, and may have begun a new one."""
        check_repaired(self.workspace)
        self.ledger.close()
        self.ledger = Ledger(self.dir / "index" / "history.db")
        self.objects.close()
        self.objects = ObjectStore(self.git_dir)
        self._settled = None
        self._unsaved = None

    def save_later(self, save: Callable[[], None]) -> None:
        """Keep this for `save_seen`; without that call the next scan only takes longer."""
        self._unsaved = save

    def save_seen(self) -> None:
        """Save what the first use saw, if that was left for later and is not saved yet."""
        if self._unsaved is not None:
            with self.writing("save what was seen"):  # if it opens again, `_unsaved` is dropped
                self._save_unsaved()

    def _save_unsaved(self) -> None:
        save, self._unsaved = self._unsaved, None
        if save is not None and not self.stat_cache_file.exists():
            save()

    def _index_if_due(self) -> None:
        if self.ledger.waits_for_index():
            from substrate.history.query import touched_paths  # rare: once in many commands

            touched_paths.catch_up_some(self)

    def _pack_if_due(self) -> None:
        """Inside the lock, whatever the operation was: the ledger's copies are not for ever."""
        if not self._has_kept:
            return
        self._has_kept = False
        from substrate.history.store import pack_small_objects  # it imports this module

        with suppress(SubstrateError, OSError):  # the operation is complete: the next one tries
            pack_small_objects.flush_if_due(self)

    def new_batch(self) -> Batch:
        return Batch(self.objects)

    @contextmanager
    def commit_point(self, batch: Batch | None = None, *, durable: bool = True) -> Iterator[Ledger]:
        """Steps 1–3 above around one ledger transaction."""
        if self.ledger.is_rehearsing:
            if batch is not None:
                batch.publish()
            yield self.ledger
            return
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
                    self._has_kept = True
                yield ledger
        except BaseException:
            ledger.has_unpublished = True
            raise
        if ledger.has_unpublished:
            try:
                self.publish_refs()
            except OSError:
                # It is committed: the next call writes these files, wherever the project is now.
                if self.anchor.is_there:
                    raise

    def publish_refs(self) -> None:
        found = self.ledger.refs(unpublished_only=True)
        self.ledger.has_unpublished = bool(found)
        for name, oid in found.items():
            if oid is None:
                refs.delete_ref(self.git_dir, name)
            elif refs.read_ref(self.git_dir, name) != oid:
                refs.write_ref(self.git_dir, name, oid)

    def kept_detail(self, detail: Mapping[str, object], command: str) -> Detail:
        """The detail that an entry keeps: without the exact text if the settings say redacted."""
        out = dict(detail)
        if not self._keeps_exact and out.pop("exact", command) != command:
            out["text_redacted"] = True
        return out

    @property
    def _keeps_exact(self) -> bool:
        return self.config.history_command_text == "full"

    def new_intent(self, kind: str, payload: Detail) -> Intent:
        if not self._keeps_exact and "exact" in payload:
            payload = {**payload, "exact": payload["command"]}
        pid = os.getpid()
        return Intent(
            ids.new_id("c"), kind, payload, pid, process_identity.process_start_token(pid),
            process_identity.boot_id(), clock.now_ns(),
        )  # fmt: skip

    def is_alive(self, intent: Intent) -> bool:
        """Whether the process that announced this intent is still recording.

        The lock decides, not the pid: the process may run in another pid namespace. Only intents
        without a token (from older versions, or systems without such locks) are judged by the pid.
        """
        token = str(intent.payload.get("alive", ""))
        if token:
            return liveness_locks.is_held(self.dir, token)
        return (
            intent.boot_id == process_identity.boot_id()
            and process_identity.pid_alive(intent.pid)
            and process_identity.process_start_token(intent.pid) == intent.process_token
        )

    def close(self, *, entirely: bool = False) -> None:
        """`entirely`: close everything now, even if leaving it open would save time."""
        if self._has_written:
            deferred_work.do(self._index_if_due)
        if self._has_written and user_notes.to is not None and self.anchor.is_there:
            for line in self.take_said():
                user_notes.tell(line)
        self.ledger.close(entirely=entirely)
        self.anchor.close()

    def tell_later(self, lines: list[str]) -> None:
        """Keep messages for the next call that writes, inside the lock: the daemon has no user."""
        earlier = self.ledger.meta(TO_TELL)
        with self.ledger.transaction():
            self.ledger.set_meta(TO_TELL, "\n".join([*([str(earlier)] if earlier else []), *lines]))

    def take_said(self) -> list[str]:
        """Take the messages on earlier losses; the caller must show them. See `said`."""
        taken, self.said = self.said, []
        lost = self.ledger.take_meta(TO_TELL)
        return [*taken, *str(lost).split("\n")] if lost else taken


def interrupted_repair(workspace: Workspace) -> Path | None:
    """The quarantine of an unfinished repair, if there is one."""
    name = files.read_bytes_or_none(workspace.store / UNFINISHED)
    return None if name is None else workspace.store / "quarantine" / os.fsdecode(name)


def check_repaired(workspace: Workspace) -> None:
    """Refuse a history whose repair is not finished."""
    if (workspace.store / UNFINISHED).exists():
        raise DamagedStoreError(
            "a repair of the history was interrupted",
            hint="`substrate fsck --repair` finishes it; nothing of it is lost",
        )


def still_good(store: HistoryStore) -> bool:
    """Whether an open store is still the one at its path; raises if it must not be opened."""
    check_trusted(store.workspace, made_anywhere=True)  # that was checked when it was opened
    check_repaired(store.workspace)
    return store.ledger.is_current and os.path.exists(store.git_dir / "HEAD")


def open_store(workspace: Workspace, home_config: Path) -> HistoryStore:
    """Open a workspace's history, and create an empty one on first use."""
    if workspace.history_refused:
        raise _refused(workspace)
    check_trusted(workspace)  # again: a command may have run since the workspace was found
    check_repaired(workspace)
    is_new = not (workspace.store / ".git" / "HEAD").exists()
    if is_new:
        _refuse_another(workspace)
        lock = FileLock(_protected(workspace) / "lock")
        lock.acquire(timeout_s=LOCK_TIMEOUT_S, purpose="first use")
        try:
            make_store(workspace)
        finally:
            lock.release()
    return HistoryStore(workspace, load_config(home_config, workspace.store / "config.toml"))


def existing_store(workspace: Workspace, home_config: Path) -> HistoryStore:
    """Open an existing history; a query never creates one."""
    store = store_as_it_is(workspace, home_config)
    _look_after_boot(store)
    return store


def store_as_it_is(workspace: Workspace, home_config: Path) -> HistoryStore:
    """Open an existing history and create no file, not even one that a power cut took.

    For work in the background: the user may be removing the project.
    """
    check_trusted(workspace)
    check_repaired(workspace)
    if not (workspace.store / "index" / "history.db").exists():
        # Without a commit nothing is lost: another process is creating the history, or was killed
        # while it did.
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
    store = HistoryStore(workspace, config, only_there=True)
    if is_index_lost(store):
        store.close()
        raise _index_lost()
    return store


def check_trusted(workspace: Workspace, *, made_anywhere: bool = False) -> None:
    """Refuse another user's history, or one with links in it, before anything is opened.

    Unless `made_anywhere`, also refuse one that came with a clone, a copy or an archive.
    """
    reason = why_not_opened(workspace.store)
    if not reason:
        if not made_anywhere and is_foreign(workspace.store):
            raise HistoryRefusedError(
                f"{workspace.store} is not opened: its history was not made here by you; it came"
                " with a clone, a copy or an archive",
                hint="`substrate history reset --yes` puts it aside, and your own history begins;"
                " `substrate history adopt` uses it, if you trust it",
            )
        return
    hint = (
        "run substrate as that user, make it yours"
        f' (`sudo chown -R --no-dereference "$USER": {shlex.quote(str(workspace.store))}`),'
        " or move that directory (or link) away"
    )
    if hasattr(os, "geteuid") and os.geteuid() == 0:  # a store of root's would lock the owner out
        hint = f"{workspace.as_owner}; or move that directory (or link) away"
    raise HistoryRefusedError(f"{workspace.store} is not opened: {reason}", hint=hint)


def _look_after_boot(store: HistoryStore) -> None:
    """Write unsynced data again, so that a query after a power cut does not report damage."""
    from substrate.history.maintenance import is_torn  # it imports this module

    if store.ledger.meta("boot_id") == process_identity.boot_id() and not is_torn(store):
        return
    from substrate.history.maintenance import (  # settle imports the operations it finishes
        after_boot,
    )

    try:
        # A missing lock file means that the store is being removed: do not create it again.
        store.lock.acquire(LOCK_TIMEOUT_S, "look after a restart", shared=True, makes_file=False)
        try:
            after_boot(store)  # only that: a query finishes no interrupted work
        finally:
            store.lock.release()
    except (SubstrateError, OSError):
        pass  # read-only, or locked by another process: answer the query as well as possible


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
    """Whether git has commits but the ledger has none."""
    # In this order: another process may be writing the first commit, to the ledger before git.
    return (store.git_dir / BRANCH).exists() and store.tip_commit is None


def _refuse_another(workspace: Workspace) -> None:
    """Refuse to create a history if another directory has replaced the workspace at its path."""
    Anchor(workspace).close()


def _protected(workspace: Workspace) -> Path:
    protect_store(workspace)
    return workspace.store


def make_store(workspace: Workspace) -> None:
    """Create an empty store, inside the lock."""
    for name in ("index", "journal", "trash", "worlds"):
        (workspace.store / name).mkdir(mode=0o700, exist_ok=True)
    name_folding.leave_mark(workspace.store)
    leave_mark(workspace.store)
    ObjectStore(workspace.store / ".git").init()
