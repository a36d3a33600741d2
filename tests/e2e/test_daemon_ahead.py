"""The agent's next process waits with a world made ahead: commands get it, and nothing else of it
can be told from outside; whatever is killed, nothing of it is left."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.agents import Agent, agent_in, pids_with, until

pytestmark = pytest.mark.needs("linux", "world-overlay")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """One that has served a command, and so knows what the next may need."""
    with agent_in(tmp_path) as started:
        started.serve()
        assert started.run("-c", "true").returncode == 0
        _until_ahead(started)
        yield started


def _until_ahead(agent: Agent) -> Path:
    """Until one is made: it takes a moment, and somebody's mount may put an end to it."""
    for _ in range(60):
        for _ in range(50):
            found = _ahead(agent)
            if found is not None:
                return found
            time.sleep(0.02)
        agent.run("-c", "true")
    raise AssertionError("no world is made ahead")


def _ahead(agent: Agent) -> Path | None:
    for path in agent.worlds():
        if path.name.startswith("ahead-") and (path / "work" / "work").exists():
            return path
    return None


def _children(agent: Agent) -> list[int]:
    text = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text()
    return [int(pid) for pid in text.split()]


def _state(agent: Agent) -> dict[str, object]:
    said = agent.state()
    assert said is not None
    return said


def test_commands_get_it_and_are_recorded_as_ever(agent: Agent) -> None:
    for number in range(6):
        _until_ahead(agent)
        done = agent.run("-c", f"cat file; echo {number} > file; exit {number}")
        assert done.returncode == number
        assert done.stdout == (b"" if number == 0 else b"%d\n" % (number - 1))
    assert int(str(_state(agent)["ahead"])) >= 2
    assert [span["exit"] for span in agent.completed()][-6:] == list(range(6))
    assert [span["fs_diff"]["mods"] for span in agent.completed()][-5:] == [
        [str(agent.workspace / "file")]
    ] * 5


def _odd() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (123, 123))
    os.nice(1)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def test_a_command_is_alone_in_it(agent: Agent) -> None:
    """What kept the memory of the process that it was made of is gone, and was never its child."""
    # What is about to go may take its time.
    alone = "until set -- /proc/[0-9]*; [ $# -le 2 ]; do sleep 0.1; done"
    line = f"{alone}; echo $@; cat /proc/$$/task/$$/children; :"
    for _ in range(20):  # somebody's mount may put an end to one
        _until_ahead(agent)
        before = _state(agent)["ahead"]
        ran = agent.run("-c", line)
        if _state(agent)["ahead"] != before:
            break
    # Its init, and itself; then the `cat` that tells.
    names, children = ran.stdout.splitlines()
    assert len(names.split()) == 2
    assert len(children.split()) == 1


