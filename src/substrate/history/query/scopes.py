"""Scopes: entries that are shown, or taken back, together, and no others."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

from substrate.errors import NotFoundError, RefusedError, UsageError
from substrate.history.query.resolve_id import Target, resolve
from substrate.history.record import Prompt, agent_sessions, checkpoints, live_parts, sessions
from substrate.history.store import SESSION_KINDS, Entry, HistoryStore, is_shared
from substrate.system import clock

_CHECKPOINT = re.compile(r"(?:(?:refs/tags/)?cp/task/)?(?:[^/\s]+/)?\d{1,18}")
_AGO = re.compile(r"(\d{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TIMES = "2026-01-31T08:00, 90m, 2h or 3d"
#: SQLite's integers have no more.
_LATEST_NS = 2**63 - 1
#: The kind of entries for edits that nobody announced.
EXTERNAL = "external"


class Scope(NamedTuple):
    #: For sentences and for the entry that takes it back: "prompt p-…", "c-1..c-9".
    name: str
    #: The words of `diff` and `undo` that name it again, with full ids.
    words: str
    #: Newest first; none of them is part of a squash.
    entries: list[Entry]
    #: The session that an undo of it belongs to; None: the caller's.
    session_id: str | None = None


def of_prompt(store: HistoryStore, prompt: Prompt) -> Scope:
    """What a prompt led to. Refused if a part is no longer kept on its own."""
    name = prompt.prompt_id
    found = store.ledger.of_prompt(name)
    for entry in found:
        if entry.squashed_into is not None:
            holder = store.ledger.by_command_id(entry.squashed_into)
            assert holder is not None, "a squash outlives what it swallowed"
            raise no_longer_alone(f"commands of prompt {name}", holder)
    return Scope(f"prompt {name}", f"--prompt {name}", found, prompt.session_id)


def of_command(store: HistoryStore, text: str, session: str | None) -> Scope:
    """One command or edit, also one that was recorded in parts."""
    entry = _alone(resolve(store, text, session))
    name = entry.command_id
    return Scope(name, name, live_parts.whole(store, entry) or [entry], entry.session_id)


def of_session(store: HistoryStore, session_id: str) -> Scope:
    """All of a session and of its sub-agents' sessions; `session_id` is the full id."""
    shared = store.ledger.shared_squashes(session_id)
    if shared:
        raise no_longer_alone(f"commands of session {session_id}", shared[0])
    own = agent_sessions.with_children(store.ledger, session_id)
    found = [entry for one in own for entry in store.ledger.live(session_id=one)]
    entries = sorted(found, key=lambda entry: entry.pos, reverse=True)
    return Scope(f"session {session_id}", f"--whole-session {session_id}", entries, session_id)


def is_range(text: str) -> bool:
    """Whether it reads ``A..B`` or ``A..``; ``../x`` and ``a/../b`` are paths."""
    first, dots, last = text.partition("..")
    return bool(dots and first and not first.endswith("/") and not last.startswith("/"))


def of_range(store: HistoryStore, text: str, session: str | None) -> Scope:
    """``A..B``: the commands after A, up to and including B; ``A..``: all after A.

    Edits that nobody announced are not part of it. `session`: only this session's commands.
    """
    first, _, last = text.partition("..")
    after = _one_entry(store, first, session)
    upto = _one_entry(store, last, session) if last else None
    if upto is not None and upto.pos < after.pos:
        raise UsageError(
            f"{text}: the second id is older than the first",
            hint=f"the older id comes first: {last}..{first}",
        )
    name = f"{after.command_id}..{upto.command_id if upto else ''}"
    found = [
        entry for entry in _commands(store, after.pos, session)
        if upto is None or entry.pos <= upto.pos
    ]  # fmt: skip
    return Scope(name, name, found)


def since(store: HistoryStore, text: str, session: str | None) -> Scope:
    """What came after a command, a checkpoint or a time, or with a prompt and after it.

    Edits that nobody announced are not part of it. `session`: only this session's commands.
    """
    pos, name = _beginning(store, text, session)
    return Scope(f"what came since {name}", f"--since {name}", _commands(store, pos, session))


def everything(store: HistoryStore, session: str | None) -> Scope:
    """All commands that are kept: a start for `by_agent`."""
    return Scope("all commands", "", _commands(store, -1, session))


def by_agent(store: HistoryStore, scope: Scope, agent_id: str) -> Scope:
    """Those of one coding agent, or of `human`."""
    name = f"what {agent_id} did" if not scope.words else f"{scope.name}, by {agent_id}"
    words = f"{scope.words} --agent {agent_id}".strip()
    return Scope(name, words, [e for e in scope.entries if _agent_of(store, e) == agent_id])


def _agent_of(store: HistoryStore, entry: Entry) -> str | None:
    """A squash has no agent of its own; its session has."""
    if entry.agent_id is not None or entry.session_id is None:
        return entry.agent_id
    session = sessions.find(store.ledger, entry.session_id)
    return session.agent_id if session else None


