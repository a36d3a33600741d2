"""Directories and files as they were after any entry."""

from __future__ import annotations

from substrate.errors import NotFoundError
from substrate.model import ROOT, Kind, RelPath, display, name_fields
from substrate.recorder import HistoryStore, Place, resolve
from substrate.recorder import snapshot as snapshots
from substrate.review.change_documents import content_of, is_binary, line_text

Document = dict[str, object]
#: `entry_id` for the newest state.
NOW = "now"
_MOST_NAMES = 10_000
_MOST_SHOWN_LINES = 20_000


def tree_document(place: Place, entry_id: str, under: RelPath = ROOT) -> Document:
    """One directory, not what is below it."""
    with place.existing_history() as store:
        state = store.snapshot_of(_commit(store, place, entry_id))
        found = snapshots.listing(store.objects, state, under)
        if under and not found and _kind(store, state, under) is not Kind.DIRECTORY:
            raise NotFoundError(
                f"{display(under)} was no directory then", hint="name a directory, or leave it out"
            )
        listed = sorted(found.items(), key=lambda one: (one[1].kind is not Kind.DIRECTORY, one[0]))
        return {
            "id": entry_id,
            "under": display(under),
            "entries": [
                {**name_fields(name, "name"), "kind": node.kind.value,
                 "oid": node.oid.hex() or None}
                for name, node in listed[:_MOST_NAMES]
            ],
            "more": max(len(listed) - _MOST_NAMES, 0),
        }  # fmt: skip


def file_document(place: Place, entry_id: str, path: RelPath) -> Document:
    with place.existing_history() as store:
        state = store.snapshot_of(_commit(store, place, entry_id))
        node = snapshots.lookup(store.objects, state, path)
        if not node.has_content:
            raise NotFoundError(
                f"there was no file {display(path)} then",
                hint=f"`substrate log --path {display(path)}` lists what changed it",
            )
        data = content_of(store, node)
        lines = [] if is_binary(data) else data.split(b"\n")
        if lines and not lines[-1]:
            lines.pop()
        return {
            **name_fields(path),
            "id": entry_id,
            "kind": node.kind.value,
            "mode": f"{node.mode:04o}",
            "bytes": len(data),
            "binary": is_binary(data),
            "lines": [line_text(line) for line in lines[:_MOST_SHOWN_LINES]],
            "more_lines": max(len(lines) - _MOST_SHOWN_LINES, 0),
        }


def _kind(store: HistoryStore, state: snapshots.Snapshot, path: RelPath) -> Kind:
    return snapshots.lookup(store.objects, state, path).kind


def _commit(store: HistoryStore, place: Place, entry_id: str) -> bytes:
    """The state after an entry; one that changed nothing has the state of the entry before it."""
    found = store.tip_commit
    if entry_id != NOW:
        target = resolve(store, entry_id, place.session)
        if target.entry is None and target.commit is not None:
            return target.commit
        entry = target.present
        earlier = entry if entry.commit else store.ledger.previous_commit(entry.pos)
        found = earlier.commit if earlier else None
    if found is None:
        raise NotFoundError("nothing was recorded at that time", hint="`substrate log` lists all")
    return found
