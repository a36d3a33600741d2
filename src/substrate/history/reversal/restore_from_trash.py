"""Bringing back what an operation put into the trash: the other half of `recover restore`.

The recovery commit holds what history knew. What it did not know (excluded files, bytes saved in
the very moment of the change) lies in the trash under the operation's id.
"""

from __future__ import annotations

from collections.abc import Sequence

from substrate.errors import NotFoundError, RefusedError
from substrate.history import recovery
from substrate.history.ledger import NewEntry
from substrate.history.restore import Outcome
from substrate.history.store import HistoryStore
from substrate.model.nodes import ABSENT, Change
from substrate.model.paths import RelPath, display, is_within
from substrate.workspace.trash import Trash, TrashEntry

_GAVE_WAY = "gave way to what `recover restore` brought back"


def bring_back(
    store: HistoryStore, command_id: str, scope: Sequence[RelPath], new: NewEntry, outcome: Outcome
) -> Outcome:
    """Put an operation's trash back in its places, after `outcome`, which restored the rest.

    What stands there gives way into the trash, under the id of `new`, so that restoring that one
    takes this back. Inside the lock; a second run goes on where a crash ended the first.
    """
    items = _items(Trash(store.trash_dir), command_id, scope)
    if not items:
        return outcome
    ref = outcome.recovery_ref or way_back(store, new, list(items))
    restored, notes = [*outcome.restored], [*outcome.notes]
    for path, item in items.items():
        try:
            _exchange(store, item, new.command_id)
        except RefusedError as error:
            notes.append(f"stays in the trash ({item.location}): {error.message}")
            continue
        restored.append(path)
        notes.append(f"brought back from the trash: {display(path)}")
    deleted = [path for path in outcome.deleted if path not in restored]
    unique = sorted(set(restored))
    return outcome._replace(restored=unique, deleted=deleted, notes=notes, recovery_ref=ref)


def _items(trash: Trash, command_id: str, scope: Sequence[RelPath]) -> dict[RelPath, TrashEntry]:
    """By path, the newest thing the operation put away; older ones stay where they are.

    Parts of a repository come only if they are named: an old directory of objects in the place of
    the present one would take away what was committed since.
    """
    return {
        item.path: item
        for item in trash.list()
        if item.entry_id.partition("/")[0] == command_id
        and (any(is_within(item.path, one) for one in scope) if scope else _is_free(item.path))
    }


def _is_free(path: RelPath) -> bool:
    return b".git" not in path.split(b"/")[:-1]


def way_back(store: HistoryStore, new: NewEntry, paths: list[RelPath]) -> str:
    """Nothing that history knows changes, so that nobody has made a recovery ref yet."""
    with store.new_batch() as batch:
        kept = recovery.prepare(store, batch, new, [Change(path, ABSENT, ABSENT) for path in paths])
        with store.commit_point(batch) as ledger:
            kept.take_up(ledger)
    return kept.ref


def _exchange(store: HistoryStore, item: TrashEntry, under: str) -> None:
    trash = Trash(store.trash_dir)
    try:
        trash.keep(store.root, item.path, under, _GAVE_WAY)
    except (NotFoundError, OSError):
        pass  # the place is free, or cannot be reached, which the next line says
    trash.restore(item, store.root)
