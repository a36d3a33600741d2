"""A server on the real files: what it writes is recorded as it writes it, and taken back whole."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemons import PATIENCE_S, Daemon, daemon_in, until

pytestmark = pytest.mark.needs("linux")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Daemon]:
    """Without a daemon: everything happens in the calling process."""
    with daemon_in(tmp_path) as found:
        found.env["SUBSTRATE_DAEMON"] = "off"
        (found.workspace / "a").write_bytes(b"one\n")
        yield found


#: Waits for a word on its fifo before each step; the fifo is no file that history could know.
#: Between two changes of one step nothing is started: on a busy machine that takes so long that the
#: first of them would be a part by itself. What its last writer is about to close has no word.
SERVER = """
step() { until read -r word < ../steps; do :; done; }
step; echo two >> a; echo first > made/f
step; mv made/f made/g; echo more >> made/g
step
"""


def serve(here: Daemon, *options: str) -> tuple[Any, Path]:
    steps = here.workspace.parent / "steps"
    os.mkfifo(steps)
    (here.workspace / "made").mkdir()
    return here.start("run", "--live", *options, "--", "sh", "-c", SERVER), steps


def log(here: Daemon) -> list[dict[str, Any]]:
    """Oldest first, the baseline left out."""
    done = here.run("log", "--json")
    if done.returncode != 0:
        return []
    return list(reversed(json.loads(done.stdout)["commands"]))[1:]


def tree(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and ".substrate-git" not in path.parts
    }


def went_well(here: Daemon, *words: str) -> None:
    done = here.run(*words)
    assert done.returncode == 0, done.stderr


def test_parts_while_it_runs_and_one_command_in_the_end(here: Daemon) -> None:
    before = tree(here.workspace)
    server, steps = serve(here)
    steps.write_text("1\n")
    until(lambda: len(log(here)) == 1, "the first part")
    assert server.poll() is None
    assert log(here)[0]["changed_files"] == ["a", "made/f"]
    steps.write_text("2\n")
    until(lambda: len(log(here)) == 2, "the second part")
    steps.write_text("3\n")
    assert server.communicate(timeout=PATIENCE_S)[1] == b""
    first, second, whole = log(here)
    assert second["changed_files"] == ["made/f", "made/g"]
    assert whole["changed_files"] == ["a", "made/g"]
    assert first["command"] == second["command"] == whole["command"]
    assert (second["part"], second["part_of"]) == (2, whole["command_id"])
    assert whole["parts"] == 2
    assert b"none since its last part" in here.run("show", "@").stdout
    assert f"2 of {whole['command_id']}" in here.run("show", second["command_id"]).stdout.decode()

    span = here.completed()[-1]
    assert span["command_id"] == whole["command_id"]
    assert (span["changed_files"], span["parts"]) == (["a", "made/g"], 2)
    assert span["substrate_git_commit"] == second["substrate_git_commit"]
    assert "look like its own" in span["isolation"]["reason"]
    shown = here.run("log").stdout.decode()
    assert f"(part 2 of {whole['command_id']})" in shown
    sessions = json.loads(here.run("session", "list", "--json").stdout)["sessions"]
    assert [one["commands"] for one in sessions] == [1]
    [diff] = [json.loads(here.run("diff", "@", "--json").stdout)]
    assert {f["path"]: f["change"] for f in diff["files"]} == {"a": "modified", "made/g": "added"}

    after = tree(here.workspace)
    went_well(here, "undo")
    assert tree(here.workspace) == before
    went_well(here, "redo")
    assert tree(here.workspace) == after
    went_well(here, "undo", second["command_id"])
    assert tree(here.workspace) == {"a": b"one\ntwo\n", "made/f": b"first\n"}
    went_well(here, "fsck")


def test_what_others_did_in_between_stays_when_it_is_undone(here: Daemon) -> None:
    server, steps = serve(here)
    steps.write_text("1\n")
    until(lambda: len(log(here)) == 1, "the first part")
    went_well(here, "-c", "echo other > other; echo zero > head; cat a >> head")
    steps.write_text("2\n")
    until(lambda: len(log(here)) == 3, "the second part")
    steps.write_text("3\n")
    server.communicate(timeout=PATIENCE_S)
    live = log(here)[-1]
    went_well(here, "undo", live["command_id"])
    assert tree(here.workspace) == {
        "a": b"one\n", "other": b"other\n", "head": b"zero\none\ntwo\n",
    }  # fmt: skip


def test_one_path_of_it(here: Daemon) -> None:
    server, steps = serve(here)
    steps.write_text("1\n")
    until(lambda: len(log(here)) == 1, "the first part")
    steps.write_text("2\n")
    until(lambda: len(log(here)) == 2, "the second part")
    steps.write_text("3\n")
    server.communicate(timeout=PATIENCE_S)
    went_well(here, "undo", "--path", "made")
    assert tree(here.workspace) == {"a": b"one\ntwo\n"}
    went_well(here, "undo", "--path", "a")
    assert tree(here.workspace) == {"a": b"one\n"}
    assert here.run("undo").returncode == 4, "nothing is left of it"


def test_a_recorder_that_is_killed_leaves_what_was_recorded(here: Daemon) -> None:
    server, steps = serve(here)
    steps.write_text("1\n")
    until(lambda: len(log(here)) == 1, "the first part")
    os.kill(server.pid, signal.SIGKILL)
    server.communicate(timeout=PATIENCE_S)
    (here.workspace / "late").write_bytes(b"before the next call\n")
    went_well(here, "-c", "true")
    part, whole, _ = log(here)
    assert (part["changed_files"], whole["exit"]) == (["a", "made/f"], None)
    assert whole["changed_files"] == ["a", "late", "made/f"]
    went_well(here, "undo", whole["command_id"])
    assert tree(here.workspace) == {"a": b"one\n"}


def test_without_a_watcher_everything_is_recorded_at_the_end(here: Daemon) -> None:
    server, steps = serve(here)
    steps.write_text("1\n")
    until(lambda: len(log(here)) == 1, "the first part")
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
    own = Path(f"/proc/{server.pid}/cmdline").read_bytes()
    [watching] = [p for p in children if Path(f"/proc/{p}/cmdline").read_bytes() == own]
    os.kill(int(watching), signal.SIGKILL)
    steps.write_text("2\n")
    until((here.workspace / "made/g").exists, "its second step")
    steps.write_text("3\n")
    assert server.communicate(timeout=PATIENCE_S)[1] == b""
    assert server.returncode == 0
    part, whole = log(here)
    assert part["changed_files"] == ["a", "made/f"]
    assert whole["changed_files"] == ["a", "made/g"]
    assert here.completed()[-1]["parts"] == 1


def test_a_command_that_changes_nothing(here: Daemon) -> None:
    went_well(here, "run", "--live", "--", "true")
    span = here.completed()[-1]
    assert (span["parts"], span["changed_files"], span["substrate_git_commit"]) == (0, [], None)
    assert here.run("undo").returncode == 4


def test_through_the_daemon_it_is_not_taken_for_an_outside_edit(tmp_path: Path) -> None:
    with daemon_in(tmp_path) as daemon:
        daemon.serve()
        server, steps = serve(daemon)
        steps.write_text("1\n")
        until(lambda: len(log(daemon)) == 1, "the first part")
        steps.write_text("2\n")
        until(lambda: len(log(daemon)) == 2, "the second part")
        steps.write_text("3\n")
        server.communicate(timeout=PATIENCE_S)
        assert [entry["kind"] for entry in log(daemon)] == ["command"] * 3
