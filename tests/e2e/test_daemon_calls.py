"""A command behaves the same with the daemon: streams, status, signals, surroundings."""

from __future__ import annotations

import json
import os
import pty
import resource
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from substrate.errors import EXIT_REFUSED
from substrate.protocol import daemon_wire
from substrate.system import daemon_paths
from substrate.system.process import process_tree
from tests.daemons import PATIENCE_S, SUBSTRATE, Daemon, daemon_in, pids_with, until

pytestmark = pytest.mark.needs("linux")

_LITTLE_BYTES = 100 * 1024 * 1024


@pytest.fixture
def cold(tmp_path: Path) -> Iterator[Daemon]:
    """No daemon yet."""
    with daemon_in(tmp_path) as daemon:
        yield daemon


@pytest.fixture
def own(cold: Daemon) -> Daemon:
    """A daemon to do harm to."""
    cold.serve()
    assert cold.serves()
    return cold


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where a daemon for all tests of this module serves."""
    base = tmp_path_factory.mktemp("shared")
    with daemon_in(base, {"SUBSTRATE_HOME": str(base / "home")}) as daemon:
        daemon.serve()
        yield base


@pytest.fixture
def warm(shared: Path, tmp_path: Path) -> Daemon:
    """The shared daemon, with a workspace and a home of the test's own."""
    workspace = tmp_path / "project"
    workspace.mkdir()
    return Daemon(shared, workspace)


def test_streams_status_and_surroundings_are_the_callers(warm: Daemon) -> None:
    data = bytes(range(256)) * 1000
    done = warm.run("-c", "cat; printf 'err\\377' >&2; exit 7", input=data)
    assert (done.returncode, done.stdout, done.stderr) == (7, data, b"err\xff")

    below = warm.workspace / "below"
    below.mkdir()
    env = {**warm.env, "ODD": "a\nb=c", "EMPTY": ""}
    script = 'pwd; umask; printf "%s|%s|" "$ODD" "${EMPTY-unset}"; ulimit -n; nice'
    done = warm.run("-c", script, cwd=below, env=env, preexec_fn=_odd_surroundings)
    nice = min(os.nice(0) + 5, 19)
    assert done.stdout.decode().splitlines() == [str(below), "0027", "a", "b=c||123", str(nice)]

    done = warm.run("run", "--", "no-such-program")
    assert done.returncode == 127
    assert b"no-such-program: command not found" in done.stderr
    done = warm.run("-c", "a", "b")
    assert (done.returncode, done.stderr.count(b"substrate: error:")) == (125, 1)
    assert warm.serves(), "all of it went through the daemon"


def _odd_surroundings() -> None:
    os.umask(0o027)
    os.nice(5)
    resource.setrlimit(resource.RLIMIT_NOFILE, (123, 123))


def test_the_answer_is_the_end_of_the_streams(warm: Daemon) -> None:
    for number in range(5):
        much = f"mkdir {number}; touch {number}/{{1..300}}"
        called = warm.start("-c", f"{much}; echo done; echo e >&2")
        assert called.wait(PATIENCE_S) == 0
        for stream, said in ((called.stdout, b"done\n"), (called.stderr, b"e\n")):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            # The reader of the caller's output does not wait for the daemon's later work.
            assert os.read(stream.fileno(), 100) == said
            assert os.read(stream.fileno(), 100) == b"", "and nobody holds it any more"
            stream.close()
    assert warm.serves()


