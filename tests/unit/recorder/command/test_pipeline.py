"""The way of a command, from its words to its place in history and in the trace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from substrate.errors import SubstrateError
from substrate.recorder.command.command_request import CommandRequest, Recording
from substrate.recorder.command.pipeline import record_command
from substrate.recorder.session_context import Place
from substrate.system import environment
from tests.unit.history.workbench import Bench, edit
from tests.unit.recorder.worlds import Acting


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "project")


def do(bench: Bench, world: Acting, line: str = "make", session: str | None = None) -> Recording:
    place = Place.at(bench.root, environment.current(), session, "ada")
    return record_command(place, world, CommandRequest(bench.root, shell=line))


def spans() -> list[dict[str, object]]:
    trace = environment.current().trace_path
    return [json.loads(line) for line in trace.read_text().splitlines()]


def test_what_a_command_changed_is_its_entry(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    done = do(bench, Acting(lambda: edit(bench.root, {"a": b"1", "d/b": b"new"}), 3))
    assert done.entry is not None
    assert (done.entry.exit, done.entry.duration_ms, done.entry.changed_files) == (3, 7, 2)
    assert done.entry.agent_id == "ada"
    start, complete = spans()
    assert (start["event_type"], complete["event_type"]) == ("command_start", "command_complete")
    assert start["span_id"] == complete["span_id"] == done.span_id
    assert done.entry.commit is not None
    assert complete["substrate_git_commit"] == done.entry.commit.hex()
    assert complete["base_commit"] == bench.log()[-1].commit.hex()  # type: ignore[union-attr]


def test_nothing_changed_no_commit(bench: Bench) -> None:
    done = do(bench, Acting())
    assert done.entry is not None
    assert done.entry.commit is None
    assert spans()[-1]["substrate_git_commit"] is None


def test_outside_edits_come_first_and_on_their_own(bench: Bench) -> None:
    do(bench, Acting())
    bench.outside({"mine": b"m"})
    do(bench, Acting(lambda: edit(bench.root, {"theirs": b"t"})))
    assert bench.kinds() == ["baseline", "command", "external", "command"]


def test_a_command_knows_its_session_and_span(bench: Bench) -> None:
    world = Acting()
    done = do(bench, world, session="s-1")
    [request] = world.requests
    assert request.env["SUBSTRATE_SESSION_ID"] == "s-1"
    assert request.env["SUBSTRATE_PARENT_SPAN"] == done.span_id


def test_secrets_stay_out_of_trace_log_and_commits(bench: Bench) -> None:
    secret = "ghp_" + "a1B2" * 9
    do(bench, Acting(lambda: edit(bench.root, {"a": b"1"})), f"curl -H 'Authorization: {secret}' x")
    assert secret not in environment.current().trace_path.read_text()
    assert secret not in bench.log()[0].command
    git_dir = bench.root / ".substrate-git/.git"
    shown = subprocess.run(
        ["git", f"--git-dir={git_dir}", "log", "--format=%B"], capture_output=True, check=True
    )
    assert secret.encode() not in shown.stdout


def test_where_no_history_is_kept_it_runs_and_is_traced(private_environment: Path) -> None:
    place = Place.at(private_environment, environment.current())
    done = record_command(place, Acting(), CommandRequest(private_environment, shell="make"))
    assert done.entry is None
    assert "home" in done.no_history
    assert [s["event_type"] for s in spans()] == ["command_start", "command_complete"]
    assert not (private_environment / ".substrate-git").exists()


def test_two_at_once_name_each_other(bench: Bench) -> None:
    """Without isolation their changes cannot be distinguished; this is reported."""
    inner: list[Recording] = []

    def work() -> None:
        edit(bench.root, {"outer": b"1"})
        inner.append(do(bench, Acting(lambda: edit(bench.root, {"inner": b"1"})), "inner"))

    outer = do(bench, Acting(work), "outer")
    assert outer.entry is not None
    assert inner[0].entry is not None
    assert inner[0].entry.detail["beside"] == [outer.command_id]
    assert sorted(bench.tree()) == [b"inner", b"outer"]
    recorded = sum(entry.changed_files for entry in bench.log() if entry.kind == "command")
    assert recorded == 2, "each change is recorded once"


def test_a_store_that_the_command_removed_starts_over(bench: Bench) -> None:
    do(bench, Acting(lambda: edit(bench.root, {"a": b"1"})))

    def rampage() -> None:
        subprocess.run(["rm", "-rf", str(bench.root / ".substrate-git")], check=True)
        edit(bench.root, {"a": b"2"})

    done = do(bench, Acting(rampage))
    assert any("starts over" in note for note in done.notes)
    assert bench.read("a") == b"2"
    assert bench.fsck() == []


class TestKilled:
    """The recorder dies while the command works: the next call records what it left."""

    def kill_in_the_middle(self, bench: Bench) -> None:
        script = (
            "import os, signal\n"
            "from pathlib import Path\n"
            "from substrate.recorder.session_context import Place\n"
            "from substrate.recorder.command.command_request import CommandRequest\n"
            "from substrate.recorder.command.pipeline import record_command\n"
            "from substrate.system import environment\n"
            "from tests.unit.recorder.worlds import Acting\n"
            f"root = Path({str(bench.root)!r})\n"
            "def act():\n"
            "    (root / 'half').write_bytes(b'1')\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
            "place = Place.at(root, environment.current(), 's-1', 'ada')\n"
            "record_command(place, Acting(act), CommandRequest(root, shell='half done'))\n"
        )
        project = str(Path(__file__).parents[4])
        done = subprocess.run(
            [sys.executable, "-c", script], check=False, env={**os.environ, "PYTHONPATH": project}
        )
        assert done.returncode == -signal.SIGKILL

    def test_it_is_still_the_commands_work(self, bench: Bench) -> None:
        bench.outside({"a": b"0"})
        self.kill_in_the_middle(bench)
        bench.run({"a": b"1"}, session="s-2")
        newest, killed, _ = bench.log()
        assert (killed.kind, killed.command, killed.session_id) == ("command", "half done", "s-1")
        assert killed.detail["outcome"] == "interrupted"
        assert (killed.exit, killed.changed_files) == (None, 1)
        assert newest.changed_files == 1
        bench.undo(killed.command_id)
        assert not (bench.root / "half").exists()

    def test_undo_takes_it_back(self, bench: Bench) -> None:
        self.kill_in_the_middle(bench)
        bench.undo(session="s-1")
        assert not (bench.root / "half").exists()
        assert bench.fsck() == []


def test_a_record_that_fails_is_reported_with_the_commands_status(bench: Bench) -> None:
    do(bench, Acting())

    def spoil() -> None:
        edit(bench.root, {"a": b"1"})
        (bench.root / ".substrate-git/index/history.db").write_bytes(b"garbage" * 1000)

    with pytest.raises(SubstrateError, match=r"the command ran \(exit 4\)") as caught:
        do(bench, Acting(spoil, 4))
    assert caught.value.hint
    assert bench.read("a") == b"1"
