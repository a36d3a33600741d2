"""The daemon's next process waits with a world made ahead: commands get it, and it is otherwise
invisible from outside; whichever process is killed, nothing of it is left."""

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

from tests.daemons import Daemon, daemon_in, pids_with, until

pytestmark = [pytest.mark.needs("linux", "world-overlay"), pytest.mark.speed_layer]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """One that has served a command, and so knows what the next may need."""
    with daemon_in(tmp_path) as started:
        started.serve()
        assert started.run("-c", "true").returncode == 0
        _until_ahead(started)
        yield started


def _until_ahead(daemon: Daemon) -> Path:
    """Wait until one is made: it takes a moment, and another process's mount may end it."""
    for _ in range(60):
        for _ in range(50):
            found = _ahead(daemon)
            if found is not None:
                return found
            time.sleep(0.02)
        daemon.run("-c", "true")
    raise AssertionError("no world is made ahead")


def _ahead(daemon: Daemon) -> Path | None:
    for path in daemon.worlds():
        if path.name.startswith("ahead-") and (path / "work" / "work").exists():
            return path
    return None


def _children(daemon: Daemon) -> list[int]:
    text = Path(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read_text()
    return [int(pid) for pid in text.split()]


def _state(daemon: Daemon) -> dict[str, object]:
    said = daemon.state()
    assert said is not None
    return said


def test_commands_get_it_and_are_recorded_as_ever(daemon: Daemon) -> None:
    for number in range(6):
        _until_ahead(daemon)
        done = daemon.run("-c", f"cat file; echo {number} > file; exit {number}")
        assert done.returncode == number
        assert done.stdout == (b"" if number == 0 else b"%d\n" % (number - 1))
    assert int(str(_state(daemon)["ahead"])) >= 2
    assert [span["exit"] for span in daemon.completed()][-6:] == list(range(6))
    assert [span["fs_diff"]["mods"] for span in daemon.completed()][-5:] == [
        [str(daemon.workspace / "file")]
    ] * 5


def _odd() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (123, 123))
    os.nice(1)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def test_a_command_is_alone_in_it(daemon: Daemon) -> None:
    """What kept the memory of the process that it was made of is gone, and was never its child."""
    # What is about to go may take its time.
    alone = "until set -- /proc/[0-9]*; [ $# -le 2 ]; do sleep 0.1; done"
    line = f"{alone}; echo $@; cat /proc/$$/task/$$/children; :"
    for _ in range(20):  # another process's mount may end one
        _until_ahead(daemon)
        before = _state(daemon)["ahead"]
        ran = daemon.run("-c", line)
        if _state(daemon)["ahead"] != before:
            break
    # Its init, and itself; then the `cat` that tells.
    names, children = ran.stdout.splitlines()
    assert len(names.split()) == 2
    assert len(children.split()) == 1


def test_a_caller_that_was_started_by_posix_spawn_gets_it(daemon: Daemon) -> None:
    """libc leaves two signals of its own ignored then."""
    null = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0)
    quiet = [null, (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2)]
    words = ["sh", "-c", 'cd "$1"; shift; exec "$@"', "sh", str(daemon.workspace)]
    for _ in range(20):
        _until_ahead(daemon)
        before = _state(daemon)["ahead"]
        _until_ahead(daemon)
        argv = [*words, *daemon.program, "-c", "true"]
        pid = os.posix_spawnp("sh", argv, daemon.env, file_actions=quiet, setsid=True)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        if _state(daemon)["ahead"] != before:
            break
    else:
        pytest.fail("no command got the world that was made ahead")