@pytest.mark.speed_layer
def test_a_caller_that_has_little_memory_runs_its_command_itself(own: Daemon) -> None:
    """The daemon's process has more in memory already: it could not even start a thread."""

    def little() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (_LITTLE_BYTES, _LITTLE_BYTES))

    for _ in range(2):
        assert own.run("-c", "true").returncode == 0
    until(lambda: (own.state() or {}).get("spares"), "one that waits")
    done = own.run("-c", "ulimit -v", preexec_fn=little)
    assert (done.returncode, done.stdout) == (0, b"%d\n" % (_LITTLE_BYTES // 1024))


def test_more_descriptors_than_three_are_the_commands_too(warm: Daemon, tmp_path: Path) -> None:
    """As in `substrate run -- diff <(sort a) <(sort b)`."""
    with (tmp_path / "more").open("w+") as more:
        more.write("more")
        more.seek(0)
        fd = more.fileno()
        done = warm.run("run", "--", "cat", f"/dev/fd/{fd}", pass_fds=(fd,))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"more", b"")


def test_makes_job_server_is_the_commands_too(warm: Daemon) -> None:
    """Its descriptors are named by a variable, not by a word."""
    ours, theirs = os.pipe()
    try:
        env = {**warm.env, "MAKEFLAGS": f" -j2 --jobserver-auth={ours},{theirs}"}
        done = warm.run("-c", "ls -l /proc/self/fd", pass_fds=(ours, theirs), env=env)
        for fd in (ours, theirs):
            kind = os.readlink(f"/proc/self/fd/{fd}")
            assert f" {fd} -> {kind}\n".encode() in done.stdout
    finally:
        os.close(ours)
        os.close(theirs)


def test_status_says_why_no_daemon_can_start(cold: Daemon) -> None:
    cold.directory.mkdir(parents=True)
    cold.directory.chmod(0o755)
    done = cold.run("daemon", "status")
    assert done.returncode == EXIT_REFUSED
    assert b"ours alone" in done.stderr


def test_status_does_not_count_itself(warm: Daemon) -> None:
    assert warm.run("-c", "true").returncode == 0
    until(lambda: (warm.state() or {}).get("commands") == 0, "that nothing runs")


def test_a_signal_before_the_start_ends_the_call(cold: Daemon) -> None:
    """It would be lost to a daemon that declines, or never answers."""
    cold.directory.mkdir(mode=0o700, parents=True)
    with socket.socket(socket.AF_UNIX) as listening:
        with daemon_paths.Address(os.fsencode(cold.directory / "door.sock")) as address:
            listening.bind(address)
        listening.listen()
        call = cold.start("-c", "true")
        connection, _ = listening.accept()
        with connection:
            for fd in daemon_wire.receive_request(connection)[1]:
                os.close(fd)
            call.send_signal(signal.SIGTERM)
            assert call.wait(PATIENCE_S) == -signal.SIGTERM


def test_a_call_from_inside_the_world_is_answered(warm: Daemon) -> None:
    inner = shlex.join(SUBSTRATE)
    for number in range(3):
        done = warm.run("-c", f"echo {number} > a; {inner} log --json; {inner} checkpoint")
        assert done.returncode == 0, done.stderr
        log = json.loads(done.stdout.splitlines()[0])["commands"]
        assert sum(entry["kind"] == "command" for entry in log) == number
    done = warm.run("-c", f"{inner} undo; {inner} undo; {inner} -c 'exit 3'; echo $?; touch b")
    assert done.stdout.splitlines()[-1] == b"3"
    assert done.stderr.count(b"asked for inside: undo of c-") == 2
    assert (warm.workspace / "a").read_text() == "0\n"
    assert (warm.workspace / "b").exists()
    assert warm.run("fsck").returncode == 0
    assert warm.serves(), "all of it went through the daemon"


def test_a_later_command_ends_what_an_earlier_one_left(warm: Daemon) -> None:
    line = "sleep 300 > /dev/null 2>&1 & echo $!"
    number = warm.run("-c", line).stdout.decode().strip()
    assert f"{number} sleep 300" in warm.run("-c", "ps -eo pid=,args=").stdout.decode()
    assert warm.run("-c", f"kill {number}; echo on > after").returncode == 0
    until(lambda: b"sleep 300" not in warm.run("-c", "ps -eo args=").stdout)
    assert (warm.workspace / "after").exists()
    worlds = warm.workspace / ".substrate-git" / "worlds"
    until(lambda: not [name for name in os.listdir(worlds) if not name.startswith("ahead-")])


@pytest.mark.parametrize("name", ["SIGHUP", "SIGALRM", "SIGIO", "SIGCHLD"])
def test_an_ignored_signal_stays_ignored(warm: Daemon, name: str) -> None:
    """Also those that mean something to the daemon itself."""

    def ignore() -> None:
        signal.signal(getattr(signal, name), signal.SIG_IGN)

    script = "grep SigIgn /proc/self/status"
    bare = subprocess.run(
        ["bash", "-c", script], stdout=subprocess.PIPE, preexec_fn=ignore, check=True
    )
    assert warm.run("-c", script, preexec_fn=ignore).stdout == bare.stdout
    assert warm.run("--no-world", "-c", script, preexec_fn=ignore).stdout == bare.stdout
    plain = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, check=True)
    assert warm.run("-c", script).stdout == plain.stdout


