"""Retention: which entries become one commit, which stay, and why."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrate.history.maintenance.retention import Decision, EntryView, Policy, SessionView, decide

GOLDEN = Path(__file__).parent / "golden" / "retention_large.txt"


def line(text: str, added_bytes: int = 10) -> list[EntryView]:
    """``B s1 s1- x s2``: baseline, a command of s1, one that changed nothing, an outside edit."""
    out = []
    for pos, word in enumerate(text.split(), start=1):
        committed = not word.endswith("-")
        who = word.removesuffix("-")
        kind = {"B": "baseline", "x": "external"}.get(who, "command")
        session = who if kind == "command" else None
        out.append(EntryView(pos, f"c{pos}", session, kind, committed, added_bytes))
    return out


def spans(decision: Decision) -> list[str]:
    return [f"{r.grain}:{r.command_ids[0]}-{r.command_ids[-1]}" for r in decision.ranges]


TWO_OLD = (SessionView("s1", False), SessionView("s2", False))

CASES = {
    "nothing to do": (
        "B s1 s1 s2", (SessionView("s1", True), SessionView("s2", True)), Policy(), [],
    ),
    "an old session becomes one commit": (
        "B s1 s1 s1 s2 s2", TWO_OLD, Policy(keep_sessions=1), ["session:c2-c4"],
    ),
    "no session is kept, the newest entry still stands alone": (
        "B s1 s1 s1", (SessionView("s1", False),), Policy(keep_sessions=0), ["session:c2-c3"],
    ),
    "the newest entry is the newest that changed something": (
        "B s1 s1 s1 s1-", (SessionView("s1", False),), Policy(keep_sessions=0), ["session:c2-c3"],
    ),
    "an open session is never squashed for its age": (
        "B s1 s1 s2", (SessionView("s1", True), SessionView("s2", False)),
        Policy(keep_sessions=0), [],
    ),
    "fewer sessions than are kept": (
        "B s1 s1 s2 s2 s3",
        (*TWO_OLD, SessionView("s3", False)), Policy(keep_sessions=5), [],
    ),
    "an older outside edit goes with the session around it": (
        "B s1 s1 x s1 s1 s2", TWO_OLD, Policy(keep_sessions=1), ["older:c2-c6"],
    ),
    "an older outside edit goes with the session after it": (
        "B s1 s1 x x s2 s3", (*TWO_OLD, SessionView("s3", True)), Policy(keep_sessions=0),
        ["session:c2-c3", "older:c4-c6"],
    ),
    "an outside edit after the last older session is not older": (
        "B s1 s1 x s2 x s2", TWO_OLD, Policy(keep_sessions=1), ["session:c2-c3"],
    ),
    "an outside edit after an entry that stays is not older": (
        "B s2 x s1 s1 s2", TWO_OLD, Policy(keep_sessions=1), ["session:c4-c5"],
    ),
    "sessions that overlap share a squash, others do not": (
        "B s1 s2 s1 s2 x s3 s3 s4", (*TWO_OLD, SessionView("s3", False), SessionView("s4", False)),
        Policy(keep_sessions=1), ["older:c2-c5", "older:c6-c8"],
    ),
    "an entry that stays cuts a range in two": (
        "B s1 s1 s2 s1 s1 s2", TWO_OLD, Policy(keep_sessions=1), ["session:c2-c3", "session:c5-c6"],
    ),
    "a range of one needs no squash": (
        "B s1 s2 s1 s2", TWO_OLD, Policy(keep_sessions=1), [],
    ),
    "in a session that stays an outside edit cuts": (
        "B s1 s1 x s1 s1 s1", (SessionView("s1", True, (6,)),), Policy(keep_checkpoints=0),
        ["checkpoint:c2-c3", "checkpoint:c5-c6"],
    ),
    "entries without a commit go along with their range": (
        "B s1 s1- s1 s2", TWO_OLD, Policy(keep_sessions=1), ["session:c2-c4"],
    ),
    "entries without a commit make no range by themselves": (
        "B s1- s1- s1 s2", TWO_OLD, Policy(keep_sessions=1), [],
    ),
    "an uncommitted entry of another session cuts nothing": (
        "B s1 s2- s1 s2", TWO_OLD, Policy(keep_sessions=1), ["session:c2-c4"],
    ),
    "before the last N checkpoints: one commit each": (
        "B s1 s1 s1 s1 s1 s1", (SessionView("s1", True, (3, 5, 6)),),
        Policy(keep_checkpoints=1), ["checkpoint:c2-c3", "checkpoint:c4-c5"],
    ),
    "no checkpoint is kept: all up to the last one": (
        "B s1 s1 s1 s1", (SessionView("s1", True, (3, 4)),),
        Policy(keep_checkpoints=0), ["checkpoint:c2-c3"],
    ),
    "as many checkpoints as are kept: nothing": (
        "B s1 s1 s1", (SessionView("s1", True, (2, 3)),), Policy(keep_checkpoints=2), [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_table(name: str) -> None:
    text, sessions, policy, wanted = CASES[name]
    assert spans(decide(line(text), sessions, policy)) == wanted


def test_every_entry_is_kept_with_a_reason_or_in_one_range() -> None:
    decision = decide(line("B s1 s1 s2 x s1 s2- s2"), TWO_OLD, Policy(keep_sessions=1))
    assert decision.kept == {
        "c1": "baseline: where history begins",
        "c4": "recent session",
        "c5": "external: not older than what is kept",
        "c6": "alone in its range: nothing to squash it with",
        "c7": "changed nothing: it takes no space",
        "c8": "recent session",
    }
    [only] = decision.ranges
    assert only.reason == "session is older than the last 1"
    assert only.session_id == "s1"


def test_a_squash_with_outside_edits_belongs_to_no_session() -> None:
    [only] = decide(line("B s1 x s1 s2"), TWO_OLD, Policy(keep_sessions=1)).ranges
    assert (only.session_id, only.grain) == (None, "older")


def test_reasons_of_checkpoints_and_open_sessions() -> None:
    sessions = (SessionView("s1", True, (3, 4)), SessionView("s2", False))
    decision = decide(line("B s1 s1 s1 s2"), sessions, Policy(keep_checkpoints=1))
    assert decision.ranges[0].reason == "before the last 1 checkpoints of its session"
    assert decision.kept["c4"] == "open session"
    assert decision.kept["c5"] == "recent session"


class TestPressure:
    TWO = (SessionView("s1", False), SessionView("s2", True))

    def test_frees_the_oldest_first_and_no_more_than_it_must(self) -> None:
        entries = line("B s1 s1 s2 s2 s3 s3 s4", added_bytes=100)
        sessions = tuple(SessionView(f"s{n}", False) for n in range(1, 5))
        decision = decide(entries, sessions, Policy(must_free_bytes=150))
        assert spans(decision) == ["pressure:c2-c3", "pressure:c4-c5"]
        assert decision.ranges[0].reason == "the store is over its disk cap"

    def test_sessions_go_together_when_that_is_needed(self) -> None:
        entries = line("B s1 s1 x s2 s2 x s3 s3", added_bytes=100)
        sessions = (*self.TWO, SessionView("s3", True))
        decision = decide(entries, sessions, Policy(must_free_bytes=10**9))
        assert spans(decision) == ["pressure:c2-c7"]
        assert decision.ranges[0].session_id is None
        enough = decide(entries, sessions, Policy(must_free_bytes=350))
        assert spans(enough) == ["pressure:c2-c6"], "only as far as needed"

    def test_the_newest_session_is_never_squashed_for_it(self) -> None:
        entries = line("B s1 s1 s1 s1", added_bytes=100)
        decision = decide(entries, (SessionView("s1", True),), Policy(must_free_bytes=10**9))
        assert decision.ranges == ()
        entries = line("B s2 x x s2 s1 s1 s2 s2", added_bytes=100)
        decision = decide(entries, self.TWO, Policy(must_free_bytes=10**9))
        assert spans(decision) == ["pressure:c3-c4", "pressure:c6-c7"]

    def test_sessions_in_turns_with_outside_edits(self) -> None:
        entries = line("B " + "x s1 x s2 " * 5 + "s3", added_bytes=100)
        sessions = (*self.TWO, SessionView("s3", True))
        decision = decide(entries, sessions, Policy(must_free_bytes=10**9))
        assert spans(decision) == ["pressure:c2-c21"]

    def test_without_any_session(self) -> None:
        decision = decide(line("B x x x", added_bytes=100), (), Policy(must_free_bytes=10**9))
        assert spans(decision) == ["pressure:c2-c3"]

    def test_what_frees_nothing_is_left_alone(self) -> None:
        entries = line("B s1 s1 x s2 s2", added_bytes=0)
        assert decide(entries, self.TWO, Policy(must_free_bytes=10**9)).ranges == ()

    def test_the_baseline_goes_only_when_allowed(self) -> None:
        entries = line("B s1 s1 s2", added_bytes=100)
        wanted = Policy(must_free_bytes=10**9)
        assert spans(decide(entries, self.TWO, wanted)) == ["pressure:c2-c3"]
        folded = decide(entries, self.TWO, wanted._replace(fold_baseline=True))
        assert spans(folded) == ["pressure:c1-c3"]


SESSION_NAMES = ("s1", "s2", "s3")
words = st.lists(
    st.sampled_from(["x", *SESSION_NAMES, *(s + "-" for s in SESSION_NAMES)]), max_size=30
)
policies = st.builds(
    Policy, st.integers(0, 3), st.integers(0, 3), st.sampled_from((0, 0, 25, 10_000))
)


@given(words, policies, st.lists(st.booleans(), min_size=3, max_size=3), st.data())
def test_what_holds_for_every_history(
    text: list[str], policy: Policy, is_open: list[bool], data: st.DataObject
) -> None:
    entries = line(" ".join(["B", *text]))
    sessions = [
        SessionView(
            name,
            is_open[i],
            tuple(sorted(data.draw(st.sets(st.integers(1, len(entries)), max_size=4)))),
        )
        for i, name in enumerate(SESSION_NAMES)
    ]
    decision = decide(entries, sessions, policy)
    by_id = {e.command_id: e for e in entries}
    ranged = [cid for r in decision.ranges for cid in r.command_ids]
    assert sorted([*ranged, *decision.kept]) == sorted(by_id), "each entry exactly once"
    for one in decision.ranges:
        members = [by_id[cid] for cid in one.command_ids]
        whose = {m.session_id for m in members if m.committed}
        assert one.session_id == (whose.pop() if len(whose) == 1 else None)
        if one.grain in ("checkpoint", "session"):
            assert one.session_id is not None
            assert all(m.kind == "command" for m in members)
        if not policy.fold_baseline:
            assert all(m.kind != "baseline" for m in members)
        assert sum(m.committed for m in members) >= 2
        between = [e for e in entries if members[0].pos < e.pos < members[-1].pos]
        strangers = [e for e in between if e not in members and e.committed]
        assert not strangers, "a range lies side by side on the line"
    newest = [e for e in entries if e.committed][-1]
    assert newest.command_id in decision.kept


def large_history() -> tuple[list[EntryView], list[SessionView]]:
    """120 entries of nine sessions that overlap, with outside edits between; always the same."""
    rng = random.Random(8)
    entries = [EntryView(1, "c001", None, "baseline", True, 5000)]
    marks: dict[str, list[int]] = {}
    for pos in range(2, 121):
        name = f"s{min(9, max(1, pos // 14 + rng.randint(0, 1)))}"
        draw = rng.random()
        kind = "external" if draw < 0.08 else rng.choice(("command",) * 8 + ("undo", "rollback"))
        session = None if kind == "external" else name
        committed = kind == "external" or rng.random() < 0.8
        entries.append(EntryView(pos, f"c{pos:03}", session, kind, committed, rng.randint(0, 900)))
        if session and rng.random() < 0.15:
            marks.setdefault(session, []).append(pos)
    sessions = [
        SessionView(f"s{i}", i in (3, 9), tuple(marks.get(f"s{i}", ()))) for i in range(1, 10)
    ]
    return entries, sessions


def describe(decision: Decision) -> str:
    out = [
        f"squash  {r.session_id} {r.grain:<10} {' '.join(r.command_ids)}: {r.reason}"
        for r in decision.ranges
    ]
    out += [f"keep    {cid}: {why}" for cid, why in sorted(decision.kept.items())]
    return "\n".join(out) + "\n"


def test_a_large_history_decides_as_the_golden_file_says() -> None:
    """After a change that is meant: print `describe` of each policy into the golden file."""
    entries, sessions = large_history()
    text = ""
    for policy in (Policy(2, 3), Policy(1, 0), Policy(2, 3, must_free_bytes=12_000)):
        text += f"# {policy}\n" + describe(decide(entries, sessions, policy))
    assert text == GOLDEN.read_text()
