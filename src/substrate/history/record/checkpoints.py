"""Checkpoints: "this task is done", as a tag on the line of history."""

from __future__ import annotations

from typing import NamedTuple

from substrate.errors import NotFoundError, UsageError
from substrate.history.record import sessions
from substrate.history.store import HistoryStore, Ledger, messages
from substrate.system import clock

#: SQLite's integers have no more.
_MOST_DIGITS = 18


class Checkpoint(NamedTuple):
    session_id: str
    seq: int
    #: The session's own latest commit at that time: the tag points at it.
    commit: bytes
    #: Entries of the line up to this position are before the checkpoint.
    after_pos: int
    ts_ns: int
    message: str
    #: Only for a new checkpoint: how the state was known, ``watched`` or ``scanned``. Not stored.
    base_known: str = ""
    #: Only for a new checkpoint: the agent whose session is marked. Not stored.
    agent_id: str | None = None

    @property
    def tag(self) -> str:
        return messages.checkpoint_tag(self.session_id, self.seq).removeprefix("refs/tags/")


_COLUMNS = "session_id, seq, commit_oid, after_pos, ts_ns, message"


def mark(
    store: HistoryStore, session_id: str, message: str = "", wanted: int | None = None
) -> Checkpoint:
    """Mark the present state. The caller holds the lock and has recorded outside edits.

    The tag points at the session's own latest commit, or at the tip if it has none. An exact
    rollback restores the state at `after_pos`, see `state`.
    """
    own = store.ledger.live(session_id=session_id, committed=True, limit=1)
    tip = own[0].commit if own else store.tip_commit
    assert tip is not None, "a baseline exists before any checkpoint"
    entry = store.ledger.db.execute("SELECT coalesce(max(pos), 0) AS p FROM entries").fetchone()
    seq = wanted if wanted is not None else _next_seq(store.ledger, session_id)
    if wanted is not None and _find(store.ledger, session_id, wanted) is not None:
        raise UsageError(
            f"session {session_id} already has a checkpoint {wanted}",
            hint="leave the number out and the next free one is taken",
        )
    checkpoint = Checkpoint(session_id, seq, tip, entry["p"], clock.now_ns(), message)
    with store.commit_point() as ledger:
        ledger.db.execute("INSERT INTO checkpoints VALUES (?, ?, ?, ?, ?, ?)", checkpoint[:6])
        ledger.set_ref(messages.checkpoint_tag(session_id, seq), tip)
        sessions.touch(ledger, session_id)
    return checkpoint


def state(store: HistoryStore, checkpoint: Checkpoint) -> bytes:
    """The commit whose tree was in the workspace at the checkpoint, outside edits included."""
    entry = store.ledger.previous_commit(checkpoint.after_pos + 1)
    assert entry is not None and entry.commit is not None, "the baseline is before any checkpoint"
    return entry.commit


def of_session(ledger: Ledger, session_id: str | None = None) -> list[Checkpoint]:
    """One session's checkpoints, or all of them, oldest first."""
    where, values = ("WHERE session_id = ?", (session_id,)) if session_id else ("", ())
    rows = ledger.db.execute(
        f"SELECT {_COLUMNS} FROM checkpoints {where} ORDER BY after_pos, ts_ns, seq", values
    )
    return [Checkpoint(*row) for row in rows]


def resolve(store: HistoryStore, text: str, default_session: str | None) -> Checkpoint:
    """``SEQ``, ``SESSION/SEQ`` or the whole tag name."""
    short = text.removeprefix("refs/tags/").removeprefix("cp/task/")
    session_text, _, seq_text = short.rpartition("/")
    if not seq_text.isdecimal() or len(seq_text) > _MOST_DIGITS:
        raise UsageError(
            f"not a checkpoint: {text!r}",
            hint="name it by number (3), by session and number (s-…/3) or by tag (cp/task/s-…/3)",
        )
    session = sessions.for_question(store, session_text or default_session)
    found = _find(store.ledger, session.session_id, int(seq_text))
    if found is None:
        known = [c.seq for c in of_session(store.ledger, session.session_id)]
        listing = ", ".join(map(str, known)) or "none"
        raise NotFoundError(
            f"session {session.session_id} has no checkpoint {seq_text}",
            hint=f"its checkpoints: {listing}; `substrate checkpoint list` shows those of"
            " every session, to be named SESSION/N",
        )
    return found


def _find(ledger: Ledger, session_id: str, seq: int) -> Checkpoint | None:
    row = ledger.db.execute(
        f"SELECT {_COLUMNS} FROM checkpoints WHERE session_id = ? AND seq = ?", (session_id, seq)
    ).fetchone()
    return Checkpoint(*row) if row else None


def _next_seq(ledger: Ledger, session_id: str) -> int:
    row = ledger.db.execute(
        "SELECT coalesce(max(seq), 0) + 1 AS n FROM checkpoints WHERE session_id = ?", (session_id,)
    ).fetchone()
    return int(row["n"])