def _forgot_to_unblock() -> None:
    few = {signal.SIGTERM, signal.SIGUSR1, signal.SIGIO, signal.SIGALRM, signal.SIGRTMIN + 3}
    signal.pthread_sigmask(signal.SIG_BLOCK, few)


@pytest.mark.parametrize("world", ["--world", "--no-world"])
def test_a_blocked_signal_stays_blocked(warm: Daemon, world: str) -> None:
    """And only for this call. A caller that has ended is still noticed."""
    line = "grep SigBlk /proc/self/status"
    bare = subprocess.run(
        ["bash", "-c", line], stdout=subprocess.PIPE, preexec_fn=_forgot_to_unblock, check=True
    )
    for _ in range(2):
        done = warm.run("run", world, "-c", line, preexec_fn=_forgot_to_unblock)
        assert (done.stdout, done.stderr) == (bare.stdout, b"")
    assert warm.run("run", world, "-c", line).stdout.split()[1].strip(b"0") == b""
    line = f"echo up; MARK={os.getpid()}{world} exec sleep 1000"
    with warm.start("run", world, "-c", line, preexec_fn=_forgot_to_unblock) as call:
        assert call.stdout is not None
        assert call.stdout.readline() == b"up\n"
        call.kill()
    until(lambda: not pids_with(f"MARK={os.getpid()}{world}"), "the end of the command")
    assert warm.serves()


def test_the_call_that_starts_the_daemon_does_not_decide_for_others(tmp_path: Path) -> None:
    def odd() -> None:
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGWINCH})

    script = "grep -E 'Sig(Ign|Blk)' /proc/self/status"
    plain = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, check=True)
    with daemon_in(tmp_path) as daemon:
        assert daemon.run("-c", "true", preexec_fn=odd).returncode == 0
        until(daemon.serves)
        assert daemon.run("-c", script).stdout == plain.stdout


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP", "QUIT", "USR1"])
def test_a_signal_to_the_client_reaches_the_command_once(warm: Daemon, name: str) -> None:
    script = (
        f"n=0; trap 'n=$((n+1))' {name}; echo ready; while [ $n = 0 ]; do sleep 0.1; done;"
        " for i in 1 2 3; do sleep 0.1; done; echo $n; exit 9"  # it would come again at once
    )
    process = warm.start("-c", script)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(getattr(signal, f"SIG{name}"))
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (9, b"1\n")


@pytest.mark.parametrize("program", [SUBSTRATE, ["substrate"]], ids=["python", "installed"])
def test_a_command_killed_by_a_signal(warm: Daemon, program: list[str]) -> None:
    warm.program = program
    process = warm.start("-c", "echo ready; exec sleep 60")
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    assert process.wait(PATIENCE_S) == -signal.SIGTERM
    process.communicate()
    assert warm.completed()[-1]["outcome"] == "killed"


