"""Which session a command belongs to, and how sessions begin and end."""

from __future__ import annotations

import pytest

from substrate.errors import AmbiguousError, NotFoundError, UsageError
from substrate.history.record import sessions
from substrate.recorder import checkpoints_sessions
from tests.unit.history.conftest import HandClock
from tests.unit.history.workbench import Bench


def session(bench: Bench, session_id: str | None) -> sessions.Session:
    with bench.store() as store:
        found = sessions.find(store.ledger, session_id or "")
    assert found is not None
    return found


class TestAutomatic:
    def test_one_open_per_agent(self, bench: Bench) -> None:
        a1 = bench.run({"a": b"1"}, agent="ada")
        b1 = bench.run({"b": b"1"}, agent="bob")
        a2 = bench.run({"a": b"2"}, agent="ada")
        assert a1.session_id == a2.session_id
        assert a1.session_id != b1.session_id

    def test_closed_after_eight_idle_hours(self, bench: Bench, hand_clock: HandClock) -> None:
        first = bench.run({"a": b"1"})
        hand_clock.move(hours=7.9)
        assert bench.run({"a": b"2"}).session_id == first.session_id
        hand_clock.move(hours=7.9)
        assert bench.run({"a": b"3"}).session_id == first.session_id, "activity counts, not age"
        hand_clock.move(hours=8.1)
        later = bench.run({"a": b"4"})
        assert later.session_id != first.session_id
        closed = session(bench, first.session_id)
        assert closed.closed_ns is not None
        with bench.store() as store:
            assert store.ledger.ref(f"refs/tags/cp/session/{first.session_id}/closed")

    def test_idle_hours_are_a_setting(self, bench: Bench, hand_clock: HandClock) -> None:
        first = bench.run({"a": b"1"})
        (bench.root / ".substrate-git/config.toml").write_text("[session]\nidle_hours = 1\n")
        hand_clock.move(hours=1.5)
        assert bench.run({"a": b"2"}).session_id != first.session_id

    def test_a_clock_that_goes_backwards(self, bench: Bench, hand_clock: HandClock) -> None:
        first = bench.run({"a": b"1"})
        hand_clock.move(hours=-1000)
        second = bench.run({"a": b"2"})
        hand_clock.move(hours=-1000)
        third = bench.run({"a": b"3"})
        assert first.session_id == second.session_id == third.session_id
        assert [e.command_id for e in bench.log()][:3] == [
            third.command_id, second.command_id, first.command_id,
        ]  # fmt: skip
        assert first.command_id < second.command_id < third.command_id, "ids stay in order"
        bench.undo()
        assert bench.read("a") == b"2", "the newest by arrival, not by clock"

    def test_the_latest_session_is_the_last_one_used(
        self, bench: Bench, hand_clock: HandClock
    ) -> None:
        bench.run({"a": b"1"}, session="one")
        hand_clock.move(hours=-5)
        bench.run({"b": b"1"}, session="two")
        with bench.store() as store:
            latest = sessions.latest(store.ledger)
        assert latest is not None
        assert latest.session_id == "two"

    def test_it_ends_when_closed(self, bench: Bench) -> None:
        first = bench.run({"a": b"1"})
        bench.close()
        assert bench.run({"a": b"2"}).session_id != first.session_id


class TestNamed:
    def test_made_on_first_use_and_used_again(self, bench: Bench) -> None:
        bench.run({"a": b"1"}, session="fix-login")
        bench.run({"a": b"2"}, session="fix-login")
        with bench.store() as store:
            assert [s.session_id for s in sessions.all_sessions(store.ledger)] == ["fix-login"]
        assert not session(bench, "fix-login").automatic

    def test_never_closed_for_idleness(self, bench: Bench, hand_clock: HandClock) -> None:
        bench.run({"a": b"1"}, session="slow")
        hand_clock.move(hours=1000)
        bench.run({"a": b"2"})
        assert session(bench, "slow").closed_ns is None

    def test_used_again_after_its_end_it_is_open_again(self, bench: Bench) -> None:
        bench.run({"a": b"1"}, session="s")
        assert bench.close("s").closed_ns is not None
        bench.run({"a": b"2"}, session="s")
        assert session(bench, "s").closed_ns is None
        bench.close("s")
        last = bench.log()[0]
        with bench.store() as store:
            assert store.ledger.ref("refs/tags/cp/session/s/closed") == last.commit

    @pytest.mark.parametrize("name", ["a/b", "-x", "a b", "x" * 65, "a..b"])
    def test_a_name_that_git_could_not_tag(self, bench: Bench, name: str) -> None:
        with pytest.raises(UsageError):
            bench.run({"a": b"1"}, session=name)


class TestStart:
    def test_closes_the_agents_automatic_one(self, bench: Bench) -> None:
        old = bench.run({"a": b"1"})
        begun = checkpoints_sessions.start_session(bench.place(), None)
        assert begun.session_id != old.session_id
        assert session(bench, old.session_id).closed_ns is not None
        assert bench.run({"a": b"2"}).session_id == begun.session_id

    def test_by_name(self, bench: Bench) -> None:
        old = bench.run({"a": b"1"})
        assert checkpoints_sessions.start_session(bench.place(), "mine").session_id == "mine"
        assert session(bench, old.session_id).closed_ns is not None
        assert bench.run({"a": b"2"}).session_id == "mine"

    def test_a_closed_one_is_taken_up_again(self, bench: Bench) -> None:
        bench.run({"a": b"1"}, session="mine")
        bench.close("mine")
        assert bench.run({"a": b"2"}).session_id != "mine"
        assert checkpoints_sessions.start_session(bench.place(), "mine").closed_ns is None
        assert bench.run({"a": b"3"}).session_id == "mine"

    def test_leaves_other_agents_sessions_open(self, bench: Bench) -> None:
        other = bench.run({"a": b"1"}, agent="bob")
        checkpoints_sessions.start_session(bench.place(agent="ada"), None)
        assert session(bench, other.session_id).closed_ns is None


class TestQuestions:
    def test_a_prefix_will_do(self, bench: Bench) -> None:
        bench.run({"a": b"1"}, session="refactor")
        with bench.store() as store:
            assert sessions.resolve(store.ledger, "refa").session_id == "refactor"

    def test_ambiguous_and_unknown(self, bench: Bench) -> None:
        bench.run({"a": b"1"}, session="fix-a")
        bench.run({"a": b"2"}, session="fix-b")
        with bench.store() as store:
            with pytest.raises(AmbiguousError, match="fix-a, fix-b"):
                sessions.resolve(store.ledger, "fix")
            with pytest.raises(NotFoundError):
                sessions.resolve(store.ledger, "nobody")

    def test_closing_without_one(self, bench: Bench) -> None:
        bench.settle()
        with pytest.raises(NotFoundError, match="no session"):
            bench.close()
