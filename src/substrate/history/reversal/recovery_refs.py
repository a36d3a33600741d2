"""Recovery refs: the state of the workspace right before Substrate changed it."""

from __future__ import annotations

import json
from typing import NamedTuple

from substrate.errors import NotFoundError
from substrate.history.store import (
    RECOVERY_PREFIX,
    HistoryStore,
    Ledger,
    NewEntry,
    write_attrs_commit,
    write_commit,
)
from substrate.model import ABSENT, Change, RelPath
from substrate.objects.snapshots import Snapshot
from substrate.objects.store import Batch


class Recovery(NamedTuple):
    ref: str
    commit: bytes
    ts_ns: int
    operation: str
    command_id: str
    #: The paths that the operation was about to change; `recover restore` restores them.
    paths: tuple[RelPath, ...]

    @property
    def name(self) -> str:
        return self.ref.removeprefix(RECOVERY_PREFIX)

    def take_up(self, ledger: Ledger) -> None:
        """Inside the transaction that announces the operation."""
        paths = json.dumps([path.hex() for path in self.paths])
        ledger.db.execute(
            "INSERT INTO recoveries VALUES (?, ?, ?, ?, ?, ?)",
            (self.ref, self.commit, self.ts_ns, self.operation, self.command_id, paths),
        )
        ledger.set_ref(self.ref, self.commit)


def prepare(store: HistoryStore, batch: Batch, new: NewEntry, changes: list[Change]) -> Recovery:
    """Pin the present tip under a ref of its own.

    The commit has no parent on the line, so that it does not keep all of history reachable. Its
    parent is a commit of its attrs, so that they stay reachable as long as it does.
    """
    paths = tuple(change.path for change in changes)
    subject = f"recovery: before {new.kind} {new.command_id}"
    return _pin(batch, store.tip(), new, (new.kind, subject), paths)


def pin_paths(store: HistoryStore, new: NewEntry, paths: tuple[RelPath, ...]) -> str:
    """A ref for an operation that changes only paths outside history: the trash has them."""
    with store.new_batch() as batch:
        kept = prepare(store, batch, new, [Change(path, ABSENT, ABSENT) for path in paths])
        with store.commit_point(batch) as ledger:
            kept.take_up(ledger)
    return kept.ref


def pin(
    batch: Batch, state: Snapshot, new: NewEntry, operation: str, paths: tuple[RelPath, ...]
) -> Recovery:
    """Keep a state under a ref of its own, such as one that a command could not bring in."""
    return _pin(batch, state, new, (operation, f"recovery: {operation} of {new.command_id}"), paths)


def _pin(
    batch: Batch,
    state: Snapshot,
    new: NewEntry,
    named: tuple[str, str],
    paths: tuple[RelPath, ...],
) -> Recovery:
    operation, subject = named
    attrs_commit = None
    if state.attrs:
        attrs_commit = write_attrs_commit(batch, state.attrs, None, new.ts_ns)
    commit = write_commit(batch, state, attrs_commit, new, subject)
    ref = RECOVERY_PREFIX + new.command_id
    return Recovery(ref, commit, new.ts_ns, operation, new.command_id, paths)


def all_recoveries(ledger: Ledger) -> list[Recovery]:
    """Newest first."""
    rows = ledger.db.execute("SELECT * FROM recoveries ORDER BY ts_ns DESC, ref DESC")
    return [
        Recovery(r["ref"], r["commit_oid"], r["ts_ns"], r["operation"], r["command_id"],
                 tuple(RelPath(bytes.fromhex(p)) for p in json.loads(r["paths"])))
        for r in rows
    ]  # fmt: skip


def find(ledger: Ledger, ref: str) -> Recovery:
    for one in all_recoveries(ledger):
        if one.ref == ref:
            return one
    raise NotFoundError(f"no recovery ref {ref}", hint="see `substrate recover list`")


def forget(ledger: Ledger, command_id: str) -> None:
    """Drop the ref of an operation that did not happen. Inside a transaction."""
    ref = RECOVERY_PREFIX + command_id
    ledger.db.execute("DELETE FROM recoveries WHERE ref = ?", (ref,))
    ledger.set_ref(ref, None)


def resolve(store: HistoryStore, text: str) -> Recovery:
    """A recovery by its ref, its short name or a unique prefix of either."""
    from substrate.history.query import one_of

    known = {one.ref: one for one in all_recoveries(store.ledger)}
    for candidate in (text, RECOVERY_PREFIX + text):
        if candidate in known:
            return known[candidate]
    matching = [r for r in known if r.startswith((text, RECOVERY_PREFIX + text))]
    return known[one_of("recovery ref", text, matching)]
