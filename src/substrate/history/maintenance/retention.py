"""What history keeps at which grain: a pure function that also says why.

    recent sessions     every command, except before their last N checkpoints: one commit each
    older sessions      one commit each, with the outside edits before and between their commands;
                        sessions that overlap on the line share one
    over the disk cap   further, oldest first: every session but the newest as if it were older,
                        then all of them together, last of all the baseline with them

Among recent sessions a squash never crosses an outside edit or another session's entry. The newest
session and the newest entry are never squashed for the cap. A squash that holds more than one
session's work, or outside edits, belongs to no session (`Range.session_id` is None).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple


class EntryView(NamedTuple):
    """What retention needs to know about one entry on the line."""

    pos: int
    command_id: str
    #: None: an outside edit, or a squash of more than one session's work.
    session_id: str | None
    kind: str
    committed: bool
    #: Bytes it added and a later entry replaced: roughly what squashing the two frees.
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
    #: Whether the baseline may become part of the oldest squash.
    fold_baseline: bool = False


class Range(NamedTuple):
    """Consecutive entries that become one commit."""

    #: None: it holds more than one session's work, or outside edits.
    session_id: str | None
    grain: str  # "checkpoint", "session", "older" or "pressure"
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
    by_id = {s.session_id: s for s in sessions}
    order = list(by_id)
    recent = set(order[-policy.keep_sessions :]) if policy.keep_sessions else set()
    stays = recent | {s.session_id for s in sessions if s.is_open}
    newest = max((i for i, entry in enumerate(entries) if entry.committed), default=-1)
    labels = [_label(entry, by_id, stays, policy) for entry in entries]
    reason = f"session is older than the last {policy.keep_sessions}"
    for group in _old_groups(entries, stays, newest):
        _mark(labels, group, _Label(("older", group[0], ""), reason))
    if policy.must_free_bytes > 0:
        _press(entries, labels, policy, order[-1] if order else None, newest)
    if newest >= 0 and labels[newest].group is not None:
        labels[newest] = _Label(None, "the newest entry: never squashed")
    return _cut(entries, labels)


class _Label(NamedTuple):
    """Adjacent entries with the same group are squashed together."""

    group: tuple[str, int, str] | None  # (grain, number, session), or None: kept
    reason: str


def _label(
    entry: EntryView, sessions: dict[str, SessionView], stays: set[str], policy: Policy
) -> _Label:
    """The label of an entry on its own, without regard to its neighbours on the line."""
    if entry.kind == "baseline":
        return _Label(None, "baseline: where history begins")
    session = sessions.get(entry.session_id or "")
    if session is None or session.session_id not in stays:
        return _Label(None, f"{entry.kind}: not older than what is kept")
    old = session.checkpoints[: max(0, len(session.checkpoints) - policy.keep_checkpoints)]
    for part, checkpoint_pos in enumerate(old):
        if entry.pos <= checkpoint_pos:
            reason = f"before the last {policy.keep_checkpoints} checkpoints of its session"
            return _Label(("checkpoint", part, session.session_id), reason)
    return _Label(None, "open session" if session.is_open else "recent session")


def _mark(labels: list[_Label], group: Iterable[int], label: _Label) -> None:
    for i in group:
        labels[i] = label


def _old_groups(
    entries: Sequence[EntryView], stays: Container[str | None], newest: int
) -> list[list[int]]:
    """Runs of entries that are older than what stays, cut between sessions that do not overlap.

        B x A A x C A C x D D x E(stays)   →   [x A A x C A C] [x D D]

    An outside edit belongs to the session after it. After the last old session, or after an entry
    that stays, it counts as recent and is kept.
    """
    groups: list[list[int]] = []
    run: list[int] = []
    is_first = True
    for i, entry in enumerate(entries):
        if entry.kind == "baseline":
            continue
        if entry.session_id in stays or i == newest:
            if not entry.committed:
                continue  # it changed nothing: it cuts no range in two
            groups += _split(entries, run, keep_leading=is_first)
            run, is_first = [], False
        else:
            run.append(i)
    return groups + _split(entries, run, keep_leading=is_first)


def _split(
    entries: Sequence[EntryView], run: Sequence[int], *, keep_leading: bool
) -> list[list[int]]:
    last = {entries[i].session_id: i for i in run if entries[i].committed}
    groups: list[list[int]] = []
    group: list[int] = []
    inside: set[str] = set()
    end = -1
    for i in run:
        session_id = entries[i].session_id
        if not entries[i].committed:
            if session_id in inside:
                (group or groups[-1]).append(i)
        elif session_id is not None:
            if not group:
                inside = set()
            group.append(i)
            inside.add(session_id)
            end = max(end, last[session_id])
        elif group or groups or keep_leading:
            if not group:
                inside = set()
            group.append(i)
        if group and i == end:
            groups.append(group)
            group = []
    return groups


def _press(
    entries: Sequence[EntryView],
    labels: list[_Label],
    policy: Policy,
    newest_session: str | None,
    newest: int,
) -> None:
    """Squash what retention would keep, oldest first, until enough would be freed."""
    wanted, freed = policy.must_free_bytes, 0
    reason = "the store is over its disk cap"
    for group in _old_groups(entries, {newest_session} - {None}, newest):
        gain = sum(entries[i].added_bytes for i in group[:-1])
        if freed < wanted and gain and not policy.fold_baseline:
            _mark(labels, group, _Label(("pressure", group[0], ""), reason))
            freed += gain
    if freed >= wanted:
        return
    freed = 0
    for run in _foreign_runs(entries, newest_session, newest, policy.fold_baseline):
        end, gain = 0, 0
        for n, i in enumerate(run[:-1], start=2):
            if freed + gain < wanted and entries[i].added_bytes:
                gain += entries[i].added_bytes
                end = n
        _mark(labels, run[:end], _Label(("pressure", run[0], ""), reason))
        freed += gain


def _foreign_runs(
    entries: Sequence[EntryView], session_id: str | None, newest: int, fold_baseline: bool
) -> list[list[int]]:
    """Runs of entries before and between the entries of the newest session."""
    runs: list[list[int]] = [[]]
    for i, entry in enumerate(entries[:newest]):
        if entry.kind == "baseline" and not fold_baseline:
            continue
        if session_id is not None and entry.session_id == session_id:
            if entry.committed:
                runs.append([])
        elif entry.committed:
            runs[-1].append(i)
    return [run for run in runs if len(run) > 1]


def _cut(entries: Sequence[EntryView], labels: Sequence[_Label]) -> Decision:
    """Adjacent entries of one group become a range; a range of one entry needs no squash."""
    ranges: list[Range] = []
    kept: dict[str, str] = {}
    run: list[int] = []

    def finish() -> None:
        committed = [entries[i] for i in run if entries[i].committed]
        if len(committed) >= 2:
            names = tuple(entries[i].command_id for i in run)
            ranges.append(_range(committed, names, labels[run[0]]))
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


def _range(committed: Sequence[EntryView], names: tuple[str, ...], label: _Label) -> Range:
    assert label.group is not None
    grain = label.group[0]
    whose = {entry.session_id for entry in committed}
    session_id = whose.pop() if len(whose) == 1 else None
    if grain == "older" and session_id is not None:
        grain = "session"
    return Range(session_id, grain, names, label.reason)
