"""A command in parts: one thing for undo, rollback and compaction, whatever came in between."""

from __future__ import annotations

import pytest

from substrate.errors import NotFoundError, RefusedError
from substrate.history.record import live_parts, record_entry
from substrate.history.store.ledger import Entry
from substrate.model.nodes import ABSENT, Change, Kind, Node
from substrate.model.paths import RelPath
from tests.unit.history.workbench import Bench, Edit


def live(bench: Bench, *steps: Edit, rest: Edit, session: str = "s-live") -> Entry:
    """A live command that makes these edits, each recorded, and at last the rest."""
    with bench.writing() as store:
        running = record_entry.begin(
            store, session=session, agent_id="ada", command="serve", exact="serve", is_live=True
        )
    for number, step in enumerate(steps, 1):
        bench.outside(step)
        with bench.writing() as store:
            suspects = {RelPath(name.encode()): True for name in step}
            assert live_parts.record_part(store, running, number, suspects)
            assert not live_parts.record_part(store, running, number + 1, suspects), "nothing new"
    bench.outside(rest)
    with bench.writing() as store:
        return record_entry.finish(store, running, record_entry.Result(0, 1, {})).entry


def test_all_of_it_is_taken_back(bench: Bench) -> None:
    bench.run({"a": b"1\n", "b": b"1\n"}, session="s-live")
    before = bench.tree()
    entry = live(bench, {"a": b"2\n"}, {"b": None, "c": b"3\n"}, rest={"a": b"4\n"})
    assert (entry.detail["parts"], entry.changed_files) == (2, 3)
    bench.undo(entry.command_id)
    assert bench.tree() == before
    with pytest.raises(RefusedError, match="already undone"):
        bench.undo(entry.command_id)
    bench.redo()
    assert bench.read("a") == b"4\n"


def test_nothing_is_left_for_the_end(bench: Bench) -> None:
    bench.run({"a": b"1\n"}, session="s-live")
    entry = live(bench, {"a": b"2\n"}, rest={})
    assert entry.commit is None
    bench.undo()
    assert bench.read("a") == b"1\n"


def test_compaction_that_swallows_it_whole(bench: Bench) -> None:
    bench.run({"a": b"1\n"}, session="s-live")
    entry = live(bench, {"a": b"2\n"}, {"a": b"3\n"}, rest={"a": b"4\n"})
    bench.checkpoint("s-live")
    for number in range(3):
        bench.run({"b": b"%d" % number}, session="s-live")
        bench.checkpoint("s-live")
    bench.close("s-live")
    bench.compact(checkpoints=1, sessions=1)
    assert not bench.fsck()
    with pytest.raises(RefusedError, match="part of"):
        bench.undo(entry.command_id)


def test_parts_that_are_no_longer_there_are_not_left_out_silently(bench: Bench) -> None:
    bench.run({"a": b"1\n"}, session="s-live")
    entry = live(bench, {"a": b"2\n"}, rest={"b": b"1\n"})
    with bench.writing() as store, store.commit_point() as ledger:
        entry = ledger.add_detail(entry, parts=2)
    with pytest.raises(RefusedError, match="no longer kept on their own"):
        bench.undo(entry.command_id)
    assert bench.read("a") == b"2\n"


def test_a_path_that_it_did_not_touch(bench: Bench) -> None:
    bench.run({"a": b"1\n"}, session="s-live")
    entry = live(bench, {"a": b"2\n"}, rest={})
    with pytest.raises(NotFoundError, match="did not change b"):
        bench.undo(entry.command_id, "b")


def test_changes_one_after_another_are_one() -> None:
    def node(text: bytes) -> Node:
        return Node(Kind.FILE, 0o644, text.rjust(20, b"0"))

    a, b = RelPath(b"a"), RelPath(b"b")
    steps = [
        [Change(a, node(b"1"), node(b"2")), Change(b, ABSENT, node(b"1"))],
        [Change(a, node(b"2"), node(b"3")), Change(b, node(b"1"), ABSENT)],
    ]
    assert live_parts.together(steps) == [Change(a, node(b"1"), node(b"3"))]