def _in_the_background() -> None:
    """As `command &` in a script, and `nohup`."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def test_a_caller_that_ignores_signals_gets_it_and_they_stay_ignored(daemon: Daemon) -> None:
    line = ["bash", "-c", "grep SigIgn /proc/self/status"]
    bare = subprocess.run(line, stdout=subprocess.PIPE, preexec_fn=_in_the_background, check=True)
    for _ in range(20):
        _until_ahead(daemon)
        before = _state(daemon)["ahead"]
        _until_ahead(daemon)
        assert daemon.run("-c", line[2], preexec_fn=_in_the_background).stdout == bare.stdout
        if _state(daemon)["ahead"] != before:
            break
    else:
        pytest.fail("no command got the world that was made ahead")


def test_a_caller_that_has_other_limits_does_not_get_it(daemon: Daemon) -> None:
    line = "ulimit -n; nice; grep SigIgn /proc/self/status"
    plain = daemon.run("-c", line).stdout.split()
    _until_ahead(daemon)
    odd = daemon.run("-c", line, preexec_fn=_odd).stdout.split()
    assert odd[0] == b"123"
    assert int(odd[1]) == min(int(plain[1]) + 1, 19)
    assert int(odd[3], 16) == int(plain[3], 16) | 1


def test_another_workspace_does_not_get_it(daemon: Daemon, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    _until_ahead(daemon)
    done = daemon.run("-c", "pwd; echo there > file", cwd=other)
    assert (done.returncode, done.stdout) == (0, f"{other}\n".encode())
    assert (other / "file").read_text() == "there\n"


def _have_one_at_once(daemons: list[Daemon]) -> bool:
    """After a command in each; False if another process mounts something just then."""
    for daemon in daemons:
        assert daemon.run("-c", "true").returncode == 0
    for _ in range(50):
        if all(_ahead(daemon) is not None for daemon in daemons):
            return True
        time.sleep(0.02)
    return False


def test_each_of_several_workspaces_has_one(daemon: Daemon, tmp_path: Path) -> None:
    others = [Daemon(tmp_path, tmp_path / name) for name in ("one", "two", "three")]
    for other in others:
        other.workspace.mkdir()
        (other.workspace / "below").mkdir()
        assert other.run("-c", "true").returncode == 0
    assert any(_have_one_at_once(others) for _ in range(60))
    for other in others:
        done = other.run("-c", "pwd", cwd=other.workspace / "below")
        assert done.stdout == f"{other.workspace / 'below'}\n".encode()
    until(lambda: not daemon.worlds(), "the end of the fourth, which was asked for longest ago")


def _until_history_is_open(daemon: Daemon) -> None:
    ledger = str(daemon.workspace / ".substrate-git" / "index" / "history.db")

    def is_open() -> bool:
        _until_ahead(daemon)
        try:
            return any(
                os.readlink(one) == ledger
                for pid in _children(daemon)
                for one in Path(f"/proc/{pid}/fd").iterdir()
            )
        except OSError:  # it ended in between
            return False

    until(is_open, "a history that is open")


def _without_daemon(daemon: Daemon, *words: str) -> None:
    assert daemon.run(*words, env={**daemon.env, "SUBSTRATE_DAEMON": "off"}).returncode == 0


def _entries(daemon: Daemon) -> list[str]:
    said = json.loads(daemon.run("log", "--json").stdout)
    return [str(one["command"]) for one in said["commands"]]


def test_a_history_that_others_write_to_at_once(daemon: Daemon) -> None:
    _until_history_is_open(daemon)
    _without_daemon(daemon, "-c", "echo other > other")
    assert daemon.run("-c", "echo mine >> other").returncode == 0
    assert (daemon.workspace / "other").read_text() == "other\nmine\n"
    assert _entries(daemon)[:2] == ["echo mine >> other", "echo other > other"]


def test_a_history_that_is_put_aside_in_between_is_not_written_to(daemon: Daemon) -> None:
    _until_history_is_open(daemon)
    _without_daemon(daemon, "history", "reset", "--yes")
    assert daemon.run("-c", "echo new > file").returncode == 0
    assert _entries(daemon) == ["echo new > file", "baseline"]


def test_settings_that_were_changed_in_between_count(daemon: Daemon) -> None:
    _until_history_is_open(daemon)
    settings = daemon.workspace / ".substrate-git" / "config.toml"
    settings.write_text("[exclude]\nmax_file_mib = 0\n")
    assert daemon.run("-c", "echo more > file").returncode == 0
    assert daemon.completed()[-1]["changed_files"] == []


def test_it_goes_with_the_daemon(daemon: Daemon) -> None:
    _until_ahead(daemon)
    assert daemon.run("daemon", "stop").returncode == 0
    until(lambda: not pids_with(f"SUBSTRATE_SOCKET={daemon.socket}"), "the end of all")
    assert daemon.worlds() == []


def test_it_goes_with_a_killed_daemon(daemon: Daemon) -> None:
    _until_ahead(daemon)
    os.kill(daemon.pid, signal.SIGKILL)
    until(lambda: not pids_with(f"SUBSTRATE_SOCKET={daemon.socket}"), "the end of all")
    assert daemon.worlds() == []


def test_killed_itself_it_is_cleared_away_after_the_next_command(daemon: Daemon) -> None:
    left = _until_ahead(daemon)
    for child in _children(daemon):
        os.kill(child, signal.SIGKILL)
    done = daemon.run("-c", "echo fine > file")
    assert (done.returncode, done.stderr) == (0, b"")
    until(lambda: not left.exists(), "its end")
    assert (daemon.workspace / "file").read_text() == "fine\n"
    assert daemon.run("world", "list", "--json").stdout.count(b"wld_") == 0


def _listening(daemon: Daemon) -> int:
    """The process that waits at the door in the daemon's place; 0 while there is none."""
    name = f".door.sock.{daemon.pid}"
    doors = {
        words[6]
        for line in Path("/proc/net/unix").read_text().splitlines()
        if (words := line.split())[-1].endswith(name) and words[3] == "00010000"
    }
    wanted = {f"socket:[{inode}]" for inode in doors}
    assert wanted, "no process listens"
    for pid in _children(daemon):
        try:
            if {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()} & wanted:
                return pid
        except OSError:
            continue  # it has ended, or one of them is closed
    return 0


