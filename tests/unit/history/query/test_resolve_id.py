"""What an id names: every kind of it, prefixes, ambiguity, and after compaction."""

from __future__ import annotations

import pytest

from substrate.errors import AmbiguousError, NotFoundError, UsageError
from substrate.history.query.resolve_id import Target, resolve
from tests.unit.history.workbench import Bench


def find(bench: Bench, text: str, session: str | None = None) -> Target:
    with bench.store() as store:
        return resolve(store, text, session)


def found_entry(bench: Bench, text: str, session: str | None = None) -> str:
    entry = find(bench, text, session).entry
    assert entry is not None
    return entry.command_id


def shortest(bench: Bench, name: str) -> str:
    """The first of its beginnings that means one thing: of one moment, only the ends differ."""
    for length in range(3, len(name)):
        try:
            find(bench, name[:length])
        except AmbiguousError:
            continue
        return name[:length]
    return name


def test_a_command_by_id_prefix_span_commit_and_tag(bench: Bench) -> None:
    bench.run({"a": b"0"}, session="s")
    one = bench.run({"a": b"1"}, session="s")
    bench.checkpoint("s")
    assert one.span_id is not None
    assert one.commit is not None
    names = (
        one.command_id, shortest(bench, one.command_id), one.span_id,
        shortest(bench, one.span_id), one.commit.hex(), one.commit.hex()[:12],
        "cp/task/s/1", "refs/tags/cp/task/s/1",
    )  # fmt: skip
    for name in names:
        assert found_entry(bench, name) == one.command_id, name


def test_an_ambiguous_prefix_lists_the_candidates(bench: Bench) -> None:
    ids = [bench.run({"a": b"%d" % n}).command_id for n in range(3)]
    with pytest.raises(AmbiguousError) as caught:
        find(bench, "c-")
    assert all(command_id in caught.value.message for command_id in ids)
    assert "more characters" in caught.value.hint
    for n in range(12):
        bench.run({"a": b"more %d" % n})
    with pytest.raises(AmbiguousError) as caught:
        find(bench, "c-")
    assert caught.value.message.endswith("…"), "a long list is cut"


def test_an_exact_id_wins_over_those_it_is_a_prefix_of(bench: Bench) -> None:
    bench.run({"a": b"0"}, session="fix")
    bench.run({"a": b"1"}, session="fix-more")
    target = find(bench, "fix")
    assert target.session is not None
    assert target.session.session_id == "fix"


@pytest.mark.parametrize("text", ["", "c-nobody", "zzz", "ffff", "refs/heads/main", "s-", "%", "'"])
def test_what_is_not_there(bench: Bench, text: str) -> None:
    bench.run({"a": b"0"}, session="one")
    with pytest.raises(NotFoundError) as caught:
        find(bench, text)
    assert caught.value.hint
    assert not isinstance(caught.value, AmbiguousError)


def test_sessions_by_id_and_prefix(bench: Bench) -> None:
    bench.run({"a": b"0"}, session="refactor")
    for name in ("refactor", "refa"):
        target = find(bench, name)
        assert target.session is not None
        assert target.session.session_id == "refactor"


