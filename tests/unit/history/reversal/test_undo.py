"""Undo and redo: walking back and forth, one command, one file, one session."""

from __future__ import annotations

import pytest

from substrate.errors import ConflictError, NotFoundError, RefusedError
from tests.unit.history.workbench import Bench, Dir, Link, Mode


def test_undo_undo_redo_redo(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    bench.run({"a": b"1"})
    bench.run({"a": b"2", "b": b"new"})
    after = bench.tree()
    bench.undo()
    assert bench.read("a") == b"1"
    assert not (bench.root / "b").exists()
    bench.undo()
    assert bench.read("a") == b"0"
    bench.redo()
    assert bench.read("a") == b"1"
    bench.redo()
    assert bench.tree() == after
    assert bench.kinds() == ["baseline", "command", "command", "undo", "undo", "redo", "redo"]


def test_undo_after_redo_takes_the_same_command_back(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    bench.run({"a": b"1"})
    bench.run({"a": b"2"})
    for _ in range(3):
        bench.undo()
        assert bench.read("a") == b"1"
        bench.redo()
        assert bench.read("a") == b"2"
    bench.undo()
    bench.undo()
    assert bench.read("a") == b"0"


def test_a_command_between_undo_and_redo_does_not_confuse_them(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    bench.run({"a": b"1"})
    bench.undo()
    bench.run({"b": b"x"})
    bench.redo()
    assert (bench.read("a"), bench.read("b")) == (b"1", b"x")
    bench.undo()
    assert not (bench.root / "b").exists(), "the newest command not undone is the one that made b"
    bench.undo()
    assert bench.read("a") == b"0"


def test_commands_that_changed_nothing_are_passed_over(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    bench.run({"a": b"1"})
    bench.run({})
    bench.run({})
    bench.undo()
    assert bench.read("a") == b"0"


def test_a_command_in_the_middle(bench: Bench) -> None:
    bench.outside({"a": b"0", "b": b"0"})
    middle = bench.run({"a": b"1"})
    bench.run({"b": b"1"})
    outcome = bench.undo(middle.command_id)
    assert (bench.read("a"), bench.read("b")) == (b"0", b"1")
    assert outcome.restored == [b"a"]
    assert outcome.recovery_ref


def test_later_edits_of_the_same_file_are_merged(bench: Bench) -> None:
    lines = [b"line %d\n" % n for n in range(20)]
    bench.outside({"a": b"".join(lines)})
    one = bench.run({"a": b"".join([b"agent\n", *lines[1:]])})
    bench.outside({"a": b"".join([b"agent\n", *lines[1:-1], b"mine\n"])})
    outcome = bench.undo(one.command_id)
    assert bench.read("a") == b"".join([*lines[:-1], b"mine\n"])
    assert outcome.merged == [b"a"]


class TestConflicts:
    def collide(self, bench: Bench) -> str:
        bench.outside({"a": b"0\n", "b": b"0\n"})
        one = bench.run({"a": b"1\n", "b": b"1\n"})
        bench.outside({"a": b"mine\n"})
        return one.command_id

    def test_change_nothing_at_all(self, bench: Bench) -> None:
        command_id = self.collide(bench)
        before = bench.tree()
        with pytest.raises(ConflictError) as caught:
            bench.undo(command_id)
        assert caught.value.paths == ("a",)
        assert "--take" in caught.value.hint
        assert bench.tree() == before
        assert bench.kinds() == ["baseline", "command", "external"]

    def test_take_ours(self, bench: Bench) -> None:
        command_id = self.collide(bench)
        outcome = bench.undo(command_id, take="ours")
        assert (bench.read("a"), bench.read("b")) == (b"mine\n", b"0\n")
        assert (outcome.restored, outcome.kept) == ([b"b"], (b"a",))
        with pytest.raises(RefusedError, match="but for what was left because of a conflict: a"):
            bench.undo(command_id)
        bench.redo()
        assert (bench.read("a"), bench.read("b")) == (b"mine\n", b"1\n")

    def test_take_ours_of_every_path_takes_nothing_back(self, bench: Bench) -> None:
        """Seen: the command counted as undone, and `redo` redid an earlier undo."""
        bench.outside({"a": b"0\n", "b": b"0\n"})
        bench.run({"b": b"1\n"})
        bench.undo()
        one = bench.run({"a": b"1\n"})
        bench.outside({"a": b"mine\n"})
        outcome = bench.undo(one.command_id, take="ours")
        assert (outcome.entry, outcome.kept) == (None, (b"a",))
        assert bench.kinds()[-1] == "external"
        bench.undo(one.command_id, take="theirs")
        bench.redo()
        assert (bench.read("a"), bench.read("b")) == (b"mine\n", b"0\n")

    def test_what_is_already_taken_back_counts_as_undone(self, bench: Bench) -> None:
        bench.outside({"a": b"0\n"})
        one = bench.run({"a": b"1\n"})
        bench.outside({"a": b"0\n"})
        outcome = bench.undo(one.command_id, take="ours")
        assert outcome.entry is not None and not outcome.kept
        with pytest.raises(RefusedError, match="already undone"):
            bench.undo(one.command_id)

    def test_take_theirs_and_get_ours_back(self, bench: Bench) -> None:
        outcome = bench.undo(self.collide(bench), take="theirs")
        assert (bench.read("a"), bench.read("b")) == (b"0\n", b"0\n")
        assert (outcome.restored, outcome.merged) == ([b"a", b"b"], [])
        assert outcome.recovery_ref is not None
        bench.restore(outcome.recovery_ref, "a")
        assert (bench.read("a"), bench.read("b")) == (b"mine\n", b"0\n")

    def test_skip(self, bench: Bench) -> None:
        outcome = bench.undo(self.collide(bench), skip_conflicts=True)
        assert (bench.read("a"), bench.read("b")) == (b"mine\n", b"0\n")
        assert list(outcome.conflicts) == [b"a"]

    def test_a_binary_file_changed_since(self, bench: Bench) -> None:
        bench.outside({"a": b"\0one"})
        one = bench.run({"a": b"\0two"})
        bench.outside({"a": b"\0mine"})
        with pytest.raises(ConflictError):
            bench.undo(one.command_id)
        assert bench.read("a") == b"\0mine"
        bench.undo(one.command_id, take="theirs")
        assert bench.read("a") == b"\0one"

    def test_a_file_the_user_deleted(self, bench: Bench) -> None:
        bench.outside({"a": b"0"})
        one = bench.run({"a": b"1"})
        bench.outside({"a": None})
        with pytest.raises(ConflictError):
            bench.undo(one.command_id)
        assert not (bench.root / "a").exists()


class TestPaths:
    def test_a_path_then_plain_undo_takes_the_rest(self, bench: Bench) -> None:
        bench.outside({"a": b"0", "b": b"0", "d/c": b"0"})
        bench.run({"a": b"1"}, command="earlier")
        one = bench.run({"a": b"2", "b": b"2", "d/c": b"2"})
        bench.undo(one.command_id, "b")
        assert [bench.read(n) for n in ("a", "b", "d/c")] == [b"2", b"0", b"2"]
        bench.undo()
        assert [bench.read(n) for n in ("a", "b", "d/c")] == [b"1", b"0", b"0"]
        bench.undo()
        assert bench.read("a") == b"0"

    def test_all_paths_one_by_one_count_as_undone(self, bench: Bench) -> None:
        bench.outside({"z": b"0"})
        bench.run({"z": b"1"})
        one = bench.run({"a": b"2", "d/b": b"2"})
        bench.undo(one.command_id, "a")
        bench.undo(one.command_id, "d")
        bench.undo()
        assert bench.read("z") == b"0", "nothing of the newer command was left to take back"

    def test_a_directory_covers_what_is_below(self, bench: Bench) -> None:
        bench.outside({"d/x": b"0", "d/y": b"0", "dx": b"0"})
        one = bench.run({"d/x": b"1", "d/y": b"1", "dx": b"1"})
        bench.undo(one.command_id, "d")
        assert [bench.read(n) for n in ("d/x", "d/y", "dx")] == [b"0", b"0", b"1"]

    def test_redo_of_a_path_undo_brings_that_path_back(self, bench: Bench) -> None:
        bench.outside({"a": b"0", "b": b"0"})
        one = bench.run({"a": b"1", "b": b"1"})
        bench.undo(one.command_id, "a")
        bench.redo()
        assert (bench.read("a"), bench.read("b")) == (b"1", b"1")
        bench.undo()
        assert (bench.read("a"), bench.read("b")) == (b"0", b"0")

    def test_one_that_the_command_did_not_change(self, bench: Bench) -> None:
        bench.outside({"a": b"0", "b": b"0"})
        one = bench.run({"a": b"1"})
        with pytest.raises(NotFoundError) as caught:
            bench.undo(one.command_id, "b")
        assert "did not change b" in caught.value.message

    def test_one_already_undone(self, bench: Bench) -> None:
        bench.outside({"a": b"0", "b": b"0"})
        one = bench.run({"a": b"1", "b": b"1"})
        bench.undo(one.command_id, "a")
        with pytest.raises(RefusedError, match="already undone"):
            bench.undo(one.command_id, "a")

    def test_a_path_below_a_directory_already_undone(self, bench: Bench) -> None:
        bench.outside({"d/a": b"0", "b": b"0"})
        one = bench.run({"d/a": b"1", "b": b"1"})
        bench.undo(one.command_id, "d")
        with pytest.raises(RefusedError, match="already undone"):
            bench.undo(one.command_id, "d/a")

    def test_an_undo_that_skipped_everything_has_undone_nothing(self, bench: Bench) -> None:
        bench.outside({"a": b"0\n"})
        one = bench.run({"a": b"1\n"})
        bench.outside({"a": b"mine\n"})
        outcome = bench.undo(skip_conflicts=True)
        assert (outcome.entry, list(outcome.conflicts)) == (None, [b"a"])
        assert bench.log()[0].kind == "external"
        assert bench.undo(take="theirs").undone == (one.seq,)
        assert bench.read("a") == b"0\n"

    def test_a_conflict_that_was_skipped_can_be_settled_later(self, bench: Bench) -> None:
        bench.outside({"a": b"0\n", "b": b"0\n"})
        one = bench.run({"a": b"1\n", "b": b"1\n"})
        bench.outside({"a": b"mine\n"})
        bench.undo(one.command_id, skip_conflicts=True)
        with pytest.raises(RefusedError, match="left because of a conflict: a$") as caught:
            bench.undo(one.command_id)
        assert f"substrate undo {one.command_id} --path" in caught.value.hint
        bench.undo(one.command_id, "a", take="theirs")
        assert (bench.read("a"), bench.read("b")) == (b"0\n", b"0\n")


class TestRefusals:
    def test_already_undone(self, bench: Bench) -> None:
        bench.outside({"a": b"0"})
        one = bench.run({"a": b"1"})
        bench.undo(one.command_id)
        with pytest.raises(RefusedError, match="already undone") as caught:
            bench.undo(one.command_id)
        assert "redo" in caught.value.hint

    def test_nothing_to_undo(self, bench: Bench) -> None:
        bench.outside({"a": b"0"})
        bench.run({})
        with pytest.raises(NotFoundError, match="nothing to undo"):
            bench.undo()
        bench.run({"a": b"1"})
        bench.undo()
        with pytest.raises(NotFoundError, match="nothing to undo"):
            bench.undo()

    def test_nothing_to_redo(self, bench: Bench) -> None:
        bench.run({"a": b"1"})
        with pytest.raises(NotFoundError, match="nothing to redo"):
            bench.redo()
        bench.undo()
        bench.redo()
        with pytest.raises(NotFoundError, match="nothing to redo"):
            bench.redo()

    def test_a_command_without_changes(self, bench: Bench) -> None:
        one = bench.run({})
        with pytest.raises(NotFoundError, match="changed no files"):
            bench.undo(one.command_id)

    def test_the_baseline(self, bench: Bench) -> None:
        bench.outside({"a": b"0"})
        bench.run({"a": b"1"})
        baseline = bench.log()[-1]
        with pytest.raises(RefusedError, match="baseline"):
            bench.undo(baseline.command_id)
        assert bench.read("a") == b"1"

    def test_a_recovery_ref(self, bench: Bench) -> None:
        bench.run({"a": b"1"})
        ref = bench.undo().recovery_ref
        with pytest.raises(RefusedError) as caught:
            bench.undo(ref)
        assert "recover restore" in caught.value.hint


class TestSessions:
    def test_a_whole_session_goes_and_comes_back(self, bench: Bench) -> None:
        bench.outside({"a": b"0", "b": b"0", "c": b"0"})
        bench.run({"a": b"1"}, session="one")
        bench.run({"b": b"2"}, session="two")
        bench.run({"a": b"3", "d/new": b"3"}, session="one")
        bench.outside({"c": b"mine"})
        bench.undo("one")
        assert [bench.read(n) for n in "abc"] == [b"0", b"2", b"mine"]
        assert not (bench.root / "d").exists()
        bench.redo(session="one")
        assert [bench.read(n) for n in "abc"] == [b"3", b"2", b"mine"]

    def test_after_that_nothing_of_it_is_left_to_undo(self, bench: Bench) -> None:
        bench.run({"a": b"1"}, session="one")
        bench.run({"a": b"2"}, session="one")
        bench.undo("one")
        with pytest.raises(NotFoundError, match="nothing to undo"):
            bench.undo(session="one")

    def test_partly_undone_before(self, bench: Bench) -> None:
        bench.outside({"a": b"0", "b": b"0"})
        bench.run({"a": b"1"}, session="one")
        bench.run({"b": b"1"}, session="one")
        bench.undo(session="one")
        bench.undo("one")
        assert (bench.read("a"), bench.read("b")) == (b"0", b"0")

    def test_one_that_changed_nothing(self, bench: Bench) -> None:
        bench.run({}, session="idle")
        with pytest.raises(NotFoundError, match="changed nothing"):
            bench.undo("idle")

    def test_plain_undo_names_the_session_that_was_active_last(self, bench: Bench) -> None:
        bench.outside({"a": b"0", "b": b"0"})
        bench.run({"a": b"1"}, session="person")
        bench.run({"b": b"1"}, session="agent")
        bench.undo()
        assert (bench.read("a"), bench.read("b")) == (b"1", b"0")
        bench.undo(session="person")
        assert (bench.read("a"), bench.read("b")) == (b"0", b"0")


def test_outside_edits_can_be_undone_by_id_only(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    bench.run({"a": b"1"})
    bench.outside({"a": b"mine"})
    outside = bench.settle()
    assert outside is not None
    bench.undo(outside.command_id)
    assert bench.read("a") == b"1"


def test_kinds_modes_and_links_come_back(bench: Bench) -> None:
    bench.outside(
        {
            "secret": Mode(0o600, b"k"), "run": Mode(0o755, b"#!"), "odd": Mode(0o641, b"x"),
            "link": Link("secret"), "empty": Dir(0o700), "file": b"f", "d/e/f": b"deep",
        }
    )  # fmt: skip
    (bench.root / "d").chmod(0o711)
    bench.run({})
    before = bench.tree()
    bench.run(
        {
            "secret": Mode(0o644, b"K"), "run": Mode(0o644), "odd": None, "link": b"file now",
            "empty": None, "file": Dir(), "d": b"flat",
        }
    )  # fmt: skip
    bench.undo()
    assert bench.tree() == before
    bench.redo()
    bench.undo()
    assert bench.tree() == before


def test_a_dry_run_changes_and_records_nothing(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    bench.run({"a": b"1", "b": b"1"})
    before, log = bench.tree(), bench.log()
    outcome = bench.undo(dry_run=True)
    assert outcome.restored == [b"a"]
    assert outcome.deleted == [b"b"]
    assert len(outcome.plan.describe()) == 2
    assert bench.tree() == before
    assert bench.log() == log


def test_a_dry_run_shows_conflicts_instead_of_failing(bench: Bench) -> None:
    bench.outside({"a": b"0\n"})
    one = bench.run({"a": b"1\n"})
    bench.outside({"a": b"mine\n"})
    assert list(bench.undo(one.command_id, dry_run=True).conflicts) == [b"a"]


def test_already_as_wished_is_noted_so_that_the_next_undo_goes_further(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    bench.run({"a": b"1"})
    bench.run({"a": b"2"})
    bench.outside({"a": b"1"})
    outcome = bench.undo()
    assert outcome.entry is not None
    assert outcome.entry.commit is None
    bench.undo()
    assert bench.read("a") == b"0"
