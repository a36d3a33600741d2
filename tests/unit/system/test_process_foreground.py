"""Running the user's command in our place: status, descriptors, signals, timeouts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from substrate.errors import WorkspaceError
from substrate.system.process import process, process_tree, signals
from substrate.system.process.process import run_foreground

pytestmark = pytest.mark.needs("posix")

HERE = Path(__file__).parent
DRIVER = HERE / "foreground_driver.py"
REPORTER = HERE / "signal_reporter.py"
#: A guard against hangs only: nothing is measured.
PATIENCE_S = 60.0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


class Driven:
    """The driver with a signal reporter in the foreground."""

    def __init__(self, directory: Path, options: dict[str, object]) -> None:
        self.log, self.result = directory / "log", directory / "result.json"
        driver = [sys.executable, str(DRIVER), str(self.result), json.dumps(options)]
        reporter = [sys.executable, str(REPORTER), str(self.log)]
        self.process = subprocess.Popen([*driver, *reporter], stdin=subprocess.PIPE)
        until(lambda: "pid" in self.lines())

    def lines(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def signals(self) -> list[str]:
        return self.lines().split()[2:]

    def command_pid(self) -> int:
        return int(self.lines().split()[1])

    def ended(self) -> dict[str, object]:
        assert self.process.wait(PATIENCE_S) == 0
        found: dict[str, object] = json.loads(self.result.read_text())
        return found

    def close(self) -> None:
        if self.process.poll() is None:
            os.kill(self.command_pid(), signal.SIGKILL)
            self.process.kill()
            self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


@pytest.fixture(params=[False, True], ids=["sigtimedwait", "sigwait"])
def driven(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Driven]:
    driver = Driven(tmp_path, {"without_sigtimedwait": request.param})
    yield driver
    driver.close()


# --------------------------------------------------------------------------------- how it ended


def test_nothing_runs_if_what_it_needs_cannot_be_had(tmp_path: Path) -> None:
    """If the preparation fails (for example, to capture output), the program writes nothing."""

    def refuse() -> None:
        time.sleep(0.2)  # long enough for a program that has begun
        raise MemoryError

    before = process_tree.descendants(os.getpid())
    with pytest.raises(MemoryError):
        run_foreground(["sh", "-c", "echo > begun"], cwd=tmp_path, prepare=refuse)
    assert list(tmp_path.iterdir()) == []
    assert process_tree.descendants(os.getpid()) == before


@pytest.mark.parametrize("status", [0, 1, 2, 125, 126, 127, 255])
def test_the_status_is_the_commands_own(status: int) -> None:
    finished = run_foreground(["sh", "-c", f"exit {status}"])
    assert finished[:3] == (status, None, False)
    assert finished.error == ""


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSEGV])
def test_a_death_by_signal_is_128_more(signum: signal.Signals) -> None:
    finished = run_foreground(["sh", "-c", f"ulimit -c 0; kill -{signum.value} $$"])
    assert (finished.exit_code, finished.signal) == (128 + signum, signum)


def test_a_command_that_is_not_there() -> None:
    finished = run_foreground(["no-such-command"])
    assert (finished.exit_code, finished.error) == (127, "no-such-command: command not found")


def test_a_path_that_is_not_there() -> None:
    finished = run_foreground(["./gone"])
    assert (finished.exit_code, finished.error) == (127, "./gone: No such file or directory")


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_cannot_be_executed(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "it"
    target.touch() if kind == "file" else target.mkdir()
    finished = run_foreground([str(target)])
    assert (finished.exit_code, finished.error) == (126, f"{target}: Permission denied")


def test_an_argument_no_program_can_get() -> None:
    assert run_foreground(["true", "a\0b"]).exit_code == 126


def test_a_search_goes_on_behind_a_file_that_may_not_be_run(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one/it").write_text("")
    (tmp_path / "two").mkdir()
    script = tmp_path / "two/it"
    script.write_text("#!/bin/sh\nexit 9\n")
    script.chmod(0o755)
    env = {"PATH": f"{tmp_path}/gone:{tmp_path}/one:{tmp_path}/two"}
    assert run_foreground(["it"], env=env).exit_code == 9
    assert run_foreground(["it"], env={"PATH": f"{tmp_path}/one"}).exit_code == 126


def test_a_script_without_a_first_line_is_run_by_sh(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('test "$1" = "a b" && exit 5\n')
    script.chmod(0o755)
    assert run_foreground([str(script), "a b"]).exit_code == 5


def test_a_relative_program_is_looked_for_in_the_commands_directory(tmp_path: Path) -> None:
    script = tmp_path / "here"
    script.write_text("#!/bin/sh\nexit 4\n")
    script.chmod(0o755)
    assert run_foreground(["./here"], cwd=tmp_path).exit_code == 4


def test_no_directory_is_our_error_not_the_commands(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError):
        run_foreground(["true"], cwd=tmp_path / "gone")


def test_nothing_to_run_is_a_mistake_in_the_code() -> None:
    with pytest.raises(ValueError, match="no program"):
        run_foreground([])


def test_the_shell_is_not_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/false")
    argv = process.shell_argv("exit 6")
    assert argv[0] in ("/bin/bash", "/bin/sh")
    assert run_foreground(argv).exit_code == 6


# ------------------------------------------------------------------------- what it is given


def test_descriptors_are_ours(capfd: pytest.CaptureFixture[str]) -> None:
    run_foreground(["sh", "-c", "echo out; echo err >&2"])
    assert capfd.readouterr() == ("out\n", "err\n")


def test_descriptors_can_be_others(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("text")
    stdin = os.open(tmp_path / "in", os.O_RDONLY)
    stdout = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    run_foreground(["cat"], stdio=process.Stdio(stdin, stdout))
    os.close(stdin)
    os.close(stdout)
    assert (tmp_path / "out").read_text() == "text"


def test_descriptors_can_change_places(capfd: pytest.CaptureFixture[str]) -> None:
    run_foreground(["sh", "-c", "echo out; echo err >&2"], stdio=process.Stdio(None, 2, 1))
    assert capfd.readouterr() == ("err\n", "out\n")


def test_no_other_descriptor_reaches_it(tmp_path: Path) -> None:
    kept = os.open(tmp_path / "kept", os.O_WRONLY | os.O_CREAT)
    script = f"import os\ntry: os.fstat({kept})\nexcept OSError: raise SystemExit(8)"
    try:
        assert run_foreground([sys.executable, "-c", script]).exit_code == 8
    finally:
        os.close(kept)


def test_the_environment_is_the_one_given() -> None:
    env = {"PATH": os.environ["PATH"], "ONLY": "this"}
    assert run_foreground(["sh", "-c", 'test "$ONLY" = this -a -z "$HOME"'], env=env).exit_code == 0


def test_a_broken_pipe_ends_a_command_as_everywhere() -> None:
    # Python ignores SIGPIPE for itself; if that were passed on, `yes` would exit with 1.
    argv = ["bash", "-c", "yes | head -n 1 >/dev/null; exit ${PIPESTATUS[0]}"]
    assert run_foreground(argv).exit_code == 128 + signal.SIGPIPE


def _masks(finished_stdout: str) -> dict[str, int]:
    rows = (line.split(":") for line in finished_stdout.splitlines())
    return {name: int(value, 16) for name, value in rows if name in ("SigBlk", "SigIgn")}


@pytest.mark.needs("linux")
def test_signals_start_as_they_were_for_us(capfd: pytest.CaptureFixture[str]) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    ignored = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        run_foreground(["cat", "/proc/self/status"])
    finally:
        signal.signal(signal.SIGUSR2, ignored)
    masks = _masks(capfd.readouterr().out)
    assert masks == {"SigBlk": 0, "SigIgn": 1 << (signal.SIGUSR2 - 1)}
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_our_own_handlers_are_back_afterwards() -> None:
    names = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP)
    ours = signal.signal(signal.SIGCHLD, lambda *_: None)
    try:
        before = [signal.getsignal(signum) for signum in names]
        run_foreground(["true"])
        run_foreground(["no-such-command"])
        assert [signal.getsignal(signum) for signum in names] == before
    finally:
        signal.signal(signal.SIGCHLD, ours)


def test_the_end_of_a_child_is_always_heard() -> None:
    """Another thread may take it just as ours is put away; Python would complain then."""
    ours = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        run_foreground(["true"])
        assert signal.getsignal(signal.SIGCHLD) is not signal.SIG_DFL
    finally:
        signal.signal(signal.SIGCHLD, ours)


def test_a_parent_that_ignores_the_end_of_children_is_no_obstacle(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    argv = [sys.executable, str(DRIVER), str(result), "{}", "sh", "-c", "exit 3"]
    ignoring = "trap '' CHLD; exec \"$@\""
    subprocess.run(["bash", "-c", ignoring, "-", *argv], check=True)
    assert json.loads(result.read_text())["exit_code"] == 3


# ------------------------------------------------------------------------------------- signals


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_to_us_reaches_the_command_once(driven: Driven, signum: signal.Signals) -> None:
    driven.process.send_signal(signum)
    until(lambda: signum.name in driven.signals())
    driven.process.send_signal(signal.SIGTERM)
    assert driven.ended()["exit_code"] == 7
    assert driven.signals() == [signum.name, "SIGTERM"]


@pytest.mark.needs("linux")
def test_an_interrupt_sent_to_us_alone_is_passed_on(tmp_path: Path) -> None:
    driven = Driven(tmp_path, {})
    driven.process.send_signal(signal.SIGINT)
    until(lambda: "SIGINT" in driven.signals())
    driven.process.send_signal(signal.SIGTERM)
    assert driven.ended()["exit_code"] == 7
    assert driven.signals() == ["SIGINT", "SIGTERM"]
    driven.close()


def test_we_outlive_a_signal_that_kills_the_command(tmp_path: Path) -> None:
    result, ready = tmp_path / "result.json", tmp_path / "ready"
    script = f": > {ready}; exec sleep 60"
    with subprocess.Popen([sys.executable, DRIVER, result, "{}", "sh", "-c", script]) as driver:
        until(ready.exists)
        driver.terminate()
        assert driver.wait(PATIENCE_S) == 0
    assert json.loads(result.read_text())["exit_code"] == 128 + signal.SIGTERM


def test_a_command_stopped_and_continued_ends_as_it_would(driven: Driven) -> None:
    os.kill(driven.command_pid(), signal.SIGSTOP)
    until(lambda: process_tree.is_stopped(driven.command_pid()))
    os.kill(driven.command_pid(), signal.SIGCONT)
    until(lambda: "SIGCONT" in driven.signals())
    os.kill(driven.process.pid, signal.SIGCONT)
    driven.process.send_signal(signal.SIGTERM)
    assert driven.ended()["exit_code"] == 7


# ------------------------------------------------------------------- timeouts and leftovers


@pytest.mark.parametrize("without", [False, True], ids=["sigtimedwait", "sigwait"])
def test_a_timeout_ends_the_command_and_says_so(tmp_path: Path, without: bool) -> None:
    options = json.dumps({"timeout_s": 0.2, "without_sigtimedwait": without})
    result = tmp_path / "result.json"
    subprocess.run([sys.executable, DRIVER, result, options, "sleep", "60"], check=True)
    finished = json.loads(result.read_text())
    assert (finished["exit_code"], finished["timed_out"]) == (124, True)
    assert finished["signal"] == signal.SIGTERM


def test_a_command_that_is_done_in_time_has_not_timed_out() -> None:
    assert run_foreground(["sh", "-c", "exit 3"], timeout_s=60)[:3] == (3, None, False)


def _alive(pid_file: Path) -> bool:
    try:
        state = Path(f"/proc/{pid_file.read_text().strip()}/stat").read_text()
    except FileNotFoundError:
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.needs("linux")
def test_a_command_deaf_to_term_is_killed_with_all_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"trap '' TERM; sh -c 'trap \"\" TERM; echo $$ > {pid}; sleep 60; sleep 60' & wait"
    finished = run_foreground(["sh", "-c", script], timeout_s=2.0, grace_s=0.2)
    assert finished[:3] == (124, signal.SIGKILL, True)
    until(lambda: not _alive(pid))


@pytest.mark.needs("linux")
def test_what_a_timed_out_command_started_goes_even_if_the_command_went_first(
    tmp_path: Path,
) -> None:
    pid = tmp_path / "pid"
    script = f"sh -c 'trap \"\" TERM; echo $$ > {pid}; sleep 60; sleep 60' & wait"
    finished = run_foreground(["sh", "-c", script], timeout_s=2.0, grace_s=0.2)
    assert finished[:3] == (124, signal.SIGTERM, True)
    until(lambda: not _alive(pid))


@pytest.mark.needs("linux")
def test_leftovers_end_with_the_command_if_asked(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    # setsid and a second fork: neither the process group nor the parent tells whose it is.
    script = (
        f"(setsid sh -c 'echo $$ > {pid}; exec sleep 60' &) ; while ! test -s {pid}; do :; done"
    )
    finished = run_foreground(["sh", "-c", script], kill_children=True)
    assert (finished.exit_code, finished.killed_children) == (0, 1)
    until(lambda: not _alive(pid))


@pytest.mark.needs("linux")
def test_other_children_of_ours_are_no_leftovers() -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        finished = run_foreground(["true"], kill_children=True)
        assert (finished.exit_code, finished.killed_children) == (0, 0)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@pytest.mark.needs("linux")
def test_leftovers_stay_if_not_asked(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {pid}"
    null = os.open(os.devnull, os.O_RDWR)
    finished = run_foreground(["sh", "-c", script], stdio=process.Stdio(null, null, null))
    os.close(null)
    assert (finished.exit_code, finished.killed_children) == (0, 0)
    assert _alive(pid)
    os.kill(int(pid.read_text()), signal.SIGKILL)


@pytest.mark.needs("linux")
def test_a_signal_that_another_thread_took_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was pending when we asked, and is gone when we fetch it."""
    monkeypatch.setattr(signal, "sigpending", lambda: {signal.SIGCHLD})
    signals.drain()