def test_who_was_started_by_posix_spawn_gets_it(agent: Agent) -> None:
    """libc leaves two signals of its own ignored then."""
    null = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0)
    quiet = [null, (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
    words = ["sh", "-c", 'cd "$1"; shift; exec "$@"', "sh", str(agent.workspace)]
    for _ in range(20):
        _until_ahead(agent)
        before = _state(agent)["ahead"]
        _until_ahead(agent)
        argv = [*words, *agent.program, "-c", "true"]
        pid = os.posix_spawnp("sh", argv, agent.env, file_actions=quiet, setsid=True)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        if _state(agent)["ahead"] != before:
            return
    raise AssertionError("never")


def _in_the_background() -> None:
    """As `command &` in a script, and `nohup`."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def test_who_ignores_signals_gets_it_and_so_do_they_stay(agent: Agent) -> None:
    line = ["bash", "-c", "grep SigIgn /proc/self/status"]
    bare = subprocess.run(line, stdout=subprocess.PIPE, preexec_fn=_in_the_background, check=True)
    for _ in range(20):
        _until_ahead(agent)
        before = _state(agent)["ahead"]
        _until_ahead(agent)
        assert agent.run("-c", line[2], preexec_fn=_in_the_background).stdout == bare.stdout
        if _state(agent)["ahead"] != before:
            return
    raise AssertionError("never")


def test_who_has_other_limits_does_not_get_it(agent: Agent) -> None:
    line = "ulimit -n; nice; grep SigIgn /proc/self/status"
    plain = agent.run("-c", line).stdout.split()
    _until_ahead(agent)
    odd = agent.run("-c", line, preexec_fn=_odd).stdout.split()
    assert odd[0] == b"123"
    assert int(odd[1]) == min(int(plain[1]) + 1, 19)
    assert int(odd[3], 16) == int(plain[3], 16) | 1


def test_another_workspace_does_not_get_it(agent: Agent, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    _until_ahead(agent)
    done = agent.run("-c", "pwd; echo there > file", cwd=other)
    assert (done.returncode, done.stdout) == (0, f"{other}\n".encode())
    assert (other / "file").read_text() == "there\n"


def _have_one_at_once(agents: list[Agent]) -> bool:
    """After a command in each; not if somebody mounts something just then."""
    for agent in agents:
        assert agent.run("-c", "true").returncode == 0
    for _ in range(50):
        if all(_ahead(agent) is not None for agent in agents):
            return True
        time.sleep(0.02)
    return False


def test_each_of_several_workspaces_has_one(agent: Agent, tmp_path: Path) -> None:
    others = [Agent(tmp_path, tmp_path / name) for name in ("one", "two", "three")]
    for other in others:
        other.workspace.mkdir()
        (other.workspace / "below").mkdir()
        assert other.run("-c", "true").returncode == 0
    assert any(_have_one_at_once(others) for _ in range(60))
    for other in others:
        done = other.run("-c", "pwd", cwd=other.workspace / "below")
        assert done.stdout == f"{other.workspace / 'below'}\n".encode()
    until(lambda: not agent.worlds(), "the end of the fourth, which was asked for longest ago")


def _until_history_is_open(agent: Agent) -> None:
    ledger = str(agent.workspace / ".substrate-git" / "index" / "history.db")

    def is_open() -> bool:
        _until_ahead(agent)
        try:
            return any(
                os.readlink(one) == ledger
                for pid in _children(agent)
                for one in Path(f"/proc/{pid}/fd").iterdir()
            )
        except OSError:  # gone meanwhile
            return False

    until(is_open, "a history that is open")


def _without_agent(agent: Agent, *words: str) -> None:
    assert agent.run(*words, env={**agent.env, "SUBSTRATE_AGENT": "off"}).returncode == 0


def _entries(agent: Agent) -> list[str]:
    said = json.loads(agent.run("log", "--json").stdout)
    return [str(one["command"]) for one in said["commands"]]


def test_a_history_that_others_write_to_meanwhile(agent: Agent) -> None:
    _until_history_is_open(agent)
    _without_agent(agent, "-c", "echo other > other")
    assert agent.run("-c", "echo mine >> other").returncode == 0
    assert (agent.workspace / "other").read_text() == "other\nmine\n"
    assert _entries(agent)[:2] == ["echo mine >> other", "echo other > other"]


def test_a_history_that_is_put_aside_meanwhile_is_not_written_to(agent: Agent) -> None:
    _until_history_is_open(agent)
    _without_agent(agent, "history", "reset", "--yes")
    assert agent.run("-c", "echo new > file").returncode == 0
    assert _entries(agent) == ["echo new > file", "baseline"]


def test_settings_that_were_changed_meanwhile_count(agent: Agent) -> None:
    _until_history_is_open(agent)
    settings = agent.workspace / ".substrate-git" / "config.toml"
    settings.write_text("[exclude]\nmax_file_mib = 0\n")
    assert agent.run("-c", "echo more > file").returncode == 0
    assert agent.completed()[-1]["changed_files"] == []


def test_it_goes_with_the_agent(agent: Agent) -> None:
    _until_ahead(agent)
    assert agent.run("agent", "stop").returncode == 0
    until(lambda: not pids_with(f"SUBSTRATE_SOCKET={agent.socket}"), "the end of all")
    assert agent.worlds() == []


def test_it_goes_with_a_killed_agent(agent: Agent) -> None:
    _until_ahead(agent)
    os.kill(agent.pid, signal.SIGKILL)
    until(lambda: not pids_with(f"SUBSTRATE_SOCKET={agent.socket}"), "the end of all")
    assert agent.worlds() == []


def test_killed_itself_it_is_cleared_away_after_the_next_command(agent: Agent) -> None:
    left = _until_ahead(agent)
    for child in _children(agent):
        os.kill(child, signal.SIGKILL)
    done = agent.run("-c", "echo fine > file")
    assert (done.returncode, done.stderr) == (0, b"")
    until(lambda: not left.exists(), "its end")
    assert (agent.workspace / "file").read_text() == "fine\n"
    assert agent.run("world", "list", "--json").stdout.count(b"wld_") == 0


def _listening(agent: Agent) -> int:
    """The process that waits at the door in the agent's place; 0 while there is none."""
    name = f".door.sock.{agent.pid}"
    doors = {
        words[6]
        for line in Path("/proc/net/unix").read_text().splitlines()
        if (words := line.split())[-1].endswith(name) and words[3] == "00010000"
    }
    wanted = {f"socket:[{inode}]" for inode in doors}
    assert wanted, "nobody listens"
    for pid in _children(agent):
        try:
            if {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()} & wanted:
                return pid
        except OSError:
            continue  # it has ended, or one of them is closed
    return 0


def _has_ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def _until_one_listens(agent: Agent) -> int:
    for _ in range(20):
        _until_ahead(agent)
        for _ in range(50):
            if found := _listening(agent):
                return found
            time.sleep(0.02)
        agent.run("-c", "true")
    raise AssertionError("none listens")


def test_the_next_one_answers_the_door_itself(agent: Agent) -> None:
    served = int(str(_state(agent)["served"]))
    for number in range(3):
        waiting = _until_one_listens(agent)
        done = agent.run("-c", f"echo {number} > file; exit {number}")
        assert done.returncode == number
        until(partial(_has_ended, waiting), "the end of the one that took it")
    # The three, and each question about the state.
    assert int(str(_state(agent)["served"])) >= served + 4
    assert agent.completed()[-1]["exit"] == 2


def test_it_tells_what_the_agent_knows(agent: Agent) -> None:
    waiting = _until_one_listens(agent)
    said = agent.run("agent", "status", "--json", cwd=agent.workspace)
    state = json.loads(said.stdout)
    assert (state["pid"], state["running"]) == (agent.pid, True)
    assert state["pid"] != waiting


def test_a_caller_from_elsewhere_is_passed_on(agent: Agent, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for _ in range(3):
        _until_one_listens(agent)
        done = agent.run("-c", "pwd; echo x > here", cwd=elsewhere)
        assert (done.returncode, done.stdout.strip()) == (0, os.fsencode(elsewhere))
        assert agent.run("-c", "pwd").stdout.strip() == os.fsencode(agent.workspace)


def test_the_one_that_listens_may_be_killed(agent: Agent) -> None:
    for _ in range(3):
        os.kill(_until_one_listens(agent), signal.SIGKILL)
        assert agent.run("-c", "echo fine > file").returncode == 0
    assert agent.serves()


def test_nobody_listens_once_the_agent_is_killed(agent: Agent) -> None:
    """A command that goes on must not keep the door open: callers would wait for ever."""
    _until_one_listens(agent)
    running = agent.start("-c", "sleep 3; echo done > file")
    until(agent.runners, "the command")
    os.kill(agent.pid, signal.SIGKILL)
    name = f".door.sock.{agent.pid}"
    until(lambda: name not in Path("/proc/net/unix").read_text(), "the end of the door")
    assert running.wait() in (0, 125)