def _has_ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def _until_one_listens(daemon: Daemon) -> int:
    for _ in range(20):
        _until_ahead(daemon)
        for _ in range(50):
            if found := _listening(daemon):
                return found
            time.sleep(0.02)
        daemon.run("-c", "true")
    raise AssertionError("none listens")


def test_the_next_one_answers_the_door_itself(daemon: Daemon) -> None:
    served = int(str(_state(daemon)["served"]))
    for number in range(3):
        waiting = _until_one_listens(daemon)
        done = daemon.run("-c", f"echo {number} > file; exit {number}")
        assert done.returncode == number
        until(partial(_has_ended, waiting), "the end of the one that took it")
    # The three, and each question about the state.
    assert int(str(_state(daemon)["served"])) >= served + 4
    assert daemon.completed()[-1]["exit"] == 2


def test_it_shows_what_the_daemon_knows(daemon: Daemon) -> None:
    waiting = _until_one_listens(daemon)
    said = daemon.run("daemon", "status", "--json", cwd=daemon.workspace)
    state = json.loads(said.stdout)
    assert (state["pid"], state["running"]) == (daemon.pid, True)
    assert state["pid"] != waiting


def test_a_caller_from_elsewhere_is_passed_on(daemon: Daemon, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for _ in range(3):
        _until_one_listens(daemon)
        done = daemon.run("-c", "pwd; echo x > here", cwd=elsewhere)
        assert (done.returncode, done.stdout.strip()) == (0, os.fsencode(elsewhere))
        assert daemon.run("-c", "pwd").stdout.strip() == os.fsencode(daemon.workspace)


def test_the_one_that_listens_may_be_killed(daemon: Daemon) -> None:
    for _ in range(3):
        os.kill(_until_one_listens(daemon), signal.SIGKILL)
        assert daemon.run("-c", "echo fine > file").returncode == 0
    assert daemon.serves()


def test_nothing_listens_once_the_daemon_is_killed(daemon: Daemon) -> None:
    """A command that goes on must not keep the door open: callers would wait for ever."""
    _until_one_listens(daemon)
    running = daemon.start("-c", "sleep 3; echo done > file")
    until(daemon.runners, "the command")
    os.kill(daemon.pid, signal.SIGKILL)
    name = f".door.sock.{daemon.pid}"
    until(lambda: name not in Path("/proc/net/unix").read_text(), "the end of the door")
    assert running.wait() in (0, 125)
