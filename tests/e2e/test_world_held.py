"""Worlds that wait, as a user meets them: held, crashed, detached."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.contract.program import Program
from tests.daemons import until

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


def test_show_says_what_became_of_a_held_change(program: Program) -> None:
    world_id = held(program)
    command = program.json("show")["command_id"]
    text = program("show", command).went_well().text
    assert "nothing changed" not in text
    assert "not applied: asked for with --hold" in text
    for verb in ("diff", "apply", "discard"):
        assert f"substrate world {verb} {world_id}\n" in text
    assert program.json("show", command)["held_state"] == "held"
    program("world", "discard", "@").went_well()
    assert "discarded  its change is not in your files" in program("show", command).text
    assert program.json("show", command)["held_state"] == "discarded"
    applied = program.json("world", "apply", command[:-2])["command_id"]
    assert f"UTC, as {applied}\n" in program("show", command).text
    assert program.json("show", command)["applied_as"] == applied
    assert f"applied for  {command}\n" in program("show", applied).text
    assert "held" not in program("show", program.json("log")["commands"][-2]["command_id"]).text


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
    assert "no held worlds" in program("world", "list").went_well().errors
    assert (program.cwd / "a").read_text() == "1\n"
    program("world", "discard", world_id).went_well()
    assert list((program.cwd / ".substrate-git" / "worlds").iterdir()) == []
    program("world", "apply", world_id).is_clear(4)


def test_what_was_discarded_can_be_applied_until_it_expires(program: Program) -> None:
    world_id = held(program)
    said = program("world", "discard", world_id).went_well().text
    assert f"substrate world apply {world_id}" in said
    (listed,) = program.json("world", "list", "--discarded")["worlds"]
    assert (listed["world_id"], listed["state"]) == (world_id, "discarded")
    assert "2" in program("world", "diff", world_id).went_well().text
    program("compact").went_well()  # it is younger than the trash may be
    assert marks(program)[0] == "discarded"
    program("world", "apply", world_id).went_well()
    assert not any("discarded" in mark for mark in marks(program))
    assert (program.cwd / "a").read_text() == "2\n"
    assert program.json("world", "list", "--discarded")["worlds"] == []
    other = held(program)
    program("world", "discard", other).went_well()
    (program.cwd / ".substrate-git" / "config.toml").write_text("[trash]\nmax_age_days = 0\n")
    program("compact").went_well()
    program("world", "apply", other).is_clear(4)
    assert list((program.cwd / ".substrate-git" / "worlds").iterdir()) == []


def test_a_dry_run_lists_what_would_collide(program: Program) -> None:
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
    assert "still running in wld_" in done.errors
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


def test_undo_of_what_still_runs_says_when_it_can_be_taken_back(program: Program) -> None:
    number = program("-c", "sleep 300 > /dev/null 2>&1 & echo $!").went_well().text.strip()
    program("undo").is_clear(5, "left processes running in wld_", "`substrate -c true`")
    program("-c", f"kill {number}").went_well()


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


def test_the_log_shows_what_an_exit_status_does_not(program: Program) -> None:
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


def test_show_lists_the_hosts_reached_and_refused(program: Program) -> None:
    line = (
        "import socket; reach = lambda host: socket.socket().connect_ex((host, 9)); "
        "reach('127.0.0.1'); reach('192.0.2.1')"
    )
    program("--net", "off", "run", "--", sys.executable, "-c", line)
    rows = _rows_of(program)
    assert "no answer tcp:127.0.0.1:9" in rows
    assert "refused tcp:192.0.2.1:9" in rows


def entry(program: Program, at: int = 0) -> dict[str, object]:
    found: dict[str, object] = program.json("log")["commands"][at]
    return found


def test_the_log_shows_what_is_still_running_in_the_background(program: Program) -> None:
    go = program.cwd.parent / "go"
    wait = f"until test -e {go}; do sleep 0.05; done"
    program("-c", f"({wait}; echo late > late) > /dev/null 2>&1 & echo now > now").went_well()
    assert marks(program)[0] == "still running in the background"
    assert entry(program)["marks"] == ["still running in the background"]
    go.touch()
    deadline = time.monotonic() + 60
    while marks(program)[0] == "still running in the background":
        assert time.monotonic() < deadline, "it never ended"
        time.sleep(0.05)
    assert marks(program)[0].startswith("ended in the background")
    program("-c", "true").went_well()
    assert not any("background" in mark for mark in marks(program))
    assert (program.cwd / "late").exists()


def test_the_log_shows_a_discarded_world(program: Program) -> None:
    program("world", "discard", held(program)).went_well()
    assert marks(program)[0] == "discarded"
    assert entry(program)["marks"] == ["discarded"]


def test_the_log_shows_which_branch_a_command_moved(program: Program) -> None:
    git = "git -c user.name=u -c user.email=e@x"
    program("-c", "git init -q -b main").went_well()
    program("-c", f"git add a && {git} commit -qm first").went_well()
    assert "moved branch main" in marks(program)[0]
    assert entry(program)["moved_refs"] == ["refs/heads/main"]
    program("-c", "git switch -q -c side").went_well()
    assert "moved branch side" in marks(program)[0] and "switched to side" in marks(program)[0]
    program("-c", "git tag v1").went_well()
    assert "moved tag v1" in marks(program)[0]


def test_show_names_the_branches_that_a_command_moved(program: Program) -> None:
    git = "git -c user.name=u -c user.email=e@x"
    program("-c", "git init -q -b main").went_well()
    oids = []
    for message in ("first", "second"):
        line = f"{git} add a && {git} commit -q --allow-empty -m {message} && git rev-parse HEAD"
        oids.append(program("-c", line).went_well().text.strip()[:10])
    shown = _rows_of(program)
    assert f"moved branch main: {oids[0]} → {oids[1]}" in shown
    assert "commit none: only branches changed" in shown
    program("-c", "git switch -q -c side").went_well()
    assert {f"moved branch side: created at {oids[1]}", "switched to side"} <= _rows_of(program)
    program("-c", "git switch -q main && git branch -q -D side").went_well()
    assert f"moved branch side: removed, was at {oids[1]}" in _rows_of(program)


def _rows_of(program: Program) -> set[str]:
    shown = program("show", "@").went_well().text
    return {" ".join(line.split()) for line in shown.splitlines()}


def test_the_log_shows_excluded_files_alone(program: Program) -> None:
    program("-c", "mkdir node_modules; echo 1 > node_modules/x").went_well()
    assert marks(program)[0].startswith("only excluded: node_modules")
    assert "marks" not in entry(program, 1), "nothing unusual"


@pytest.mark.needs("world-overlay")
def test_a_replay_of_what_was_applied_later_runs_the_command_again(program: Program) -> None:
    world_id = held(program, "echo 2 > a; echo n > new; echo said")
    ran = program.json("log", "--limit", "1")["commands"][0]["command_id"]
    program("replay", ran).is_clear(5, f"`substrate world apply {world_id}`")
    program("world", "apply", world_id).went_well()
    for named in ("@", ran):
        done = program("replay", named, "--json").went_well().document
        assert (done["status"], done["command_id"]) == ("matched", ran), done
    (program.cwd / "a").write_text("1\n")
    (program.cwd / "new").unlink()
    program("--hold", "-c", "date +%N > when").went_well()
    [world] = program.json("world", "list")["worlds"]
    program("world", "apply", world["world_id"]).went_well()
    assert program("replay", "@").status == 1


def at_once(program: Program, *words: str) -> list[subprocess.CompletedProcess[bytes]]:
    """Three such calls, which all wait for the lock before the first one gets it."""
    lock = program.cwd / ".substrate-git/lock"
    argv = [sys.executable, "-m", "substrate", *words]
    env = {**os.environ, "SUBSTRATE_DAEMON": "off", **program.env}
    with lock.open("r+b") as held_lock:
        fcntl.flock(held_lock, fcntl.LOCK_EX)
        started = [
            subprocess.Popen(
                argv, cwd=program.cwd, env=env, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
            for _ in range(3)
        ]  # fmt: skip
        until(lambda: all(_sleeps(one.pid) for one in started), "three that wait")
    ended = [(one, *one.communicate(timeout=120)) for one in started]
    return [subprocess.CompletedProcess(argv, one.returncode, out, err) for one, out, err in ended]


def _sleeps(pid: int) -> bool:
    """Whether it is between two attempts to get the lock: in `clock_nanosleep`."""
    try:
        return Path(f"/proc/{pid}/syscall").read_text().split()[0] in ("230", "115")
    except OSError:
        return False


def test_a_world_is_applied_by_one_of_several_calls_at_once(program: Program) -> None:
    world_id = held(program)
    done = at_once(program, "world", "apply", world_id)
    assert sorted(one.returncode for one in done) == [0, 4, 4], [one.stderr for one in done]
    assert (program.cwd / "a").read_text() == "2\n"
    program("fsck").went_well()


def test_what_outlived_its_command_is_collected_by_one_of_several_at_once(
    program: Program,
) -> None:
    go = program.cwd.parent / "go"
    wait = f"until test -e {go}; do sleep 0.05; done"
    program("-c", f"({wait}; echo late > late) > /dev/null 2>&1 &").went_well()
    [upper] = (program.cwd / ".substrate-git/worlds").glob("*/upper")
    go.touch()
    until((upper / "late").exists, "late")
    done = at_once(program, "-c", "true")
    assert [one.returncode for one in done] == [0, 0, 0], [one.stderr for one in done]
    until(lambda: program("-c", "true").status == 0 and (program.cwd / "late").exists(), "late")
    entries = [one["command"] for one in program.json("log")["commands"]]
    assert sum(one.startswith("world apply") for one in entries) == 1
