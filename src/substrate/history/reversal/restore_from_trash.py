"""Restoring what an operation put into the trash: the other half of `recover restore`.

The recovery commit has what history recorded. The rest (excluded files, bytes written at the very
moment of the change) is in the trash under the operation's id.
"""

from __future__ import annotations

from collections.abc import Sequence

from substrate.errors import NotFoundError, RefusedError
from substrate.history.reversal import recovery_refs
from substrate.history.reversal.restore import Outcome
from substrate.history.store import HistoryStore, NewEntry
from substrate.model import RelPath, display, is_within
from substrate.workspace.apply import Kept, Trash, TrashEntry, TrashReason

_GAVE_WAY = Kept(TrashReason.REPLACED_BY_RECOVER)


def bring_back(
    store: HistoryStore, command_id: str, scope: Sequence[RelPath], new: NewEntry, outcome: Outcome
) -> Outcome:
    """Put an operation's trash back in its places, after `outcome`, which restored the rest.

    The present content goes to the trash under the id of `new`, so that restoring `new` takes this
    back. Inside the lock; a second run continues where a crash ended the first.
    """
    items = _items(Trash(store.trash_dir), command_id, scope)
    if not items:
        return outcome
    ref = outcome.recovery_ref or recovery_refs.pin_paths(store, new, tuple(items))
    restored, notes = [*outcome.restored], [*outcome.notes]
    for path, item in items.items():
        try:
            _exchange(store, item, path, new.command_id)
        except RefusedError as error:
            notes.append(f"stays in the trash ({item.location}): {error.message}")
            continue
        restored.append(path)
        notes.append(f"brought back from the trash: {display(path)}")
    deleted = [path for path in outcome.deleted if path not in restored]
    unique = sorted(set(restored))
    return outcome._replace(restored=unique, deleted=deleted, notes=notes, recovery_ref=ref)


def describe(store: HistoryStore, command_id: str, scope: Sequence[RelPath]) -> tuple[str, ...]:
    """For a dry run of `bring_back`."""
    items = _items(Trash(store.trash_dir), command_id, scope)
    return tuple(f"bring back {display(path)} from the trash" for path in items)


def _items(trash: Trash, command_id: str, scope: Sequence[RelPath]) -> dict[RelPath, TrashEntry]:
    """Path → the newest item that the operation put away; older ones stay in the trash.

    If a path of the scope is inside an item, only that path is taken out of it.

    Parts of a repository are restored only if they are named: an old directory of objects in place
    of the present one would lose what was committed since.
    """
    out = {}
    for item in trash.under(command_id):
        if any(is_within(item.path, one) for one in scope) if scope else _is_free(item.path):
            out[item.path] = item
        out.update({one: item for one in scope if is_within(one, item.path)})
    return out


def _is_free(path: RelPath) -> bool:
    return b".git" not in path.split(b"/")[:-1]


def _exchange(store: HistoryStore, item: TrashEntry, path: RelPath, under: str) -> None:
    trash = Trash(store.trash_dir)
    try:
        trash.keep(store.anchor.top, path, under, _GAVE_WAY)
    except (NotFoundError, OSError):
        pass  # the place is free, or cannot be reached, which the next line reports
    trash.restore(item, store.anchor.top, path)
