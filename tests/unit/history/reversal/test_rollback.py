"""Rollback: to a command, a checkpoint, a session's end; merged, exact, or in scope."""

from __future__ import annotations

import pytest

from substrate.errors import ConflictError, NotFoundError, RefusedError
from tests.unit.history.workbench import Bench, Dir, Mode

LINES = b"".join(b"line %d\n" % n for n in range(20))


def test_to_a_command_keeps_it_and_takes_back_what_followed(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    one = bench.run({"a": b"1"})
    bench.run({"a": b"2", "b": b"2"})
    bench.run({"c": b"3"})
    outcome = bench.roll_back(to=one.command_id)
    assert sorted(bench.tree()) == [b"a"]
    assert bench.read("a") == b"1"
    assert (outcome.restored, outcome.deleted) == ([b"a"], [b"b", b"c"])
    assert bench.log()[0].kind == "rollback"


def test_to_a_command_that_changed_nothing(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    bench.run({"a": b"1"})
    idle = bench.run({})
    bench.run({"a": b"2"})
    bench.roll_back(to=idle.command_id)
    assert bench.read("a") == b"1"


def test_to_the_baseline(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    bench.run({"a": b"1"})
    bench.run({"b": b"1"})
    bench.roll_back(to=bench.log()[-1].command_id)
    assert bench.read("a") == b"0"
    assert not (bench.root / "b").exists()


def test_to_a_checkpoint_others_work_stays_merged(bench: Bench) -> None:
    bench.outside({"a": LINES, "b": b"0", "c": b"0"})
    bench.run({"b": b"1"}, session="agent")
    mark = bench.checkpoint("agent")
    agents = LINES.replace(b"line 0\n", b"agent\n")
    bench.run({"a": agents, "new": b"agent"}, session="agent")
    bench.outside({"a": agents.replace(b"line 9\n", b"mine\n")})
    bench.run({"c": b"other"}, session="other")
    bench.run({"b": b"2"}, session="agent")
    bench.roll_back(checkpoint=f"agent/{mark.seq}")
    assert bench.read("a") == LINES.replace(b"line 9\n", b"mine\n")
    assert bench.read("b") == b"1"
    assert bench.read("c") == b"other"
    assert not (bench.root / "new").exists()


def test_a_checkpoint_before_any_command_is_the_baseline(bench: Bench) -> None:
    bench.outside({"a": b"0", ".env": Mode(0o600, b"k")})
    mark = bench.checkpoint()
    assert (mark.seq, bench.kinds()) == (1, ["baseline"])
    before = bench.tree()
    bench.run({"a": b"1", ".env": None, "d/x": b"1"})
    bench.roll_back(checkpoint="1")
    assert bench.tree() == before


def test_to_a_checkpoint_twice_and_redo(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    bench.checkpoint("s")
    bench.run({"a": b"1"}, session="s")
    bench.run({"b": b"1"}, session="s")
    done = bench.tree()
    bench.roll_back(checkpoint="s/1")
    again = bench.roll_back(checkpoint="s/1")
    assert again.restored == again.deleted == []
    assert bench.read("a") == b"0"
    bench.redo(session="s")
    assert bench.tree() == done
    with pytest.raises(NotFoundError, match="nothing to redo"):
        bench.redo(session="s")


def test_to_a_sessions_end_takes_back_everybodys_commands_since(bench: Bench) -> None:
    bench.outside({"a": b"0", "b": b"0", "c": b"0"})
    bench.run({"a": b"1"}, session="one")
    bench.close("one")
    bench.run({"a": b"2"}, session="two")
    bench.outside({"c": b"mine"})
    bench.run({"b": b"3"}, session="three")
    bench.roll_back(session="one")
    assert [bench.read(n) for n in "abc"] == [b"1", b"0", b"mine"]


def test_to_the_end_of_a_session_that_is_open(bench: Bench) -> None:
    bench.run({"a": b"1"}, session="one")
    with pytest.raises(RefusedError) as caught:
        bench.roll_back(session="one")
    assert "session close" in caught.value.hint
    assert bench.read("a") == b"1"


class TestExact:
    def test_the_whole_tree_as_it_was(self, bench: Bench) -> None:
        bench.outside({"a": b"0", "d/b": Mode(0o600, b"0"), "empty": Dir(0o700)})
        one = bench.run({"a": b"1"})
        wanted = bench.tree()
        bench.run({"a": b"2", "empty": None})
        bench.outside({"mine": b"m", "d/b": None, "a": b"3"})
        before = bench.tree()
        outcome = bench.roll_back(to=one.command_id, exact=True)
        assert bench.tree() == wanted
        assert outcome.recovery_ref is not None
        bench.restore(outcome.recovery_ref)
        assert bench.tree() == before

    def test_redo_of_it(self, bench: Bench) -> None:
        bench.outside({"a": b"0"})
        one = bench.run({"a": b"1"})
        bench.outside({"mine": b"m"})
        before = bench.tree()
        bench.roll_back(to=one.command_id, exact=True)
        bench.redo()
        assert bench.tree() == before

    def test_in_scope(self, bench: Bench) -> None:
        bench.outside({"a": b"0", "b": b"0"})
        one = bench.run({"c": b"1"})
        bench.outside({"a": b"mine", "b": b"mine"})
        bench.roll_back("a", to=one.command_id, exact=True)
        assert (bench.read("a"), bench.read("b")) == (b"0", b"mine")


def test_paths_in_scope_only(bench: Bench) -> None:
    bench.outside({"src/a": b"0", "src/b": b"0", "doc": b"0"})
    bench.checkpoint("s")
    bench.run({"src/a": b"1", "src/b": b"1", "doc": b"1"}, session="s")
    bench.roll_back("src", checkpoint="1", session="s")
    assert [bench.read(n) for n in ("src/a", "src/b", "doc")] == [b"0", b"0", b"1"]
    bench.roll_back(checkpoint="1", session="s")
    assert bench.read("doc") == b"0"


def test_a_conflict_changes_nothing_and_can_be_decided(bench: Bench) -> None:
    bench.outside({"a": b"0\n", "b": b"0\n"})
    bench.checkpoint("s")
    bench.run({"a": b"1\n", "b": b"1\n"}, session="s")
    bench.outside({"a": b"mine\n"})
    before = bench.tree()
    with pytest.raises(ConflictError):
        bench.roll_back(checkpoint="s/1")
    assert bench.tree() == before
    bench.roll_back(checkpoint="s/1", take="ours")
    assert (bench.read("a"), bench.read("b")) == (b"mine\n", b"0\n")


def test_a_dry_run_changes_nothing(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    one = bench.run({})
    bench.run({"a": b"1"})
    before, log = bench.tree(), bench.log()
    assert bench.roll_back(to=one.command_id, dry_run=True).restored == [b"a"]
    assert (bench.tree(), bench.log()) == (before, log)


def test_points_that_are_not_there(bench: Bench) -> None:
    bench.run({"a": b"1"}, session="s")
    bench.checkpoint("s")
    with pytest.raises(NotFoundError) as caught:
        bench.roll_back(checkpoint="s/7")
    assert "its checkpoints: 1" in caught.value.hint
    with pytest.raises(NotFoundError):
        bench.roll_back(to="c-nobody")
    with pytest.raises(NotFoundError):
        bench.roll_back(session="nobody")


def test_to_a_recovery_ref_says_what_to_do_instead(bench: Bench) -> None:
    bench.run({"a": b"1"})
    ref = bench.undo().recovery_ref
    with pytest.raises(RefusedError) as caught:
        bench.roll_back(to=ref)
    assert "recover restore" in caught.value.hint


def test_undone_commands_in_the_range_are_no_trouble(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    bench.checkpoint("s")
    bench.run({"a": b"1"}, session="s")
    bench.run({"b": b"1"}, session="s")
    bench.undo(session="s")
    bench.undo(session="s")
    bench.redo(session="s")
    bench.roll_back(checkpoint="s/1")
    assert sorted(bench.tree()) == [b"a"]
    assert bench.read("a") == b"0"
    with pytest.raises(NotFoundError, match="nothing to undo"):
        bench.undo(session="s")
