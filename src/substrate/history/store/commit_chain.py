"""The line of history: one commit after another, each naming the attrs of its state."""

from __future__ import annotations

from substrate.history import messages
from substrate.history.ledger import Entry, Ledger, NewEntry
from substrate.history.messages import ATTRS_REF, BRANCH, Trailers
from substrate.history.store import HistoryStore
from substrate.objects.batch import Batch
from substrate.objects.commits import Commit, signature
from substrate.objects.snapshot import Snapshot

_NS = 1_000_000_000


def write_commit(
    batch: Batch,
    snapshot: Snapshot,
    parent: bytes | None,
    entry: Entry | NewEntry,
    subject: str | None = None,
) -> bytes:
    """A commit of `snapshot` that says what `entry` says; nothing points at it yet."""
    trailers = Trailers(
        kind=entry.kind,
        command_id=entry.command_id,
        session_id=entry.session_id,
        span_id=entry.span_id,
        agent_id=entry.agent_id,
        exit=entry.exit,
        attrs=snapshot.attrs.hex(),
    )
    first = subject or messages.subject(
        entry.kind, entry.session_id, entry.command_id, entry.command
    )
    return _write(batch, snapshot.tree, parent, messages.compose(first, trailers), entry.ts_ns)


def write_attrs_commit(batch: Batch, attrs: bytes, parent: bytes | None, ts_ns: int) -> bytes:
    """Keeps an attrs tree reachable: the line's commits only name theirs."""
    return _write(batch, attrs, parent, b"attrs\n", ts_ns)


def _write(batch: Batch, tree: bytes, parent: bytes | None, message: bytes, ts_ns: int) -> bytes:
    who = signature("Substrate", "substrate@localhost", ts_ns // _NS)
    return batch.add_commit(Commit(tree, (parent,) if parent else (), who, who, message))


class Extension:
    """One more commit for the line, written into a batch and waiting to be taken up."""

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
        """Inside the transaction: the branch moves."""
        advance(ledger, self.commit, self.attrs_commit)


def advance(ledger: Ledger, commit: bytes, attrs_commit: bytes | None) -> None:
    ledger.set_ref(BRANCH, commit)
    if attrs_commit is not None:
        ledger.set_ref(ATTRS_REF, attrs_commit)