class TestRelative:
    def test_counts_only_commands_of_the_session(self, bench: Bench) -> None:
        first = bench.run({"a": b"1"}, session="s")
        bench.run({"b": b"1"}, session="other")
        bench.outside({"c": b"mine"})
        second = bench.run({"a": b"2"}, session="s")
        bench.undo(session="s")
        idle = bench.run({}, session="s")
        bench.redo(session="s")
        assert found_entry(bench, "@", "s") == idle.command_id
        assert found_entry(bench, "@~0", "s") == idle.command_id
        assert found_entry(bench, "@~1", "s") == second.command_id
        assert found_entry(bench, "@~2", "s") == first.command_id
        with pytest.raises(NotFoundError):
            find(bench, "@~3", "s")

    def test_without_a_session_the_most_recently_active_counts(self, bench: Bench) -> None:
        bench.run({"a": b"1"}, session="one")
        two = bench.run({"a": b"2"}, session="two")
        assert found_entry(bench, "@") == two.command_id
        one = bench.run({"a": b"3"}, session="one")
        assert found_entry(bench, "@") == one.command_id

    def test_after_compaction_too(self, bench: Bench) -> None:
        ids = [bench.run({"a": b"%d" % n}, session="s").command_id for n in range(4)]
        bench.close("s")
        bench.run({"z": b"1"}, session="later")
        bench.compact(sessions=1)
        assert found_entry(bench, "@", "s") == ids[-1]
        assert found_entry(bench, "@~3", "s") == ids[0]

    @pytest.mark.parametrize("text", ["@~", "@~x", "@1", "@~-1", "@@"])
    def test_what_is_no_such_word(self, bench: Bench, text: str) -> None:
        bench.run({"a": b"1"})
        with pytest.raises(NotFoundError):
            find(bench, text)

    def test_before_any_command(self, bench: Bench) -> None:
        bench.settle()
        with pytest.raises(NotFoundError, match="no session has been recorded"):
            find(bench, "@")


def test_recovery_refs_by_their_names(bench: Bench) -> None:
    bench.run({"a": b"1"})
    outcome = bench.undo()
    assert outcome.recovery_ref is not None
    assert outcome.entry is not None
    target = find(bench, outcome.recovery_ref)
    assert target.recovery == outcome.recovery_ref
    assert find(bench, outcome.recovery_ref[:-2]).recovery == outcome.recovery_ref
    assert found_entry(bench, outcome.entry.command_id) == outcome.entry.command_id
    assert target.commit is not None
    assert find(bench, target.commit.hex()).recovery == outcome.recovery_ref


class TestTags:
    def test_session_tags(self, bench: Bench) -> None:
        bench.run({"a": b"0"}, session="s")
        last = bench.run({"a": b"1"}, session="s")
        bench.close("s")
        assert found_entry(bench, "cp/session/s/closed") == last.command_id

    @pytest.mark.parametrize("tag", ["cp/task/s/9", "cp/session/s/squashed", "cp/task/nobody/1"])
    def test_that_are_not_there(self, bench: Bench, tag: str) -> None:
        bench.run({"a": b"1"}, session="s")
        with pytest.raises(NotFoundError):
            find(bench, tag)

    def test_that_are_none(self, bench: Bench) -> None:
        bench.run({"a": b"1"}, session="s")
        with pytest.raises(UsageError):
            find(bench, "cp/task/s/first")


def test_after_compaction_every_id_names_what_holds_it_now(bench: Bench) -> None:
    old = [bench.run({"a": b"%d" % n}, session="old") for n in range(4)]
    bench.close("old")
    new = bench.run({"b": b"1"}, session="new")
    assert new.commit is not None
    bench.compact(sessions=1)
    target = find(bench, old[1].command_id)
    assert target.entry is not None
    assert target.holder is not None
    assert target.holder.kind == "squash"
    assert target.present == target.holder
    for entry in old:
        assert entry.commit is not None
        for name in (entry.command_id, entry.span_id or "", entry.commit.hex()[:16]):
            assert find(bench, name).present == target.holder, name
    moved = find(bench, new.commit.hex())
    assert moved.present.command_id == new.command_id
    assert moved.present.commit != new.commit, "what follows a squash has a new parent"


def test_after_being_compacted_twice(bench: Bench) -> None:
    first = [bench.run({"a": b"%d" % n}, session="s") for n in range(3)]
    bench.checkpoint("s")
    bench.run({"a": b"x"}, session="s")
    bench.compact(checkpoints=0)
    more = bench.run({"a": b"y"}, session="s")
    bench.close("s")
    bench.run({"z": b"1"}, session="later")
    bench.compact(sessions=1)
    for entry in (*first, more):
        assert entry.commit is not None
        for name in (entry.command_id, entry.commit.hex()):
            holder = find(bench, name).present
            assert holder.kind == "squash"
            assert holder.squashed_into is None, "followed to the end"
