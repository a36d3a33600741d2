"""Mending a store. The workspace is never touched, and nothing readable is thrown away.

refs or HEAD wrong         written again from the ledger
objects or ledger damaged  the whole store goes into quarantine; a new one is begun from the
                           workspace, every entry that can still be read is carried over, and
                           the others are marked as lost
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import NamedTuple

from substrate.errors import DamagedStoreError, SubstrateError
from substrate.history import fsck, record
from substrate.history.carry_over import CarriedOver, carry_over
from substrate.history.config import load_config
from substrate.history.messages import BRANCH
from substrate.history.settle import after_boot
from substrate.history.store import UNFINISHED, HistoryStore, interrupted_repair, make_store
from substrate.objects import refs
from substrate.system import clock, files
from substrate.workspace.locate import Workspace

#: What a damaged store raises; a part that is missing or of the wrong kind is damage too.
_DAMAGE = (
    DamagedStoreError,
    sqlite3.DatabaseError,
    FileNotFoundError,
    NotADirectoryError,
    IsADirectoryError,
)


class Repaired(NamedTuple):
    #: "nothing", "refs" or "rebuilt"
    extent: str
    problems: list[fsck.Problem]
    quarantine: Path | None = None
    carried: CarriedOver | None = None


def check_or_explain(workspace: Workspace, home_config: Path) -> list[fsck.Problem]:
    """Like `fsck.check`, also when the store is too damaged to be opened.

    Whatever else keeps us from looking (no git, a full disk, a typing error in the settings) is
    raised: a repair for such a reason would put a sound history aside.
    """
    if interrupted_repair(workspace) is not None:
        return [fsck.Problem("a repair was interrupted; `--repair` finishes it")]
    try:
        store = _open(workspace, home_config)
    except _DAMAGE as error:
        return [fsck.Problem(f"the store cannot be opened: {error}")]
    try:
        after_boot(store)  # what a power cut took is in the ledger: not damage
        return fsck.check(store)
    except _DAMAGE as error:
        return [fsck.Problem(f"the store cannot be read: {error}")]
    finally:
        store.close()


def repair(workspace: Workspace, home_config: Path) -> Repaired:
    """Inside the lock. Tries the mild way first."""
    quarantine = interrupted_repair(workspace)
    if quarantine is not None:
        problems = [fsck.Problem("an earlier repair was interrupted")]
    else:
        problems = check_or_explain(workspace, home_config)
        if not problems:
            return Repaired("nothing", [])
        if _rewrite_refs(workspace, home_config) and not check_or_explain(workspace, home_config):
            return Repaired("refs", problems)
        quarantine = _begin_quarantine(workspace)
    _move_into(quarantine, workspace)
    make_store(workspace)
    store = _open(workspace, home_config)
    try:
        carried = carry_over(store, quarantine)
        record.record_outside(store)
    finally:
        store.close()
    (workspace.store / UNFINISHED).unlink()
    return Repaired("rebuilt", problems, quarantine, carried)


def _open(workspace: Workspace, home_config: Path) -> HistoryStore:
    config = load_config(home_config, workspace.store / "config.toml")
    return HistoryStore(workspace, config)


def _rewrite_refs(workspace: Workspace, home_config: Path) -> bool:
    """HEAD, refs, permissions and leftovers can all be made good from the ledger."""
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


def _begin_quarantine(workspace: Workspace) -> Path:
    """From here until the new store is whole, nobody opens it: see `interrupted_repair`."""
    name = clock.iso(clock.now_ns()).replace(":", "")
    place = workspace.store / "quarantine" / name
    place.mkdir(parents=True, mode=0o700)
    files.write_atomic(workspace.store / UNFINISHED, name.encode())
    return place


def _move_into(place: Path, workspace: Workspace) -> None:
    """Move the damaged parts aside, by rename: nothing is copied, nothing is deleted.

    What an interrupted repair began to build holds nothing of its own, and goes.
    """
    for name in (".git", "index", "journal"):
        source = workspace.store / name
        if (place / name).exists():
            files.remove_tree(source)
        elif source.exists():
            source.rename(place / name)
