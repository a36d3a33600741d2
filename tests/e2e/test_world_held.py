"""Worlds that wait, as a user meets them: held, crashed, detached."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from tests.contract.program import Program

pytestmark = pytest.mark.needs("overlay", "root")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    project = tmp_path / "project"
    project.mkdir()
    (project / "a").write_text("1\n")
    made = Program(project, {"HOME": str(tmp_path), "SUBSTRATE_HOME": str(tmp_path / "home")})
    made("-c", "true").went_well()
    return made


def held(program: Program, line: str = "echo 2 > a; echo n > new") -> str:
    program("--hold", "-c", line).went_well()
    [world] = program.json("world", "list")["worlds"]
    assert world["state"] == "held"
    return str(world["world_id"])


def test_held_looked_at_and_applied(program: Program) -> None:
    world_id = held(program)
    assert (program.cwd / "a").read_text() == "1\n"
    shown = program.json("world", "diff", world_id)
    assert [(f["path"], f["change"]) for f in shown["files"]] == [
        ("a", "modified"), ("new", "added"),
    ]  # fmt: skip
    assert "+2" in program("world", "diff", world_id).went_well().text
    program("world", "apply", world_id, "--dry-run").went_well()
    assert (program.cwd / "a").read_text() == "1\n"
    answer = program.json("world", "apply", world_id)
    assert (answer["conflicts"], answer["held"]) == ([], "")
    assert (program.cwd / "a").read_text() == "2\n"
    assert program.json("world", "list")["worlds"] == []
    program("undo").went_well()
    assert not (program.cwd / "new").exists()


@pytest.mark.parametrize("line", ["true", "false", "cat a; touch new; rm new; exit 3"])
def test_nothing_to_hold(program: Program, line: str) -> None:
    done = program("--hold", "-c", line)
    assert "changed nothing: no world is held" in done.errors
    assert program.json("world", "list")["worlds"] == []
    assert list((program.cwd / ".substrate-git" / "worlds").iterdir()) == []


def test_held_and_discarded(program: Program) -> None:
    world_id = held(program)
    program("world", "discard", "wld_").is_clear(4)
    program("world", "discard", world_id, "--dry-run").went_well()
    assert program.json("world", "list")["worlds"] != []
    program("world", "discard", world_id).went_well()
    assert program.json("world", "list")["worlds"] == []
    assert "no world waits here" in program("world", "list").went_well().errors
    assert list((program.cwd / ".substrate-git" / "worlds").iterdir()) == []
    assert (program.cwd / "a").read_text() == "1\n"
    program("world", "apply", world_id).is_clear(4)


def test_a_dry_run_tells_what_would_collide(program: Program) -> None:
    program("-c", "seq 0 19 > text").went_well()
    world_id = held(program, "echo 2 > a; echo n > new; sed -i s/^19$/nineteen/ text")
    (program.cwd / "a").write_text("mine\n")
    (program.cwd / "text").write_text("zero\n" + "".join(f"{n}\n" for n in range(1, 20)))
    told = program("world", "apply", world_id, "--dry-run", "--json")
    assert told.status == 1
    answer = json.loads(told.text)
    assert (answer["conflicts"], answer["merged"]) == (["a"], ["text"])
    assert answer["would_be_held"] == ""
    shown = program("world", "apply", world_id, "--dry-run")
    assert "would conflict: a: " in shown.errors and "merged with what others" in shown.errors
    assert (program.cwd / "a").read_text() == "mine\n" and not (program.cwd / "new").exists()
    done = program("world", "apply", world_id, "--json")
    assert json.loads(done.text)["conflicts"] == ["a"]
    assert "nineteen" in (program.cwd / "text").read_text()


def test_a_held_world_collides_with_later_work(program: Program) -> None:
    world_id = held(program)
    (program.cwd / "a").write_text("mine\n")
    done = program("world", "apply", world_id)
    assert done.status == 1
    assert "conflict: a: " in done.errors
    assert (program.cwd / "a").read_text() == "mine\n"
    assert (program.cwd / "new").read_text() == "n\n"


def test_what_outlives_its_command_is_recorded_when_it_ends(program: Program) -> None:
    go = program.cwd.parent / "go"
    wait = f"until test -e {go}; do sleep 0.05; done"
    line = f"({wait}; echo late > late) > /dev/null 2>&1 & echo now > now"
    done = program("-c", line).went_well()
    assert "go on in wld_" in done.errors
    assert (program.cwd / "now").exists()
    assert program.json("trace")["spans"][-1]["outcome"] == "detached"
    [world] = program.json("world", "list")["worlds"]
    assert world["state"] == "detached"
    go.touch()
    deadline = time.monotonic() + 60
    while not (program.cwd / "late").exists():
        assert time.monotonic() < deadline, "it never arrived"
        program("-c", "true").went_well()
    assert (program.cwd / "late").read_text() == "late\n"
    assert program.json("world", "list")["worlds"] == []


def test_a_later_command_of_the_session_ends_what_an_earlier_one_left(program: Program) -> None:
    number = program("-c", "sleep 300 > /dev/null 2>&1 & echo $!").went_well().text.strip()
    seen = program("-c", "ps -eo pid=,args=").went_well().text
    assert f"{number} sleep 300" in seen
    others = program("--session", "another", "-c", "ps -eo args=").went_well().text
    assert "sleep 300" not in others
    program("-c", f"kill {number}").went_well()
    deadline = time.monotonic() + 60
    while program.json("world", "list")["worlds"]:
        assert time.monotonic() < deadline, "the world never ended"
        program("-c", "true").went_well()
    assert list((program.cwd / ".substrate-git" / "worlds").iterdir()) == []


def marks(program: Program) -> list[str]:
    """What `log` says about each entry before its words, newest first; the heading left out."""
    lines = program("log").went_well().text.splitlines()[1:]
    return [line.partition("  (")[2].partition(")")[0] if "  (" in line else "" for line in lines]


def test_the_log_tells_what_an_exit_status_does_not(program: Program) -> None:
    world_id = held(program)
    assert marks(program)[0] == "not applied"
    waiting = program("show", "@").went_well().text
    assert "asked for with --hold" in waiting
    (program.cwd / "a").write_text("3\n")
    program("world", "apply", world_id)
    assert (program.cwd / "a").read_text() == "3\n"
    assert marks(program)[0] == "conflict"
    assert "not applied" not in marks(program)
    assert "conflict" in program("show", "@").went_well().text
    program("--timeout", "1", "-c", "echo late > late; sleep 60")
    assert marks(program)[0] == "timed out"
    program("undo").went_well()
    assert marks(program)[1] == "timed out, undone"


def test_show_tells_what_was_reached_and_refused(program: Program) -> None:
    line = (
        "import socket; reach = lambda host: socket.socket().connect_ex((host, 9)); "
        "reach('127.0.0.1'); reach('192.0.2.1')"
    )
    program("--net", "off", "run", "--", sys.executable, "-c", line)
    shown = program("show", "@").went_well().text
    rows = dict(line.split(maxsplit=1) for line in shown.splitlines())
    assert rows["reached"] == "tcp:127.0.0.1:9"
    assert rows["refused"] == "tcp:192.0.2.1:9"