def test_stop_and_continue(warm: Daemon) -> None:
    go = warm.workspace.parent / f"{warm.workspace.name}-go"
    process = warm.start("-c", f"echo ready; until test -e {go}; do sleep 0.05; done; echo done")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    runner = _runner(warm)
    process.send_signal(signal.SIGTSTP)
    until(lambda: _is_stopped(runner) and _is_stopped(process.pid), "the stop")
    process.send_signal(signal.SIGCONT)
    go.touch()
    assert process.communicate(timeout=PATIENCE_S)[0] == b"done\n"
    assert process.returncode == 0


def _runner(daemon: Daemon) -> int:
    """The one process that runs a command; one that ran the last may be about to end."""
    until(lambda: len(daemon.runners()) == 1, "one runner")
    (runner,) = daemon.runners()
    return runner


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_killed_client_takes_its_command_along_and_it_is_recorded(warm: Daemon) -> None:
    process = warm.start("-c", "echo begun > file; echo ready; sleep 60 & wait; echo never > file")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.kill()
    process.wait()
    process.communicate()
    until(warm.completed, "the record")
    last = warm.completed()[-1]
    assert (last["outcome"], last["changed_files"]) == ("killed", ["file"])
    assert (warm.workspace / "file").read_text() == "begun\n"
    assert warm.serves()


def test_a_command_that_does_not_listen_is_killed_in_the_end(warm: Daemon) -> None:
    process = warm.start("-c", "trap '' TERM; echo ready; while :; do sleep 0.2; done")
    assert process.stdout is not None
    process.stdout.readline()
    process.kill()
    process.communicate()
    until(warm.completed, "the record")
    assert warm.completed()[-1]["exit"] == 128 + signal.SIGKILL


def test_a_killed_runner_is_an_error_and_the_next_command_works(warm: Daemon) -> None:
    process = warm.start("-c", "echo work > file; echo ready; sleep 60")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    os.kill(_runner(warm), signal.SIGKILL)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 125
    assert b"the daemon was lost" in err
    assert warm.run("-c", "true").returncode == 0
    log = warm.run("log", "--json").stdout.decode()
    assert "sleep 60" in log, "what the lost command changed was recorded by the next call"


def test_a_killed_daemon_loses_nothing_and_the_next_call_starts_another(own: Daemon) -> None:
    process = own.start("-c", "echo ready; sleep 0.5; echo made > file; exit 4")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    old = own.pid
    os.kill(old, signal.SIGKILL)
    assert process.wait(PATIENCE_S) == 4
    process.communicate()
    assert own.completed()[-1]["changed_files"] == ["file"]
    assert own.run("-c", "true").returncode == 0  # in process; starts the next daemon
    until(lambda: own.state() and own.pid not in (0, old), "another daemon")
    assert own.serves()


def test_a_restart_keeps_what_is_running(own: Daemon) -> None:
    process = own.start("-c", "echo ready; sleep 0.5; echo made > file; exit 4")
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    old = own.pid
    own.start("daemon", "serve", "--replace", stdout=subprocess.DEVNULL)
    until(lambda: own.state() and own.pid not in (0, old), "the new daemon")
    assert process.wait(PATIENCE_S) == 4
    process.communicate()
    assert own.serves()


def _serving(daemon: Daemon) -> set[int]:
    """The daemons: what they fork is called as they are, down to the processes of a world that is
    made ahead, but has a parent among them."""
    parents = {}
    for pid in pids_with(f"SUBSTRATE_SOCKET={daemon.socket}"):
        with suppress(OSError):
            if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                parents[pid] = process_tree.parent(pid)
    return {pid for pid, parent in parents.items() if parent not in parents}


def test_ten_first_calls_start_one_daemon(cold: Daemon) -> None:
    calls = [cold.start("-c", f"echo {n} > f{n}; echo {n}") for n in range(10)]
    ended = [call.communicate(timeout=PATIENCE_S) for call in calls]
    assert [(call.returncode, err) for call, (_, err) in zip(calls, ended, strict=True)] == [
        (0, b"")
    ] * 10
    said = sorted(out for out, _ in ended)
    assert said == [b"%d\n" % n for n in range(10)]
    until(cold.state, "a daemon")
    until(lambda: _serving(cold) == {cold.pid}, "one daemon")
    assert {path.name for path in cold.workspace.glob("f*")} == {f"f{n}" for n in range(10)}
    assert cold.serves()


