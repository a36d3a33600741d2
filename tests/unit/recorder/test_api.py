"""``from substrate import History``, as docs/python.md spells it."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path

import pytest

import substrate
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


def test_only_the_named_paths_are_the_commands(bench: Bench) -> None:
    """The user's file beside them stays when the command is taken back."""
    bench.outside({"src/a": b"0", "mine": b"0"})
    history = History(bench.root)
    history.init_repo()
    bench.outside({"src/a": b"1", "src/new": b"1", "mine": b"by hand", "also": b"by hand"})
    done = history.record_command_result(session_id="s-1", changed_paths=["src"], summary="gen")
    assert done.changed_files == 2
    assert bench.kinds() == ["baseline", "command"]
    history.rollback_last_command(session_id="s-1")
    assert (bench.read("src/a"), bench.read("mine"), bench.read("also")) == (
        b"0", b"by hand", b"by hand",
    )  # fmt: skip
    assert not (bench.root / "src" / "new").exists()
    assert bench.kinds() == ["baseline", "command", "external", "undo"]


def test_named_paths_that_did_not_change(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    history = History(bench.root)
    history.init_repo()
    bench.outside({"b": b"by hand"})
    done = history.record_command_result(session_id="s-1", changed_paths=["a", "gone"])
    assert (done.commit, done.changed_files) == (None, 0)
    assert history.record_command_result(session_id="s-1", changed_paths=[]).commit is None
    with pytest.raises(UsageError, match="outside the workspace"):
        history.record_command_result(session_id="s-1", changed_paths=["/etc/passwd"])


def test_a_removed_file_and_a_name_that_is_not_text(bench: Bench) -> None:
    bench.outside({"a": b"0", "b": b"0"})
    history = History(bench.root)
    history.init_repo()
    bench.outside({"a": None})
    with open(os.path.join(os.fsencode(bench.root), b"\xff"), "wb") as file:
        file.write(b"n")
    done = history.record_command_result(session_id="s-1", changed_paths=["a", b"\xff"])
    assert done.changed_files == 2
    history.rollback_last_command(session_id="s-1")
    assert bench.tree().keys() == {b"a", b"b"}


@pytest.mark.parametrize("named", [True, False])
def test_it_writes_its_span(bench: Bench, named: bool) -> None:
    bench.outside({"a": b"0"})
    history = History(bench.root, agent_id="ada")
    history.init_repo()
    bench.outside({"a": b"1"})
    done = history.record_command_result(
        session_id="s-1", changed_paths=["a"] if named else None, summary="make", exit_code=3
    )
    spans = [
        json.loads(line) for line in bench.place().environment.trace_path.read_text().splitlines()
    ]
    assert [one["event_type"] for one in spans] == ["command_start", "command_complete"]
    end = spans[1]
    assert (end["command_id"], end["substrate_git_commit"]) == (done.command_id, done.commit)
    assert (end["exit"], end["command"], end["agent_id"]) == (3, "make", "ada")
    assert end["fs_diff"]["mods"] == [str(bench.root / "a")]
    assert end["span_id"] == spans[0]["span_id"] == bench.entry(done.command_id).span_id


def test_the_tag_is_on_the_sessions_own_latest_commit(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    history = History(bench.root)
    history.init_repo()
    bench.outside({"a": b"1"})
    own = history.record_command_result(session_id="s-1", changed_paths=["a"])
    bench.outside({"b": b"1"})
    history.record_command_result(session_id="s-2", changed_paths=["b"])
    bench.outside({"mine": b"by hand"})
    mark = history.mark_checkpoint(session_id="s-1")
    assert mark.commit == own.commit
    with bench.store() as store:
        tag = store.git.run("rev-parse", mark.tag).stdout.decode().strip()
    assert tag == own.commit
    then = bench.tree()
    bench.outside({"a": b"2", "b": b"2", "mine": None})
    history.record_command_result(session_id="s-1")
    # What an exact rollback brings back is the tree at the checkpoint, not at that commit.
    history.rollback_to_checkpoint(session_id="s-1", checkpoint_id=1, exact=True)
    assert bench.tree() == then


def test_everything_public_is_documented_and_exported() -> None:
    page = (Path(__file__).parents[3] / "docs" / "python.md").read_text()
    for name in substrate.__all__:
        if name == "__version__":
            continue
        found = getattr(substrate, name)
        assert found.__doc__, name
        assert f"`{name}" in page, name
    for name, method in vars(History).items():
        if name.startswith("_") or not callable(method):
            continue
        assert method.__doc__, name
        assert f"| `{name}(" in page, name
        answer = inspect.signature(method).return_annotation.rpartition(".")[2]
        if answer not in ("None", "list[str]"):
            known = {getattr(substrate, one).__name__ for one in substrate.__all__ if one[0] != "_"}
            assert answer in known, f"{name} returns {answer}, which cannot be imported"
    fields = {
        *substrate.Outcome._fields, *substrate.CompactionReport._fields,
        *substrate.RecordedCommand._fields, *substrate.MarkedCommit._fields,
    }  # fmt: skip
    assert [field for field in fields if f"`{field}`" not in page] == []