def external(store: HistoryStore, text: str | None, session: str | None) -> Scope:
    """The edits made outside Substrate: all that are kept, in a range, or since something."""
    if text is None:
        pos, upto, name = -1, None, "edits outside"
    elif is_range(text):
        first, _, last = text.partition("..")
        pos = _one_entry(store, first, session).pos
        upto = _one_entry(store, last, session).pos if last else None
        name = f"edits outside, {text}"
    else:
        (pos, name), upto = _beginning(store, text, session), None
        name = f"edits outside since {name}"
    found = [
        entry for entry in store.ledger.live(after_pos=pos, committed=True)
        if entry.kind == EXTERNAL and (upto is None or entry.pos <= upto)
    ]  # fmt: skip
    return Scope(name, "--external", found)


def no_longer_alone(what: str, holder: Entry) -> RefusedError:
    return RefusedError(
        f"{what} are no longer kept on their own: they are part of"
        f" {holder.command_id} ({holder.command})",
        hint=hint_of_holder(holder),
    )


def hint_of_holder(holder: Entry) -> str:
    """What can be done with a squash instead of with a part of it."""
    if is_shared(holder):
        return (
            f"`substrate diff {holder.command_id}` shows what changed in that range;"
            f" `substrate rollback --to {holder.command_id} --exact` goes back to its end"
        )
    return f"`substrate undo {holder.command_id}` takes the whole range back"


def _commands(store: HistoryStore, after_pos: int, session: str | None) -> list[Entry]:
    """The entries of sessions after a position, newest first."""
    own: list[str] | list[None] = [None]
    if session is not None:
        known = sessions.resolve(store.ledger, session).session_id
        own = agent_sessions.with_children(store.ledger, known)
    for one in own:
        shared = store.ledger.shared_squashes(one, after_pos)
        if shared:
            raise no_longer_alone("commands of that range", shared[0])
    return [
        entry for entry in store.ledger.live(after_pos=after_pos)
        if entry.kind in SESSION_KINDS and (own == [None] or entry.session_id in own)
    ]  # fmt: skip


def _one_entry(store: HistoryStore, text: str, session: str | None) -> Entry:
    """The entry at an end of a range; of a prompt, its last one."""
    target = resolve(store, text, session)
    if target.prompt is not None:
        return _of_prompt(store, target.prompt)[0]
    return _alone(target)


def _alone(target: Target) -> Entry:
    if target.holder is not None and target.entry is not None:
        raise no_longer_alone(f"{target.entry.command_id} and its neighbours", target.holder)
    return target.present


def _of_prompt(store: HistoryStore, prompt: Prompt) -> list[Entry]:
    found = of_prompt(store, prompt).entries
    if not found:
        raise NotFoundError(
            f"prompt {prompt.prompt_id} ran no recorded command",
            hint=f"`substrate show {prompt.prompt_id}` shows what is known of it",
        )
    return found


def _beginning(store: HistoryStore, text: str, session: str | None) -> tuple[int, str]:
    """The position that something is after, and its full name."""
    if _CHECKPOINT.fullmatch(text):
        checkpoint = checkpoints.resolve(store, text, session)
        return checkpoint.after_pos, checkpoint.tag
    moment = _moment(text)
    if moment is not None:
        return _position_at(store, moment), text
    try:
        target = resolve(store, text, session)
    except NotFoundError as error:
        error.hint = f"{error.hint}; a time is e.g. {_TIMES}"
        raise
    if target.prompt is not None:
        return _of_prompt(store, target.prompt)[-1].pos - 1, target.prompt.prompt_id
    if target.session is not None:
        own = of_session(store, target.session.session_id).entries
        return (own[-1].pos - 1 if own else store.ledger.last_pos()), target.session.session_id
    entry = _alone(target)
    return entry.pos, entry.command_id


def _position_at(store: HistoryStore, moment_ns: int) -> int:
    """The position of the newest entry before a time. Refused in the middle of a squash."""
    row = store.ledger.db.execute(
        "SELECT pos, squashed_into FROM entries WHERE ts_ns < ? ORDER BY pos DESC LIMIT 1",
        (moment_ns,),
    ).fetchone()
    if row is None:
        return -1
    holder = store.ledger.by_command_id(row["squashed_into"] or "")
    if holder is not None and holder.pos > row["pos"]:
        raise no_longer_alone("commands of that time", holder)
    return int(row["pos"])


def _moment(text: str) -> int | None:
    """A time in nanoseconds, if the text is one; without a zone it is local."""
    ago = _AGO.fullmatch(text)
    if ago:
        return clock.now_ns() - int(ago[1]) * _SECONDS[ago[2]] * 1_000_000_000
    if len(text) < len("2026-01-31") or not text[:4].isdecimal() or text[4] != "-":
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"not a time: {text!r}", hint=f"e.g. {_TIMES}") from None
    found = round(moment.astimezone(UTC).timestamp() * 1_000_000) * 1000
    return max(0, min(found, _LATEST_NS))
