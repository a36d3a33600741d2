"""Random histories against a plain model: bytes, modes and links are always as it says.

The default run takes a fixed set of histories; `--long` takes 10,000, over many seeds.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.crash.oracle import Tree, all_bytes, differences, leftovers, tree
from tests.property.driver import Answer, Driver, Logged, killed_at
from tests.property.history_model import (
    Checkpoint,
    Entry,
    HistoryModel,
    Recovery,
    is_shared,
    is_tangled,
)
from tests.property.merge_model import Verdict, changed, in_scope
from tests.property.workshop import MERGED, Edit, do, edits, line_edits

SESSIONS = st.sampled_from(["s-a", "s-b", "s-c"])
ANY = st.integers(0, 1_000)
KILL_AT = st.integers(1, 60)
FEW = st.sampled_from([0, 0, 1, 2])
GIT_CHECK_EVERY = 12
#: Thousands of syncs, which are not what is tested here: in memory where there is such a place.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class HistoryMachine(RuleBasedStateMachine):
    """Rules have no preconditions: where a kill strikes differs from run to run (ids and so the
    objects' directories do), and what Hypothesis draws must not depend on it."""

    #: What the histories met, over all of them: a test that meets nothing proves nothing.
    seen: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp(prefix="machine-", dir=MEMORY))
        self.root = self.base / "project"
        self.root.mkdir()
        self.driver = Driver(self.root, self.base)
        self.steps = 0
        self.seen["histories"] += 1
        self.git_before: dict[str, tuple[int, bytes]] | None = None

    @initialize(work=edits(6), with_git=st.booleans())
    def open(self, work: list[Edit], with_git: bool) -> None:
        do(self.root, [Edit("create", place, 0) for place in MERGED])
        do(self.root, work)
        if with_git:
            self._make_git()
        self.driver.begin()
        self.now = tree(self.root)
        self.model = HistoryModel(self.now)
        self._sync()

    def _make_git(self) -> None:
        def git(*words: str) -> None:
            subprocess.run(["git", *words], cwd=self.root, check=True, capture_output=True)

        git("init", "-q")
        git("add", "-A")
        git("commit", "-q", "--allow-empty", "-m", "first")
        self.git_before = self._users_git()

    def _users_git(self) -> dict[str, tuple[int, bytes]]:
        found = all_bytes(self.root / ".git")
        return {name: what for name, what in found.items() if name != "info/exclude"}

    # -- work -----------------------------------------------------------------------------------

    @rule(work=edits())
    def outside(self, work: list[Edit]) -> None:
        do(self.root, work)
        self.now = tree(self.root)

    @rule(work=line_edits())
    def outside_lines(self, work: list[Edit]) -> None:
        self.outside(work)

    @rule(session=SESSIONS, work=line_edits())
    def command_lines(self, session: str, work: list[Edit]) -> None:
        self.command(session, work)

    @rule(session=SESSIONS, work=line_edits(), more=line_edits(), other=edits(2))
    def task(self, session: str, work: list[Edit], more: list[Edit], other: list[Edit]) -> None:
        """Commands one after the other and a checkpoint: what compaction squashes."""
        for part in (work, more, other):
            self.command(session, part)
        self.checkpoint(session)

    @rule(session=SESSIONS, work=line_edits(), more=edits(2), kept=FEW)
    def task_and_tidy(self, session: str, work: list[Edit], more: list[Edit], kept: int) -> None:
        self.task(session, work, more, work)
        self.compact(0, kept)

    @rule(session=SESSIONS, work=edits())
    def command(self, session: str, work: list[Edit]) -> None:
        self.model.scanned(self.now)
        answer = self.driver.run(session, lambda: self._work(work))
        assert answer.how == "done", answer.message
        self._commanded(session)

    def _work(self, work: Sequence[Edit]) -> None:
        do(self.root, work)
        self.now = tree(self.root)

    def _commanded(self, session: str) -> None:
        committed = self.now != self.model.known
        self.model.add(Entry("command", session, self.model.known, self.now, committed=committed))
        self._sync()

    # -- taking back ----------------------------------------------------------------------------

    @rule(session=SESSIONS)
    def undo_last(self, session: str) -> None:
        self.model.scanned(self.now)
        entry, certain = self.model.newest_undoable(session)
        if not certain:
            return
        answer = self.driver.undo(None, session, ())
        self._check_undo(answer, entry, ())

    @rule(number=ANY)
    def undo_any(self, number: int) -> None:
        entry = self._pick(self.model.everyone, number)
        self.model.scanned(self.now)
        answer = self.driver.undo(entry.id, None, ())
        self._check_undo(answer, entry, ())

    @rule(number=st.integers(0, 4))
    def undo_recent(self, number: int) -> None:
        self.undo_any(number)

    @rule(session=SESSIONS, work=line_edits(), later=line_edits())
    def undo_behind_edits(self, session: str, work: list[Edit], later: list[Edit]) -> None:
        """After later edits of the same file: merged, or a conflict and nothing changed."""
        self.command(session, work)
        entry = self.model.line[-1]
        self.outside(later)
        self.model.scanned(self.now)
        self._check_undo(self.driver.undo(entry.id, None, ()), entry, ())

    @rule(number=ANY, other=ANY)
    def undo_path(self, number: int, other: int) -> None:
        entry = self._pick(self.model.line, number)
        paths = changed(entry.before, entry.after)
        if not paths or entry.kind == "baseline":
            return
        path = self._pick(paths, other)
        self.model.scanned(self.now)
        if any(who.present.taken_back for who, _ in entry.taken_back):
            return  # undone in part, and that undone again: both readings are right
        answer = self.driver.undo(entry.id, None, (path,))
        self._check_undo(answer, entry, (path,))

    def _check_undo(self, answer: Answer, entry: Entry | None, paths: tuple[bytes, ...]) -> None:
        if entry is None:
            self._must_refuse(answer)
            return
        may_go = is_tangled(entry) and answer.how != "refused" and not is_shared(entry)
        if not (may_go or self._is_undoable(entry, paths)):
            self._must_refuse(answer)
            return
        if not paths and answer.how == "refused" and self._is_unclear(entry):
            self._must_refuse(answer)
            return
        kind = "redo" if entry.kind in ("undo", "rollback") else "undo"
        verdict = self.model.undo(entry, paths)
        if self._check(answer, verdict):
            made = self.model.reversed_by(kind, entry.session, verdict.tree, [entry], paths)
            self._took_back(answer, made)
        self._sync()

    def _is_unclear(self, entry: Entry) -> bool:
        return self.model.undone(entry) == "partly" or is_tangled(entry)

    def _is_undoable(self, entry: Entry, paths: tuple[bytes, ...]) -> bool:
        if entry.held_by or not entry.committed or entry.kind == "baseline" or is_shared(entry):
            return False
        if paths:
            standing = [p for who, p in entry.taken_back if self.model.undone(who.present) != "yes"]
            return not any(not p or set(paths) <= set(p) for p in standing)
        return not self.model.refuses_undo(entry)

    @rule(session=SESSIONS)
    def redo(self, session: str) -> None:
        self.model.scanned(self.now)
        entry, certain = self.model.newest_redoable(session)
        if not certain:
            return
        answer = self.driver.redo(session)
        self._check_undo(answer, entry, ())

    @rule(number=ANY, exact=st.booleans())
    def roll_back_to(self, number: int, exact: bool) -> None:
        entry = self._pick(self.model.everyone, number)
        self.model.scanned(self.now)
        answer = self.driver.roll_back_to(str(entry.id), exact=exact)
        whose = entry.session or (self.model.active[-1] if self.model.active else None)
        if entry.held_by or whose is None:
            self._must_refuse(answer)
            return
        point = self._committed_at(entry)
        if point.after != entry.after:  # it changed nothing, and its state was squashed away
            self._must_refuse(answer)
            return
        self._check_rollback(answer, point, whose, exact)

    def _committed_at(self, entry: Entry) -> Entry:
        """The entry itself, or the last one before it that has a state of its own."""
        line = self.model.line
        return next(e for e in reversed(line[: line.index(entry) + 1]) if e.committed)

    @rule(number=ANY, exact=st.booleans())
    def roll_back_to_checkpoint(self, number: int, exact: bool) -> None:
        if not self.model.checkpoints:
            return
        mark = self._pick(self.model.checkpoints, number)
        self.model.scanned(self.now)
        answer = self.driver.roll_back_to_checkpoint(mark.session, mark.seq, exact=exact)
        if not self._still_stands(mark.entry):
            self._must_refuse(answer)
            return
        self._check_rollback(answer, mark.entry.present, mark.session, exact)

    @rule(number=ANY, exact=st.booleans())
    def roll_back_to_session(self, number: int, exact: bool) -> None:
        if not self.model.closed:
            return
        session = self._pick(sorted(self.model.closed), number)
        entry = self.model.closed[session]
        self.model.scanned(self.now)
        answer = self.driver.roll_back_to_session(session, exact=exact)
        if not self._still_stands(entry):
            self._must_refuse(answer)
            return
        self._check_rollback(answer, entry.present, None, exact)

    @staticmethod
    def _still_stands(entry: Entry) -> bool:
        """Whether the state after `entry` is still a state of the line."""
        return entry.present.after == entry.after

    def _check_rollback(
        self, answer: Answer, point: Entry, session: str | None, exact: bool
    ) -> None:
        line = self.model.committed()
        if not exact and self.model.shared_after(point, session):
            self._must_refuse(answer)
            return
        chosen = self.model.after(point, session)
        if exact:
            chosen = [e for e in line[line.index(point) + 1 :] if e.kind != "external"]
            verdict = Verdict(point.after, True, False)
        else:
            verdict = self.model.roll_back(chosen)
        if self._check(answer, verdict):
            made = self.model.reversed_by("rollback", session, verdict.tree, chosen)
            self._took_back(answer, made)
        self._sync()

    @rule(number=ANY)
    def restore(self, number: int) -> None:
        if not self.model.recoveries:
            return
        recovery = self._pick(self.model.recoveries, number)
        self.model.scanned(self.now)
        answer = self.driver.restore(recovery.ref)
        verdict = self.model.restore(recovery)
        if self._check(answer, verdict):
            self._took_back(answer, self.model.reversed_by("restore", None, verdict.tree, []))
        self._sync()

    def _took_back(self, answer: Answer, made: Entry) -> None:
        self.now = made.after
        if answer.recovery:
            paths = tuple(changed(made.before, made.after))
            self.model.recoveries.append(Recovery(answer.recovery, made.before, paths))
        else:
            assert not made.committed, "a change without a way back"

    def _check(self, answer: Answer, verdict: Verdict) -> bool:
        """Whether it was done; fails if that is not what must have come out."""
        self.seen[answer.how] += 1
        self.seen["merged"] += answer.how == "done" and verdict.merged
        if answer.how == "conflict":
            assert verdict.may_conflict, answer.message
            self._unchanged()
            return False
        assert answer.how == "done", answer.message
        assert verdict.may_succeed, f"a conflict was overlooked: {verdict.why}"
        found = differences(tree(self.root), verdict.tree)
        assert found == [], found
        return True

    def _must_refuse(self, answer: Answer) -> None:
        assert answer.how == "refused", f"{answer} {self.model.line}"
        self._unchanged()
        self._sync()

    # -- marking and tidying ----------------------------------------------------------------------

    @rule(session=SESSIONS)
    def checkpoint(self, session: str) -> None:
        self.model.scanned(self.now)
        number = self.driver.checkpoint(session)
        self.model.touch(session)
        mark = Checkpoint(session, number, self.model.last_committed())
        self.model.checkpoints.append(mark)
        self._sync()

    @rule(session=SESSIONS)
    def start_session(self, session: str) -> None:
        self.model.scanned(self.now)
        self.driver.start_session(session)
        self.model.start(session)
        self._sync()

    @rule(session=SESSIONS)
    def close_session(self, session: str) -> None:
        if session not in self.model.active:
            return
        self.model.scanned(self.now)
        self.driver.close_session(session)
        self.model.close(session)
        self._sync()

    @rule(checkpoints=FEW, sessions=FEW)
    def compact(self, checkpoints: int, sessions: int) -> None:
        self.driver.compact(checkpoints, sessions)
        self._sync()

    # -- killed in the middle ---------------------------------------------------------------------

    @rule(at=KILL_AT, session=SESSIONS, work=edits(2))
    def kill_command(self, at: int, session: str, work: list[Edit]) -> None:
        before = self.now
        self.model.scanned(before)
        if not self._kill(at, lambda: self.driver.run(session, lambda: do(self.root, work))):
            self.now = tree(self.root)
            self._commanded(session)
            return
        self.now = tree(self.root)
        log = self.driver.log()
        recorded = [e for e in log if e.kind == "command"][-1:]
        is_new = bool(recorded) and recorded[0].id not in self._known_ids()
        assert is_new or self.now == before, "a command's change was not recorded as its own"
        if is_new:
            self._commanded(session)
        else:
            self._forget_unscanned(before, log)
            if session not in self.model.active:
                self.driver.start_session(session)
                self.model.scanned(self.now)
                self.model.start(session)
            self._sync()

    @rule(at=KILL_AT, number=ANY)
    def kill_undo(self, at: int, number: int) -> None:
        entry = self._pick(self.model.line, number)
        if self._is_unclear(entry):
            return  # whether it still can be undone depends on how paths are counted
        before = self.now
        self.model.scanned(before)
        possible = self._is_undoable(entry, ())
        verdict = self.model.undo(entry) if possible else None
        self._kill(at, lambda: self.driver.undo(entry.id, None, ()))
        kind = "redo" if entry.kind in ("undo", "rollback") else "undo"
        self._all_or_nothing(before, verdict, kind, entry.session, [entry])

    @rule(at=KILL_AT, number=ANY, exact=st.booleans())
    def kill_rollback(self, at: int, number: int, exact: bool) -> None:
        entry = self._pick(self.model.committed(), number)
        if entry.session is None:
            return
        before = self.now
        self.model.scanned(before)
        chosen = self.model.after(entry, entry.session)
        is_separable = not self.model.shared_after(entry, entry.session)
        verdict = self.model.roll_back(chosen) if is_separable else None
        if exact:
            line = self.model.committed()
            chosen = [e for e in line[line.index(entry) + 1 :] if e.kind != "external"]
            verdict = Verdict(entry.after, True, False)
        self._kill(at, lambda: self.driver.roll_back_to(str(entry.id), exact=exact))
        self._all_or_nothing(before, verdict, "rollback", entry.session, chosen)

    @rule(at=KILL_AT, checkpoints=FEW, sessions=FEW)
    def kill_compact(self, at: int, checkpoints: int, sessions: int) -> None:
        self._kill(at, lambda: self.driver.compact(checkpoints, sessions))
        self._sync()

    @rule(at=KILL_AT, again=KILL_AT, number=ANY)
    def kill_twice(self, at: int, again: int, number: int) -> None:
        """An undo, and then what finishes it."""
        entry = self._pick(self.model.line, number)
        if self._is_unclear(entry):
            return  # whether it still can be undone depends on how paths are counted
        before = self.now
        self.model.scanned(before)
        possible = self._is_undoable(entry, ())
        verdict = self.model.undo(entry) if possible else None
        killed_at(at, lambda: self.driver.undo(entry.id, None, ()))
        killed_at(again, self.driver.begin)
        self.driver.begin()
        kind = "redo" if entry.kind in ("undo", "rollback") else "undo"
        self._all_or_nothing(before, verdict, kind, entry.session, [entry])

    def _kill(self, at: int, act: Callable[[], object]) -> bool:
        killed = killed_at(at, act)
        self.seen["killed"] += killed
        self.driver.begin()
        return killed

    def _all_or_nothing(
        self,
        before: Tree,
        verdict: Verdict | None,
        kind: str,
        session: str | None,
        targets: list[Entry],
    ) -> None:
        """After recovery: the tree is the old one, or the new one; and the log agrees."""
        log = self.driver.log()
        if log[-1].id in self._known_ids() or log[-1].kind != kind:
            self._unchanged()
            self._forget_unscanned(before, log)
        else:
            assert verdict is not None, f"{kind} of {targets} was done; {self.model.line}"
            found = differences(tree(self.root), verdict.tree)
            assert found == [], found
            self.now = verdict.tree
            made = self.model.reversed_by(kind, session, verdict.tree, targets)
            if made.committed:
                ref = f"refs/substrate/recovery/{log[-1].id}"
                paths = tuple(changed(made.before, made.after))
                self.model.recoveries.append(Recovery(ref, made.before, paths))
        self._sync()

    def _known_ids(self) -> set[str | None]:
        return {entry.id for entry in self.model.everyone}

    def _forget_unscanned(self, before: Tree, log: list[Logged]) -> None:
        """Killed before the outside edits were written down: they still are to be found."""
        last = self.model.line[-1]
        if last.kind == "external" and last.id is None and log[-1].id in self._known_ids():
            self.model.line.pop()
            self.model.everyone.remove(last)
            self.model.known = last.before

    # -- always -----------------------------------------------------------------------------------

    @staticmethod
    def _pick(items: Sequence, number: int):  # type: ignore[no-untyped-def]
        return items[-1 - number % len(items)]

    def _unchanged(self) -> None:
        found = differences(tree(self.root), self.now)
        assert found == [], found

    def _sync(self) -> None:
        """The log says what the model says; ids that the model does not know yet are taken."""
        log = self.driver.log()
        self._absorb(log)
        shape = [(e.kind, e.session, e.committed) for e in self.model.line]
        assert [(e.kind, e.session, e.committed) for e in log] == shape
        for entry, logged in zip(self.model.line, log, strict=True):
            assert entry.id in (None, logged.id)
            entry.id = logged.id

    def _absorb(self, log: list[Logged]) -> None:
        """Compaction decides what is squashed; that it was right to is checked here."""
        known = self._known_ids()
        live = {entry.id for entry in log}
        gone = [e for e in self.model.line if e.id is not None and e.id not in live]
        where = self.driver.holders([str(e.id) for e in gone])
        for logged in log:
            if logged.kind != "squash" or logged.id in known:
                continue
            members = [e for e in gone if where[str(e.id)] == logged.id]
            squash = Entry(
                "squash", logged.session, members[0].before, members[-1].after, committed=True
            )
            squash.id = logged.id
            self.model.squash(members, squash)
            self.seen["squashed"] += len(members)

    @invariant()
    def the_tree_is_as_the_model_says(self) -> None:
        if hasattr(self, "now"):
            self._unchanged()

    @invariant()
    def sometimes_look_closer(self) -> None:
        self.steps += 1
        if hasattr(self, "model") and self.steps % GIT_CHECK_EVERY == 0:
            self._look_closer()

    def _look_closer(self) -> None:
        git = ["git", f"--git-dir={self.root}/.substrate-git/.git", "fsck", "--strict", "--full"]
        checked = subprocess.run(git, capture_output=True, check=False, cwd=self.root)
        said = (checked.stdout + checked.stderr).decode().splitlines()
        assert checked.returncode == 0, said
        assert [line for line in said if not line.startswith(("dangling", "notice"))] == []
        assert self.driver.problems() == []
        left = leftovers(self.root)
        assert left == [], left
        ids = [str(entry.id) for entry in self.model.everyone]
        where = self.driver.holders(ids)
        assert where == {str(e.id): str(e.present.id) for e in self.model.everyone}
        if self.git_before is not None:
            assert self._users_git() == self.git_before

    def teardown(self) -> None:
        try:
            # After a failed step the model lags behind: its error must not be hidden by another.
            if hasattr(self, "model") and None not in self._known_ids():
                self._look_closer()
        finally:
            shutil.rmtree(self.base)


_SETTINGS = settings(
    deadline=None,
    stateful_step_count=30,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    database=None,
)


@pytest.mark.needs("fork")
def test_histories() -> None:
    # Shrinking a history takes minutes: a failure here shows it whole, `--long` shrinks.
    bounded = settings(_SETTINGS, max_examples=50, derandomize=True, phases=[Phase.generate])
    run_state_machine_as_test(HistoryMachine, settings=bounded)
    seen = HistoryMachine.seen
    print(f"\n{dict(seen)}")
    assert min(seen[what] for what in ("done", "merged", "conflict", "squashed", "killed")) > 10


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.needs("fork")
@pytest.mark.parametrize("number", range(40))
def test_ten_thousand_histories(number: int) -> None:
    first = int(os.environ.get("HISTORY_SEED", "0"))

    class Seeded(HistoryMachine):
        pass

    run_state_machine_as_test(
        seed(first + number)(Seeded), settings=settings(_SETTINGS, max_examples=250)
    )


def test_scope_of_the_model() -> None:
    """The model's own reading of a scope, which everything above leans on."""
    assert in_scope(b"d/a", (b"d",))
    assert not in_scope(b"da", (b"d",))
    assert in_scope(b"any", ())
