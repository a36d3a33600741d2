"""The line of history: one commit after another, each naming the attrs of its state."""

from __future__ import annotations

from substrate.history.store import messages
from substrate.history.store.history_store import HistoryStore
from substrate.history.store.ledger import Entry, Ledger, NewEntry
from substrate.history.store.messages import ATTRS_REF, BRANCH, Trailers
from substrate.objects.snapshots import Commit, Snapshot, signature
from substrate.objects.store import Batch

_NS = 1_000_000_000


def write_commit(
    batch: Batch,
    snapshot: Snapshot,
    parent: bytes | None,
    entry: Entry | NewEntry,
    subject: str | None = None,
) -> bytes:
    """Write a commit of `snapshot` with the message of `entry`; no ref points at it yet."""
    first = subject or subject_of(entry)
    message = messages.compose(first, trailers_of(entry, snapshot.attrs))
    return _write(batch, snapshot.tree, parent, message, entry.ts_ns)


def subject_of(entry: Entry | NewEntry) -> str:
    return messages.subject(entry.kind, entry.session_id, entry.command_id, entry.command)


def trailers_of(entry: Entry | NewEntry, attrs: bytes) -> Trailers:
    """What a commit's message says about its entry."""
    return Trailers(
        kind=entry.kind,
        command_id=entry.command_id,
        session_id=entry.session_id,
        span_id=entry.span_id,
        agent_id=entry.agent_id,
        exit=entry.exit,
        attrs=attrs.hex(),
    )


def write_attrs_commit(batch: Batch, attrs: bytes, parent: bytes | None, ts_ns: int) -> bytes:
    """Keep an attrs tree reachable: commits on the line only name theirs in a trailer."""
    return _write(batch, attrs, parent, b"attrs\n", ts_ns)


def _write(batch: Batch, tree: bytes, parent: bytes | None, message: bytes, ts_ns: int) -> bytes:
    who = signature("Substrate", "substrate@localhost", ts_ns // _NS)
    return batch.add_commit(Commit(tree, (parent,) if parent else (), who, who, message))


class Extension:
    """One more commit for the line, written into a batch; `take_up` moves the branch to it."""

    def __init__(
        self, store: HistoryStore, batch: Batch, snapshot: Snapshot, entry: NewEntry
    ) -> None:
        self.commit = write_commit(batch, snapshot, store.tip_commit, entry)
        self.attrs_commit: bytes | None = None
        parent = store.ledger.ref(ATTRS_REF)
        named = store.objects.read_commit(parent).tree if parent else b""
        if snapshot.attrs and snapshot.attrs != named:
            self.attrs_commit = write_attrs_commit(batch, snapshot.attrs, parent, entry.ts_ns)

    def take_up(self, ledger: Ledger) -> None:
        """Inside the transaction: move the branch."""
        advance(ledger, self.commit, self.attrs_commit)


def advance(ledger: Ledger, commit: bytes, attrs_commit: bytes | None) -> None:
    ledger.set_ref(BRANCH, commit)
    if attrs_commit is not None:
        ledger.set_ref(ATTRS_REF, attrs_commit)
