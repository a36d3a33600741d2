"""Scopes: which entries are meant, and that only their changes are shown and taken back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from substrate.errors import NotFoundError, RefusedError, UsageError
from substrate.history.query import Scope, scopes
from substrate.history.reversal import Choice, Outcome
from substrate.history.store import HistoryStore
from substrate.recorder import queries, reversals
from tests.unit.history.workbench import Bench

Find = Callable[[HistoryStore], Scope]
AGENT = "claude-code"


def ids_of(bench: Bench, find: Find) -> list[str]:
    """Oldest first."""
    with bench.store() as store:
        return [entry.command_id for entry in reversed(find(store).entries)]


def take_back(bench: Bench, find: Find) -> Outcome:
    return reversals.undo_scope(bench.place(), find, Choice())


def changed(bench: Bench, find: Find) -> list[bytes]:
    with bench.store() as store, store.rehearsing("diff"):
        found = queries.scope_diff(store, find(store), ())
        return [change.path for change in found.files] if found else []


def in_range(text: str, session: str | None = None) -> Find:
    return lambda store: scopes.of_range(store, text, session)


def since(text: str, session: str | None = None) -> Find:
    return lambda store: scopes.since(store, text, session)


def test_a_range_is_after_the_first_up_to_the_second(bench: Bench) -> None:
    made = [bench.run({f"{n}.txt": b"x\n"}).command_id for n in range(4)]
    bench.outside({"typed.txt": b"mine\n"})
    bench.settle()
    find = in_range(f"{made[0]}..{made[2]}")
    assert ids_of(bench, find) == made[1:3]
    assert ids_of(bench, in_range(f"{made[1]}..")) == made[2:]
    assert changed(bench, find) == [b"1.txt", b"2.txt"]
    take_back(bench, find)
    assert sorted(bench.tree()) == [b"0.txt", b"3.txt", b"typed.txt"]
    bench.redo()
    assert len(bench.tree()) == 5


def test_the_ends_of_a_range_in_the_wrong_order_are_named(bench: Bench) -> None:
    one, two = bench.run({"a": b"1"}).command_id, bench.run({"a": b"2"}).command_id
    with pytest.raises(UsageError, match="older than the first") as told:
        ids_of(bench, in_range(f"{two}..{one}"))
    assert f"{one}..{two}" in str(told.value.hint)


@pytest.mark.parametrize("text", ["../x", "a/../b", "x", "..", "a../b"])
def test_paths_are_no_ranges(text: str) -> None:
    assert not scopes.is_range(text)


def test_since_a_command_a_checkpoint_and_a_time(bench: Bench) -> None:
    first = bench.run({"a": b"1"})
    checkpoint = bench.checkpoint()
    second = bench.run({"b": b"1"})
    for text in (first.command_id, str(checkpoint.seq), checkpoint.tag, "1h"):
        found = ids_of(bench, since(text))
        assert found[-1] == second.command_id
        assert (first.command_id in found) == (text == "1h")
    assert ids_of(bench, since("2999-01-01T00:00")) == []


def test_since_something_unknown_says_how_a_time_is_written(bench: Bench) -> None:
    bench.run({"a": b"1"})
    with pytest.raises(NotFoundError) as told:
        ids_of(bench, since("yesterday"))
    assert "90m" in str(told.value.hint)
    with pytest.raises(UsageError, match="not a time"):
        ids_of(bench, since("2026-13-41"))


def test_one_agent_of_two(bench: Bench) -> None:
    start = bench.run({"start": b"x"}).command_id
    mine = bench.run({"mine": b"x"}).command_id
    theirs = bench.run({"theirs": b"x"}, session="s-two", agent=AGENT).command_id

    def find(store: HistoryStore) -> Scope:
        return scopes.by_agent(store, scopes.since(store, start, None), AGENT)

    assert ids_of(bench, find) == [theirs]
    assert ids_of(bench, since(start)) == [mine, theirs]
    assert ids_of(bench, since(start, "s-two")) == [theirs]
    take_back(bench, find)
    assert sorted(bench.tree()) == [b"mine", b"start"]


def test_outside_edits_alone(bench: Bench) -> None:
    bench.run({"a.txt": b"1\n2\n3\n4\n5\n"})
    bench.outside({"a.txt": b"1\n2\n3\n4\nfive\n"})
    bench.run({"a.txt": b"one\n2\n3\n4\nfive\n"})
    with bench.store() as store, store.rehearsing("diff"):
        found = queries.scope_diff(store, scopes.external(store, None, None), ())
        assert found is not None
        text = store.git.diff_text(found.old_tree, found.new_tree)
    lines = [line for line in text.splitlines() if line[:1] in (b"+", b"-")]
    assert lines[2:] == [b"-5", b"+five"]


def test_a_command_and_its_undo_in_one_range_cancel(bench: Bench) -> None:
    start = bench.run({"a": b"1"}).command_id
    bench.run({"a": b"2"})
    bench.undo()
    bench.run({"b": b"1"})
    assert changed(bench, since(start)) == [b"b"]
    take_back(bench, since(start))
    assert (bench.read("a"), sorted(bench.tree())) == (b"1", [b"a"])
    with pytest.raises(RefusedError, match="already undone"):
        take_back(bench, since(start))
    bench.redo()
    assert (bench.read("a"), sorted(bench.tree())) == (b"1", [b"a", b"b"])


def test_what_is_undone_already_is_refused(bench: Bench) -> None:
    start = bench.run({"a": b"1"}).command_id
    last = bench.run({"a": b"2"}).command_id
    bench.undo()
    with pytest.raises(RefusedError, match="already undone"):
        take_back(bench, in_range(f"{start}..{last}"))
    assert bench.read("a") == b"1"


def test_commands_that_are_squashed_name_what_holds_them(bench: Bench) -> None:
    made = [bench.run({"a": str(n).encode()}).command_id for n in range(4)]
    bench.close()
    for n in range(3):
        bench.run({f"later-{n}": b"x"}, session=f"s-{n}")
        bench.close()
    bench.compact(1, 1)
    with pytest.raises(RefusedError, match="no longer kept on") as told:
        take_back(bench, in_range(f"{made[1]}..{made[3]}"))
    assert "substrate " in str(told.value.hint)