def test_it_can_be_turned_off(cold: Daemon) -> None:
    assert cold.run("-c", "true", env={**cold.env, "SUBSTRATE_DAEMON": "off"}).returncode == 0
    assert not cold.directory.exists()


def test_an_idle_daemon_ends(cold: Daemon) -> None:
    cold.env["SUBSTRATE_DAEMON_IDLE_S"] = "0.3"
    process = cold.start("daemon", "serve", stdout=subprocess.PIPE)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, out) == (0, f"serving {cold.socket}\n".encode())
    assert not cold.socket.exists()


def test_a_second_daemon_is_refused(warm: Daemon) -> None:
    done = warm.run("daemon", "serve")
    assert done.returncode == 5
    assert b"--replace" in done.stderr
    assert warm.serves()


def test_a_caller_with_fewer_rights_runs_its_command_itself(warm: Daemon) -> None:
    """Otherwise the daemon would be a way out of its sandbox."""
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv")
    served = warm.state()["served"]  # type: ignore[index]
    done = subprocess.run(
        ["setpriv", "--no-new-privs", *SUBSTRATE, "-c", "grep NoNewPrivs /proc/self/status"],
        cwd=warm.workspace, env=warm.env, stdin=subprocess.DEVNULL, capture_output=True,
        start_new_session=True, check=True,
    )  # fmt: skip
    assert (done.stdout.split(), done.stderr) == ([b"NoNewPrivs:", b"1"], b"")
    assert warm.state()["served"] == served + 2, "it was asked, and declined"  # type: ignore[index]


def test_with_a_terminal_the_command_keeps_it(warm: Daemon) -> None:
    before = warm.state()
    script = "tty; (: < /dev/tty) && echo opened"
    leader, follower = pty.openpty()
    name = os.ttyname(follower)
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", _IN_TERMINAL, *SUBSTRATE, "-c", script],
            cwd=warm.workspace, env=warm.env, stdin=follower, stdout=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        out, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        os.close(leader)
        os.close(follower)
    assert out.decode().split() == [name, "opened"]
    after = warm.state()
    assert before
    assert after
    assert after["served"] == before["served"] + 1, "only the question went through the daemon"


_IN_TERMINAL = """
import fcntl, subprocess, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.exit(subprocess.run(sys.argv[1:]).returncode)
"""


def test_new_code_takes_over(cold: Daemon, tmp_path: Path) -> None:
    """An upgrade under a running daemon: no command runs on half-old code."""
    import substrate

    copy = tmp_path / "site" / "substrate"
    shutil.copytree(Path(substrate.__file__).parent, copy)
    cold.env["PYTHONPATH"] = str(tmp_path / "site")
    cold.serve()
    assert cold.serves()
    old = cold.pid
    assert cold.state()["install"] == str(copy)  # type: ignore[index]
    with (copy / "errors.py").open("a") as file:
        file.write("# newer\n")
    # The daemon checks once a second.
    until(
        lambda: cold.run("-c", "true").returncode == 0 and cold.state() and cold.pid not in (0, old)
    )
    assert cold.serves()


def test_another_installation_does_not_use_or_replace_it(warm: Daemon, tmp_path: Path) -> None:
    import substrate

    copy = tmp_path / "site" / "substrate"
    shutil.copytree(Path(substrate.__file__).parent, copy)
    pid = warm.pid
    env = {**warm.env, "PYTHONPATH": str(tmp_path / "site")}
    assert warm.run("-c", "echo ran > file", env=env).returncode == 0
    assert (warm.workspace / "file").read_text() == "ran\n"
    assert warm.pid == pid
    assert warm.serves()
