"""``from substrate import History``, as the PRD spells it."""

from __future__ import annotations

from pathlib import Path

import pytest

from substrate import History
from substrate.errors import NotFoundError, UsageError
from tests.unit.history.workbench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "project")


def test_the_whole_round(bench: Bench) -> None:
    history = History(bench.root, agent_id="ada")
    bench.outside({"a": b"0"})
    history.init_repo()
    history.init_repo()
    assert bench.kinds() == ["baseline"]

    bench.outside({"a": b"1"})
    done = history.record_command_result(
        session_id="s-1", command_id="c-mine", changed_paths=["a"], summary="edit", exit_code=2
    )
    assert (done.command_id, done.changed_files) == ("c-mine", 1)
    assert done.commit is not None
    entry = bench.entry("c-mine")
    assert (entry.exit, entry.command, entry.agent_id) == (2, "edit", "ada")

    mark = history.mark_checkpoint(session_id="s-1")
    assert (mark.tag, mark.commit) == ("cp/task/s-1/1", done.commit)

    bench.outside({"a": b"2"})
    history.record_command_result(session_id="s-1")
    history.rollback_last_command(session_id="s-1")
    assert bench.read("a") == b"1"

    closed = history.mark_session_closed(session_id="s-1")
    assert closed.tag == "cp/session/s-1/closed"
    bench.outside({"a": b"3"})
    history.record_command_result(session_id="s-2")
    history.rollback_to_session(session_id="s-1")
    assert bench.read("a") == b"1"


def test_nothing_changed(bench: Bench) -> None:
    history = History(bench.root)
    history.init_repo()
    done = history.record_command_result(session_id="s-1")
    assert (done.commit, done.changed_files) == (None, 0)


def test_ids_are_given_once(bench: Bench) -> None:
    history = History(bench.root)
    history.record_command_result(session_id="s-1", command_id="c-1")
    with pytest.raises(UsageError, match="taken"):
        history.record_command_result(session_id="s-1", command_id="c-1")


def test_names_are_checked(bench: Bench) -> None:
    with pytest.raises(UsageError):
        History(bench.root).record_command_result(session_id="a/b")


def test_a_session_that_is_not_there(bench: Bench) -> None:
    history = History(bench.root)
    history.init_repo()
    with pytest.raises(NotFoundError):
        history.rollback_last_command(session_id="nobody")
    with pytest.raises(NotFoundError):
        history.mark_session_closed(session_id="nobody")


def test_compaction(bench: Bench) -> None:
    history = History(bench.root)
    history.init_repo()
    for n in range(4):
        bench.outside({"a": b"%d" % n})
        history.record_command_result(session_id="s-1")
        if n % 2:
            history.mark_checkpoint(session_id="s-1")
    assert (
        len(history.compact_checkpoints(retention_checkpoints_per_session=1).decision.ranges) == 1
    )
    history.mark_session_closed(session_id="s-1")
    bench.outside({"a": b"x"})
    history.record_command_result(session_id="s-2")
    assert len(history.compact_sessions(retention_sessions=1).decision.ranges) == 1
