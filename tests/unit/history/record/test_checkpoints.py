from __future__ import annotations

import subprocess

import pytest

from substrate.errors import NotFoundError, UsageError
from substrate.history.record import checkpoints
from substrate.recorder import checkpoints_sessions
from tests.unit.history.workbench import Bench


def test_numbers_run_per_session(bench: Bench) -> None:
    bench.run({"a": b"1"}, session="one")
    assert bench.checkpoint("one").seq == 1
    assert bench.checkpoint("two").seq == 1
    assert bench.checkpoint("one", "done").seq == 2
    with bench.store() as store:
        found = checkpoints.of_session(store.ledger)
        assert [(c.session_id, c.seq) for c in found] == [("one", 1), ("two", 1), ("one", 2)]
        assert [c.message for c in checkpoints.of_session(store.ledger, "one")] == ["", "done"]


def test_the_tag_is_there_for_git(bench: Bench) -> None:
    one = bench.run({"a": b"1"}, session="s")
    mark = bench.checkpoint("s")
    assert mark.tag == "cp/task/s/1"
    git_dir = bench.root / ".substrate-git/.git"
    shown = subprocess.run(
        ["git", f"--git-dir={git_dir}", "rev-parse", mark.tag], capture_output=True, check=True
    )
    assert one.commit is not None
    assert shown.stdout.decode().strip() == one.commit.hex() == mark.commit.hex()


def test_what_was_edited_outside_before_it_is_part_of_it(bench: Bench) -> None:
    bench.run({"a": b"1"}, session="s")
    bench.outside({"a": b"mine"})
    bench.checkpoint("s")
    bench.run({"a": b"agent"}, session="s")
    bench.roll_back(checkpoint="s/1")
    assert bench.read("a") == b"mine"


def test_before_any_command_it_marks_the_baseline(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    mark = bench.checkpoint()
    [baseline] = bench.log()
    assert (baseline.kind, baseline.commit) == ("baseline", mark.commit)
    assert bench.run({"a": b"1"}).session_id == mark.session_id


def test_a_number_that_is_taken(bench: Bench) -> None:
    checkpoints_sessions.mark_checkpoint(bench.place("s"), seq=7)
    assert bench.checkpoint("s").seq == 8
    with pytest.raises(UsageError, match="already has a checkpoint 7"):
        checkpoints_sessions.mark_checkpoint(bench.place("s"), seq=7)


def test_it_goes_to_the_open_session_that_was_active_last(bench: Bench) -> None:
    agents = bench.run({"a": b"1"}, agent="agent")
    assert bench.checkpoint().session_id == agents.session_id
    bench.close(agents.session_id)
    assert bench.checkpoint().session_id != agents.session_id


@pytest.mark.parametrize("text", ["1", "s/1", "cp/task/s/1", "refs/tags/cp/task/s/1"])
def test_the_names_it_answers_to(bench: Bench, text: str) -> None:
    bench.run({"a": b"1"}, session="s")
    bench.checkpoint("s")
    with bench.store() as store:
        assert checkpoints.resolve(store, text, None).seq == 1


def test_names_of_none(bench: Bench) -> None:
    bench.run({"a": b"1"}, session="s")
    with bench.store() as store:
        with pytest.raises(UsageError, match="not a checkpoint"):
            checkpoints.resolve(store, "first", None)
        with pytest.raises(NotFoundError) as caught:
            checkpoints.resolve(store, "s/1", None)
        assert "none" in caught.value.hint
