"""Repairing a store without throwing away anything readable.

The workspace changes only if an operation is finished that an older version could not finish.

refs or HEAD wrong         written again from the ledger
what was set aside         moved to a file in the quarantine; see `set_aside`
objects or ledger damaged  the whole store goes into quarantine; a new one is created from the
                           workspace, every entry that can still be read is carried over, and
                           the others are marked as lost
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import NamedTuple

from substrate.errors import DamagedStoreError, SubstrateError
from substrate.history.maintenance import fsck, lost_disk, set_aside_intent
from substrate.history.maintenance.crash_recovery import after_boot, settle
from substrate.history.maintenance.salvage_store import CarriedOver, carry_over
from substrate.history.record import excluded_paths, record_entry
from substrate.history.store import (
    BRANCH,
    UNFINISHED,
    HistoryStore,
    interrupted_repair,
    load_config,
    make_store,
)
from substrate.model import RelPath
from substrate.objects.store import refs
from substrate.system import clock
from substrate.system.files import files
from substrate.workspace import Workspace, leave_mark
from substrate.workspace.apply import Trash

#: What a damaged store raises; a part that is missing or of the wrong kind is damage too.
_DAMAGE = (
    DamagedStoreError,
    sqlite3.DatabaseError,
    FileNotFoundError,
    NotADirectoryError,
    IsADirectoryError,
)


class Repaired(NamedTuple):
    #: "nothing", "objects" (the check has written them again), "refs" or "rebuilt"
    extent: str
    problems: list[fsck.Problem]
    quarantine: Path | None = None
    carried: CarriedOver | None = None


def check_or_explain(workspace: Workspace, home_config: Path) -> list[fsck.Problem]:
    """Like `fsck.check`, also when the store is too damaged to be opened.

    Any other obstacle (no git, a full disk, a typing error in the settings) is raised: a repair
    for such a reason would put a sound history aside.
    """
    if interrupted_repair(workspace) is not None:
        return [fsck.Problem("a repair was interrupted; `--repair` finishes it")]
    try:
        store = _open(workspace, home_config)
    except _DAMAGE as error:
        return [fsck.Problem(f"the store cannot be opened: {error}")]
    try:
        after_boot(store)  # what a power cut lost is in the ledger: not damage
        return fsck.check(store)
    except _DAMAGE as error:
        return [fsck.Problem(f"the store cannot be read: {error}")]
    finally:
        store.close()


def repair(workspace: Workspace, home_config: Path) -> Repaired:
    """Repair the store: rewrite refs if that is enough, otherwise rebuild. Inside the lock."""
    quarantine = interrupted_repair(workspace)
    if quarantine is not None:
        problems = [fsck.Problem("an earlier repair was interrupted")]
    else:
        problems = check_or_explain(workspace, home_config)
        if not problems:
            return Repaired("objects" if _is_mended(workspace, home_config) else "nothing", [])
        if _rewrite_refs(workspace, home_config) and not check_or_explain(workspace, home_config):
            return Repaired("refs", problems)
        quarantine = _begin_quarantine(workspace)
    _move_into(quarantine, workspace)
    make_store(workspace)
    store = _open(workspace, home_config)
    try:
        carried = carry_over(store, quarantine)
        record_entry.record_outside(store)
    finally:
        store.close()
    (workspace.store / UNFINISHED).unlink()
    return Repaired("rebuilt", problems, quarantine, carried)


def _is_mended(workspace: Workspace, home_config: Path) -> bool:
    store = _open(workspace, home_config)
    try:
        return lost_disk.is_mended(store)
    finally:
        store.close()


def _open(workspace: Workspace, home_config: Path) -> HistoryStore:
    config = load_config(home_config, workspace.store / "config.toml")
    return HistoryStore(workspace, config)


def _rewrite_refs(workspace: Workspace, home_config: Path) -> bool:
    """Repair HEAD, refs, permissions and leftovers from the ledger. Returns whether it worked."""
    try:
        store = _open(workspace, home_config)
    except (SubstrateError, sqlite3.Error, OSError):
        return False
    try:
        if store.tip_commit is None:
            return False
        os.chmod(store.dir, 0o700)
        store.objects.init()
        files.write_atomic(store.git_dir / "HEAD", f"ref: {BRANCH}\n".encode())
        for oid, kind, data in store.ledger.pending_objects():
            store.objects.write_loose(oid, kind, data)
        for name, wanted in store.ledger.refs().items():
            if wanted is None:
                refs.delete_ref(store.git_dir, name)
            else:
                refs.write_ref(store.git_dir, name, wanted, durable=True)
        _remove_leftovers(store)
        _mend_trash(store)
        if fsck.check_intents(store):
            store.tip()  # if the tip is damaged, intents may have been set aside because of that
            settle(store)
            set_aside_intent.move_to_quarantine(store)
    except (SubstrateError, sqlite3.Error, OSError):
        return False
    finally:
        store.close()
    return True


def _remove_leftovers(store: HistoryStore) -> None:
    open_intents = {intent.intent_id for intent in store.ledger.intents()}
    for name in os.listdir(store.dir / "journal"):
        if name not in open_intents:
            files.remove_tree(store.dir / "journal" / name)
    for name in os.listdir(store.git_dir / "objects" / "pack"):
        if name.startswith(("tmp", ".tmp")):
            os.unlink(store.git_dir / "objects" / "pack" / name)


def _mend_trash(store: HistoryStore) -> None:
    """Give items with a damaged record a readable one: `recover` lists and restores them again."""
    trash = Trash(store.trash_dir)
    damaged = trash.damaged()
    for one in damaged:
        under = one.entry_id.partition("/")[0]
        alone = sum(other.entry_id.startswith(f"{under}/") for other in damaged) == 1
        path = _only_path_left(store, trash, under) if alone else None
        trash.mend(one, path or RelPath(b"from-trash-" + one.entry_id.replace("/", "-").encode()))


def _only_path_left(store: HistoryStore, trash: Trash, under: str) -> RelPath | None:
    """The path that the entry names and that no readable record of the trash has."""
    entry = store.ledger.by_command_id(under)
    did = excluded_paths.of_detail(entry.detail) if entry else excluded_paths.Excluded()
    left = {*did.changed, *did.removed} - {item.path for item in trash.under(under)}
    if len(left) > 1:  # an undo may have brought some of them back
        left = {path for path in left if not os.path.lexists(store.root / os.fsdecode(path))}
    return left.pop() if len(left) == 1 else None


def _begin_quarantine(workspace: Workspace) -> Path:
    """Mark the store as unfinished: no process opens it until the new one is complete.

    See `interrupted_repair`.
    """
    name = clock.iso(clock.now_ns()).replace(":", "")
    leave_mark(workspace.store)  # while parts of it are moved, nothing else shows whose it is
    place = workspace.store / "quarantine" / name
    place.mkdir(parents=True, mode=0o700)
    files.write_atomic(workspace.store / UNFINISHED, name.encode())
    return place


def _move_into(place: Path, workspace: Workspace) -> None:
    """Move the damaged parts aside, by rename: nothing is copied, nothing is deleted.

    What an interrupted repair began to build has no content of its own: it is removed.
    """
    for name in (".git", "index", "journal"):
        source = workspace.store / name
        if (place / name).exists():
            files.remove_tree(source)
        elif source.exists():
            source.rename(place / name)
