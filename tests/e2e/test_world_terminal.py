"""A command in a world and the keys of its terminal: as a shell's own child would have them."""

from __future__ import annotations

import os
import select
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons import is_in_foreground, until

pytestmark = pytest.mark.needs("world-overlay")
PATIENCE_S = 60.0
SUBSTRATE = shlex.join([sys.executable, "-m", "substrate"])


class Shell:
    """An interactive bash on a terminal of its own, with job control."""

    def __init__(self, cwd: Path) -> None:
        import pty

        self.cwd = cwd
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.environ.update(PS1="", SUBSTRATE_DAEMON="off", TERM="dumb")
            os.execvp("bash", ["bash", "--norc", "--noprofile", "--noediting", "-i"])
        self._seen = b""
        self.say("stty -echo")
        self.say("echo ready$((1+1))")
        self.wait_for("ready2")

    def say(self, line: str) -> None:
        os.write(self._fd, line.encode() + b"\n")

    def press(self, key: bytes) -> None:
        os.write(self._fd, key)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while text.encode() not in self._seen:
            assert time.monotonic() < deadline, f"no {text!r} in {self._seen!r}"
            if select.select([self._fd], [], [], 0.1)[0]:
                self._seen += os.read(self._fd, 65536)
        self._seen = self._seen.partition(text.encode())[2]

    def close(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._fd)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    (tmp_path / "project").mkdir()
    made = Shell(tmp_path / "project")
    yield made
    made.close()


def test_stopped_continued_and_interrupted(shell: Shell) -> None:
    shell.say(f"{SUBSTRATE} -c 'echo up; sleep 600; echo never'")
    shell.wait_for("up")
    shell.press(b"\x1a")
    shell.wait_for("Stopped")
    shell.say("jobs -s | wc -l; echo asked$((1+1))")
    shell.wait_for("1\r\n")
    shell.wait_for("asked2")
    shell.say("fg")
    shell.wait_for("substrate -c")
    until(lambda: is_in_foreground("sleep", str(shell.cwd)), "the command in the foreground")
    shell.press(b"\x03")
    shell.say("echo status=$?")
    shell.wait_for("status=130")


def test_a_shell_inside_has_jobs_of_its_own(shell: Shell) -> None:
    shell.say(f"{SUBSTRATE} -c 'PS1= exec bash --norc --noprofile --noediting -i'; echo was=$?")
    shell.say("echo inner$((40+2))")
    shell.wait_for("inner42")
    shell.say("sleep 600; echo slept=$?")
    until(lambda: is_in_foreground("sleep", str(shell.cwd)), "the command in the foreground")
    shell.press(b"\x03")
    shell.say("exit 5")
    shell.wait_for("was=5")
    shell.say("echo outer$((1+1))")
    shell.wait_for("outer2")
