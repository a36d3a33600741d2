"""What history keeps at which grain: a pure function that also says why.

    recent sessions     every command, except before their last N checkpoints: one commit each
    older sessions      one commit each
    over the disk cap   further, oldest first: within sessions, then past sessions together

A squash never crosses an outside edit, nor (but for the disk cap) another session's entry, so each
of those cuts a range in two. The baseline and the newest entry always stand on their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class EntryView(NamedTuple):
    """What retention needs to know of one entry on the line."""

    pos: int
    command_id: str
    session_id: str | None
    kind: str
    committed: bool
    added_bytes: int


class SessionView(NamedTuple):
    """A session, with the line positions of its checkpoints, oldest first."""

    session_id: str
    is_open: bool
    checkpoints: tuple[int, ...] = ()


class Policy(NamedTuple):
    keep_checkpoints: int = 5
    keep_sessions: int = 5
    #: Bytes that must go if squashing more can free them (0: no pressure).
    must_free_bytes: int = 0


class Range(NamedTuple):
    """Consecutive entries that become one commit."""

    session_id: str
    grain: str  # "checkpoint", "session" or "pressure"
    command_ids: tuple[str, ...]
    reason: str


class Decision(NamedTuple):
    ranges: tuple[Range, ...]
    #: command_id → why it is kept as it is.
    kept: dict[str, str]


def decide(
    entries: Sequence[EntryView], sessions: Sequence[SessionView], policy: Policy
) -> Decision:
    """`entries` in line order, oldest first; `sessions` by last activity, oldest first."""
    labels = _labels(entries, sessions, policy)
    newest = max((i for i, entry in enumerate(entries) if entry.committed), default=-1)
    if policy.must_free_bytes > 0:
        is_open = {s.session_id for s in sessions if s.is_open}
        _press(entries[:newest], labels, policy.must_free_bytes, is_open)
    if newest >= 0 and labels[newest].group is not None:
        labels[newest] = _Label(None, "the newest entry: never squashed")
    return _cut(entries, labels)


class _Label(NamedTuple):
    """Entries with an equal group that lie side by side are squashed together."""

    group: tuple[str, str, int] | None  # (session, grain, part), or None: kept
    reason: str


def _labels(
    entries: Sequence[EntryView], sessions: Sequence[SessionView], policy: Policy
) -> list[_Label]:
    by_id = {s.session_id: s for s in sessions}
    order = [s.session_id for s in sessions]
    recent = set(order[-policy.keep_sessions :]) if policy.keep_sessions else set()
    return [_label(e, by_id, recent, policy) for e in entries]


def _label(
    entry: EntryView, sessions: dict[str, SessionView], recent: set[str], policy: Policy
) -> _Label:
    session = sessions.get(entry.session_id or "")
    if entry.kind in ("baseline", "external") or session is None:
        return _Label(None, f"{entry.kind}: never squashed")
    if session.session_id not in recent and not session.is_open:
        reason = f"session is older than the last {policy.keep_sessions}"
        return _Label((session.session_id, "session", 0), reason)
    old = session.checkpoints[: max(0, len(session.checkpoints) - policy.keep_checkpoints)]
    for part, checkpoint_pos in enumerate(old):
        if entry.pos <= checkpoint_pos:
            reason = f"before the last {policy.keep_checkpoints} checkpoints of its session"
            return _Label((session.session_id, "checkpoint", part), reason)
    return _Label(None, "open session" if session.is_open else "recent session")


def _press(
    entries: Sequence[EntryView], labels: list[_Label], wanted: int, is_open: set[str]
) -> None:
    """Squash kept entries too, oldest first, until enough would be freed: within sessions, and
    where that is not enough, closed sessions that lie side by side together."""
    each = {e.session_id: e.session_id for e in entries if e.session_id}
    if _press_runs(entries, labels, wanted, each) < wanted:
        together = {name: name if name in is_open else "" for name in each}
        _press_runs(entries, labels, wanted, together)


def _press_runs(
    entries: Sequence[EntryView], labels: list[_Label], wanted: int, groups: dict[str, str]
) -> int:
    """How much would be freed: of each run at most what all but its last entry added."""
    freed = 0
    previous: tuple[str, int] | None = None
    for i, entry in enumerate(entries):
        if freed >= wanted:
            break
        if entry.kind in ("baseline", "external") or entry.session_id is None:
            previous = None
            continue
        group = groups[entry.session_id]
        labels[i] = _Label((group, "pressure", 0), "the store is over its disk cap")
        if previous is not None and previous[0] == group:
            freed += previous[1]
        previous = (group, entry.added_bytes)
    return freed


def _cut(entries: Sequence[EntryView], labels: Sequence[_Label]) -> Decision:
    """Side-by-side entries of one group become a range; a range of one needs no squash."""
    ranges: list[Range] = []
    kept: dict[str, str] = {}
    run: list[int] = []

    def finish() -> None:
        if not run:
            return
        group = labels[run[0]].group
        assert group is not None
        committed = [i for i in run if entries[i].committed]
        if len(committed) >= 2:
            names = tuple(entries[i].command_id for i in run)
            session_id = group[0] or entries[run[-1]].session_id or ""
            ranges.append(Range(session_id, group[1], names, labels[run[0]].reason))
        else:
            for i in run:
                kept[entries[i].command_id] = "alone in its range: nothing to squash it with"
        run.clear()

    for i, entry in enumerate(entries):
        group = labels[i].group
        is_other = not run or labels[run[0]].group != group
        if not entry.committed and is_other:
            kept[entry.command_id] = "changed nothing: it takes no space"
            continue
        if is_other:
            finish()
        if group is not None:
            run.append(i)
        else:
            kept[entry.command_id] = labels[i].reason
    finish()
    return Decision(tuple(ranges), kept)
