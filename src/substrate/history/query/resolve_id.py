"""What an ID names: a command, prompt, span, session, commit, tag, recovery ref, or a prefix.

Every id that was ever printed still resolves: to what it named or, after compaction, to the squash
that contains it now (`Target.holder`).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from substrate.errors import AmbiguousError, NotFoundError
from substrate.history.record import Prompt, Session, agent_sessions, checkpoints, prompts, sessions
from substrate.history.store import COUNTED_BY_AT, Entry, HistoryStore, Ledger, messages

#: No more digits than SQLite's integers have.
_RELATIVE = re.compile(r"@(?:~(\d{1,18}))?")
_HEX = re.compile(r"[0-9a-f]{4,40}")
_SPAN = re.compile(r"spn_[0-9a-z]+")
_TAG = re.compile(r"cp/(task|session)/.+")
_FEW = 9
#: Where to look for ids; all others are in the log.
_LISTED_BY = {"session": "session list", "recovery ref": "recover list"}


class Target(NamedTuple):
    """What was found: one of `entry`, `session`, `prompt`, `recovery` is set, or only `commit`."""

    text: str
    entry: Entry | None = None
    session: Session | None = None
    recovery: str | None = None
    commit: bytes | None = None
    #: The squash that contains `entry` now, if any.
    holder: Entry | None = None
    prompt: Prompt | None = None

    @property
    def present(self) -> Entry:
        """The entry that a command can act on: the squash, if `entry` was squashed."""
        entry = self.holder or self.entry
        if entry is None:
            raise NotFoundError(
                f"{self.text!r} is not a command", hint="`substrate log` lists the commands"
            )
        return entry


def resolve(store: HistoryStore, text: str, session: str | None = None) -> Target:
    """Find what `text` names; ``@`` counts back from the newest command of `session`."""
    ledger = store.ledger
    relative = _RELATIVE.fullmatch(text)
    if relative:
        return _relative(store, text, int(relative[1] or 0), session)
    exact = _exact(store, text)
    if exact is not None:
        return exact
    candidates = _candidates(ledger, text)
    name = one_of(
        "command, prompt, span, session, commit, tag or recovery ref", text, list(candidates)
    )
    return candidates[name]


def one_of(what: str, text: str, names: list[str]) -> str:
    """The only candidate; otherwise an error that lists the candidates or says there is none."""
    if len(names) == 1:
        return names[0]
    if not names:
        raise NotFoundError(
            f"no {what} matches {text!r}",
            hint="give a whole id or a unique prefix of one;"
            f" `substrate {_LISTED_BY.get(what, 'log')}` lists them",
        )
    shown = ", ".join(names[: _FEW - 1]) + (", …" if len(names) >= _FEW else "")
    raise AmbiguousError(f"{text!r} is ambiguous: {shown}", hint="give a few more characters")


def _relative(store: HistoryStore, text: str, back: int, session: str | None) -> Target:
    current = sessions.for_question(store, session)
    rows = store.ledger.db.execute(
        f"SELECT command_id FROM entries WHERE session_id = ? AND {COUNTED_BY_AT}"
        " ORDER BY seq DESC LIMIT 1 OFFSET ?",
        (current.session_id, back),
    ).fetchone()
    if rows is None:
        raise NotFoundError(
            f"session {current.session_id} has no command {text}"
            + (": it has run none yet" if back == 0 else ""),
            hint="`substrate log` lists the commands",
        )
    entry = store.ledger.by_command_id(rows["command_id"])
    assert entry is not None
    return _of_entry(store.ledger, text, entry)


def _exact(store: HistoryStore, text: str) -> Target | None:
    ledger = store.ledger
    entry = ledger.by_command_id(text)
    if entry is not None:
        return _of_entry(ledger, text, entry)
    session = sessions.find(ledger, text)
    if session is not None:
        return Target(text, session=session)
    prompt = prompts.find(ledger, text)
    if prompt is not None:
        return Target(text, prompt=prompt)
    named_by_agent = agent_sessions.by_agent_id(ledger, text)
    if named_by_agent is not None:
        return Target(text, session=sessions.find(ledger, named_by_agent))
    tag = text.removeprefix("refs/tags/")
    if _TAG.fullmatch(tag):
        return _tag(store, tag)
    for ref in (text, messages.RECOVERY_PREFIX + text):
        commit = _recovery_commit(ledger, ref)
        if commit is not None:
            return Target(text, recovery=ref, commit=commit)
    return None


def _tag(store: HistoryStore, tag: str) -> Target:
    if tag.startswith("cp/task/"):
        commit: bytes | None = checkpoints.resolve(store, tag, None).commit
    else:
        commit = store.ledger.ref("refs/tags/" + tag)
    if commit is None:
        raise NotFoundError(f"no tag {tag}", hint="see `substrate checkpoint list`")
    return _of_commit(store.ledger, tag, commit)


def _candidates(ledger: Ledger, text: str) -> dict[str, Target]:
    out: dict[str, Target] = {}
    if not text:
        return out
    for column in ("command_id", "span_id"):
        for entry in ledger.prefixed(column, text, _FEW):
            name = entry.command_id if column == "command_id" else (entry.span_id or "")
            out[name] = _of_entry(ledger, text, entry)
    rows = ledger.db.execute(
        "SELECT session_id FROM sessions WHERE session_id >= ? AND session_id < ? LIMIT ?",
        (text, text + "\U0010ffff", _FEW),
    ).fetchall()
    for row in rows:
        session = sessions.find(ledger, row["session_id"])
        out[row["session_id"]] = Target(text, session=session)
    for prompt in prompts.prefixed(ledger, text, _FEW):
        out[prompt.prompt_id] = Target(text, prompt=prompt)
    if not out and _SPAN.fullmatch(text):
        for entry in ledger.holding_span(text, _FEW):
            out[entry.command_id] = _of_entry(ledger, text, entry)
    if _HEX.fullmatch(text):
        for commit in _commits(ledger, text):
            out[commit.hex()] = _of_commit(ledger, text, commit)
    for prefix in (text, messages.RECOVERY_PREFIX + text):
        for row in ledger.db.execute(
            "SELECT ref, commit_oid FROM recoveries WHERE ref >= ? AND ref < ? LIMIT ?",
            (prefix, prefix + "\U0010ffff", _FEW),
        ).fetchall():
            out[row["ref"]] = Target(text, recovery=row["ref"], commit=row["commit_oid"])
    return out


def _commits(ledger: Ledger, hex_prefix: str) -> list[bytes]:
    low = bytes.fromhex(hex_prefix.ljust(40, "0"))
    high = bytes.fromhex(hex_prefix.ljust(40, "f"))
    rows = ledger.db.execute(
        "SELECT commit_oid AS oid FROM entries WHERE commit_oid BETWEEN ?1 AND ?2"
        " UNION SELECT old FROM aliases WHERE old BETWEEN ?1 AND ?2"
        " UNION SELECT commit_oid FROM recoveries WHERE commit_oid BETWEEN ?1 AND ?2 LIMIT ?3",
        (low, high, _FEW),
    ).fetchall()
    return [row["oid"] for row in rows]


def _of_entry(ledger: Ledger, text: str, entry: Entry) -> Target:
    holder = entry
    while holder.squashed_into is not None:
        above = ledger.by_command_id(holder.squashed_into)
        assert above is not None, "a squash outlives what it swallowed"
        holder = above
    is_held = holder.command_id != entry.command_id
    return Target(text, entry=entry, commit=holder.commit, holder=holder if is_held else None)


def _of_commit(ledger: Ledger, text: str, commit: bytes) -> Target:
    present = present_commit(ledger, commit)
    entry = ledger.by_commit(present)
    if entry is not None:
        return _of_entry(ledger, text, entry)
    row = ledger.db.execute("SELECT ref FROM recoveries WHERE commit_oid = ?", (commit,)).fetchone()
    return Target(text, recovery=row["ref"] if row else None, commit=present)


def present_commit(ledger: Ledger, commit: bytes) -> bytes:
    """The commit that an id refers to now, after any number of compactions."""
    while True:
        row = ledger.db.execute("SELECT present FROM aliases WHERE old = ?", (commit,)).fetchone()
        if row is None:
            return commit
        commit = row["present"]


def _recovery_commit(ledger: Ledger, ref: str) -> bytes | None:
    row = ledger.db.execute("SELECT commit_oid FROM recoveries WHERE ref = ?", (ref,)).fetchone()
    return row["commit_oid"] if row else None
