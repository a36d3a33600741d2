"""A command on a real terminal: Ctrl-C, Ctrl-Z, fg, hanging up."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from substrate.system.process import process_tree

pty = pytest.importorskip("pty", reason="needs posix")

HERE = Path(__file__).parent
PATIENCE_S = 60.0


class Terminal:
    """A pseudo-terminal with a program on it, which is the leader of its session."""

    def __init__(self, argv: list[str], directory: Path) -> None:
        self.text = ""
        self.log, self.result = directory / "log", directory / "result.json"
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execvp(argv[0], argv)

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def expect(self, text: str) -> None:
        """Read on until `text` has been shown; what came before it is forgotten."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.text:
            assert time.monotonic() < deadline, f"never shown: {text!r}, but {self.text!r}"
            if select.select([self.fd], [], [], 0.1)[0]:
                self.text += os.read(self.fd, 65536).decode("utf-8", "replace")
        self.text = self.text.partition(text)[2]

    def logged(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text not in (self.log.read_text() if self.log.exists() else ""):
            assert time.monotonic() < deadline, f"never logged: {text!r}"
            if select.select([self.fd], [], [], 0.01)[0]:
                self.text += os.read(self.fd, 65536).decode("utf-8", "replace")

    def stopped(self) -> None:
        """Wait until the shell has its prompt back and the command is stopped.

        The shell only looks at us: a command that is a moment behind would still read what is
        typed at the prompt.
        """
        self.expect("Stopped")
        self.expect("ready> ")
        deadline = time.monotonic() + PATIENCE_S
        while not process_tree.is_stopped(int(self.log.read_text().split()[1])):
            assert time.monotonic() < deadline, "never stopped"
            time.sleep(0.01)

    def signals(self) -> list[str]:
        return self.log.read_text().split()[2:]

    def finished(self) -> dict[str, object]:
        deadline = time.monotonic() + PATIENCE_S
        while not self.result.exists():
            assert time.monotonic() < deadline, f"never ended: {self.text!r}"
            time.sleep(0.01)
        found: dict[str, object] = json.loads(self.result.read_text())
        return found

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        _kill(self.pid)
        os.waitpid(self.pid, 0)
        if self.log.exists() and not self.result.exists():
            _kill(int(self.log.read_text().split()[1]))


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def driver(directory: Path) -> list[str]:
    reporter = [sys.executable, str(HERE / "signal_reporter.py"), str(directory / "log")]
    result = str(directory / "result.json")
    return [sys.executable, str(HERE / "foreground_driver.py"), result, "{}", *reporter]


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Terminal]:
    """The driver itself is the session's leader, as in a terminal opened for one command."""
    terminal = Terminal(driver(tmp_path), tmp_path)
    terminal.logged("pid")
    yield terminal
    terminal.close()


@pytest.fixture
def in_bash(tmp_path: Path) -> Iterator[Terminal]:
    """The driver is a job of an interactive shell."""
    terminal = Terminal(["bash", "--norc", "--noprofile", "-i"], tmp_path)
    terminal.type("PS1='ready''> '\n")
    terminal.expect("ready> ")
    terminal.type(shlex.join(driver(tmp_path)) + "\n")
    terminal.logged("pid")
    yield terminal
    terminal.close()


@pytest.mark.parametrize(("key", "name"), [("\x03", "SIGINT"), ("\x1c", "SIGQUIT")])
def test_a_key_reaches_the_command_once_and_does_not_end_us(
    alone: Terminal, key: str, name: str
) -> None:
    # Ten times, because one that comes right behind another may melt into it unnoticed.
    for count in range(1, 11):
        alone.type(key)
        alone.logged(f"{name}\n" * count)
        time.sleep(0.02)
    alone.type("exit 9\n")
    assert alone.finished()["exit_code"] == 9
    assert Path(f"{alone.log}.raw").read_bytes() == bytes([signal.Signals[name]]) * 10


LISTENER = """
import signal, sys
from substrate.system.process import signals
signal.pthread_sigmask(signal.SIG_BLOCK, signals.WAITED_FOR)
print("listening", flush=True)
for _ in range(2):
    print("got", *signals.next_signal(60), flush=True)
"""


@pytest.mark.needs("linux")
def test_a_key_differs_from_a_kill(tmp_path: Path) -> None:
    """Sharper than counting: two signals that come together melt into one, and hide a mistake."""
    terminal = Terminal([sys.executable, "-c", LISTENER], tmp_path)
    terminal.expect("listening")
    terminal.type("\x03")
    terminal.expect("got 2 True")
    os.kill(terminal.pid, signal.SIGINT)
    terminal.expect("got 2 False")
    terminal.close()


def test_a_key_kills_a_command_that_does_not_mind(tmp_path: Path) -> None:
    argv = driver(tmp_path)[:4]
    terminal = Terminal([*argv, "sh", "-c", "echo up; exec sleep 60"], tmp_path)
    terminal.expect("up")
    terminal.type("\x03")
    finished = terminal.finished()
    terminal.close()
    assert (finished["exit_code"], finished["signal"]) == (130, 2)


def test_the_command_may_read_the_terminal_and_draw_on_it(alone: Terminal) -> None:
    alone.type("exit 3\n")
    assert alone.finished()["exit_code"] == 3


def test_when_the_terminal_goes_the_command_gets_a_signal(alone: Terminal) -> None:
    os.close(alone.fd)
    alone.fd = -1
    deadline = time.monotonic() + PATIENCE_S
    while "SIGHUP" not in alone.signals():
        assert time.monotonic() < deadline, "never told"
        time.sleep(0.01)


def test_suspend_and_go_on(in_bash: Terminal) -> None:
    in_bash.type("\x1a")
    in_bash.stopped()
    in_bash.type("fg\n")
    in_bash.logged("SIGCONT")
    in_bash.type("exit 4\n")
    assert in_bash.finished()["exit_code"] == 4
    in_bash.expect("ready> ")
    in_bash.type("echo 'still ''here'\n")
    in_bash.expect("still here")


def test_suspend_twice(in_bash: Terminal) -> None:
    for round_ in (1, 2):
        in_bash.type("\x1a")
        in_bash.stopped()
        in_bash.type("fg\n")
        in_bash.logged("SIGCONT\n" * round_)
    in_bash.type("exit 4\n")
    assert in_bash.finished()["exit_code"] == 4


def test_a_command_that_stops_itself_gives_the_shell_its_prompt_back(in_bash: Terminal) -> None:
    in_bash.type("stop\n")
    in_bash.stopped()
    in_bash.type("fg\n")
    in_bash.logged("SIGCONT")
    in_bash.type("exit 5\n")
    assert in_bash.finished()["exit_code"] == 5


def test_in_the_background_and_back(in_bash: Terminal) -> None:
    in_bash.type("\x1a")
    in_bash.stopped()
    in_bash.type("bg\n")
    in_bash.logged("SIGCONT")
    # It reads from the terminal, which only a foreground job may: it is stopped again.
    in_bash.type("\n")
    in_bash.type("fg\n")
    in_bash.type("exit 6\n")
    assert in_bash.finished()["exit_code"] == 6
