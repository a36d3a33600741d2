"""`substrate` alone, on a terminal: the user's own bash, and every line of it recorded."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents import is_in_foreground, until

pytestmark = pytest.mark.needs("linux")

PATIENCE_S = 60.0
PROMPT = b"ready> "


class Shell:
    """A person at a terminal."""

    def __init__(self, cwd: Path, *before: str) -> None:
        self._leader, follower = os.openpty()
        self.shown = b""
        self.process = subprocess.Popen(
            [sys.executable, "-c", _IN_TERMINAL, *before, sys.executable, "-m", "substrate"],
            cwd=cwd, stdin=follower, stdout=follower, stderr=follower, start_new_session=True,
            env={**os.environ, "TERM": "dumb"},
        )  # fmt: skip
        os.close(follower)
        self.until(PROMPT)

    def line(self, text: str) -> bytes:
        """Enter a line; what it printed until the next prompt."""
        self.type(text.encode() + b"\r")
        return self.until(PROMPT)

    def type(self, keys: bytes) -> None:
        os.write(self._leader, keys)

    def until(self, text: bytes) -> bytes:
        """What was shown up to `text`, which must come."""
        deadline = time.monotonic() + PATIENCE_S
        while text not in self.shown:
            assert time.monotonic() < deadline, f"{text!r} never came after {self.shown!r}"
            if select.select([self._leader], [], [], 0.1)[0]:
                self.shown += os.read(self._leader, 65536)
        before, _, self.shown = self.shown.partition(text)
        return before

    def exit(self, text: str = "exit") -> int:
        self.type(text.encode() + b"\r")
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        os.close(self._leader)
        self.process.kill()
        self.process.wait()


_IN_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def project(tmp_path: Path, private_environment: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    rc = "PS1='ready> '; alias greet='echo hello'; HISTCONTROL=ignoreboth; HISTSIZE=100\n"
    (private_environment / ".bashrc").write_text(rc)
    return path


@pytest.fixture
def shell(project: Path) -> Iterator[Shell]:
    opened = Shell(project)
    yield opened
    opened.close()


def commands(project: Path) -> list[dict[str, Any]]:
    """What `log` knows, oldest first."""
    done = subprocess.run(
        [sys.executable, "-m", "substrate", "log", "--json"],
        cwd=project, capture_output=True, check=True,
    )  # fmt: skip
    found = json.loads(done.stdout)["commands"]
    return [entry for entry in reversed(found) if entry["kind"] == "command"]


def lines(project: Path) -> list[tuple[str, int, list[str]]]:
    return [(one["command"], one["exit"], one["changed_files"]) for one in commands(project)]


def test_each_line_is_a_command_with_its_own_diff(shell: Shell, project: Path) -> None:
    shell.line("echo one > a")
    shell.line("greet")
    shell.line("mkdir d && cd d && kept=value")
    assert b"value" in shell.line('echo "$kept" | tee b')
    shell.line("false")
    assert b"status 1" in shell.line("echo status $?")
    assert shell.exit("exit 7") == 7
    assert lines(project) == [
        ("echo one > a", 0, ["a"]),
        ("greet", 0, []),
        ("mkdir d && cd d && kept=value", 0, ["d"]),
        ('echo "$kept" | tee b', 0, ["d/b"]),
        ("false", 1, []),
        ("echo status $?", 0, []),
        ("exit 7", 7, []),
    ]
    assert {one["isolation"]["strategy"] for one in commands(project)} == {"direct"}


def test_keys_reach_the_command_and_job_control_works(shell: Shell, project: Path) -> None:
    shell.type(b"echo begun > f; sleep 60; echo ended > f\r")
    until(lambda: is_in_foreground("sleep", str(project)))
    shell.type(b"\x03")
    shell.until(PROMPT)
    shell.type(b"sh -c 'echo go; read line; echo $line > g'\r")
    shell.until(b"go\r\n")
    shell.type(b"\x1a")
    assert b"Stopped" in shell.until(PROMPT)
    assert b"Stopped" in shell.line("jobs")
    shell.type(b"fg\r")
    shell.until(b"line > g'")
    shell.type(b"typed\r")
    shell.until(PROMPT)
    assert shell.exit() == 0
    assert (project / "g").read_text() == "typed\n"
    found = lines(project)
    assert found[0] == ("echo begun > f; sleep 60; echo ended > f", 130, ["f"])
    assert found[1][1] == 128 + signal.SIGTSTP
    assert ("fg", 0, ["g"]) in found


def test_a_line_that_history_does_not_keep_is_recorded_without_its_text(
    shell: Shell, project: Path
) -> None:
    shell.line(" echo secret > a")
    assert shell.exit() == 0
    assert lines(project)[0] == ("(a line that the shell's history does not keep)", 0, ["a"])


def test_repeated_lines_are_recorded_each_and_kept_once(shell: Shell, project: Path) -> None:
    for _ in range(3):
        shell.line("echo x >> a")
    assert shell.line("history").count(b"echo x >> a") == 1
    assert shell.exit() == 0
    assert lines(project)[:3] == [("echo x >> a", 0, ["a"])] * 3


def test_an_empty_line_is_nothing(shell: Shell, project: Path) -> None:
    shell.line("")
    shell.line("true")
    assert shell.exit() == 0
    assert [line for line, _, _ in lines(project)] == ["true", "exit"]


def test_undo_from_within(shell: Shell, project: Path) -> None:
    shell.line("echo one > a")
    assert b"undo of" in shell.line(
        "substrate() { " + f"{sys.executable} -m substrate" + ' "$@"; }; substrate undo'
    )
    assert not (project / "a").exists()
    assert shell.exit() == 0


def test_several_lines_at_once_and_multi_line_commands(shell: Shell, project: Path) -> None:
    shell.type(b"echo 1 > a\recho 2 > b\rfor i in 3 4; do\recho $i > c$i\rdone\r")
    until((project / "c4").exists)
    shell.line("true")
    assert shell.exit() == 0
    changed = [files for _, _, files in lines(project)]
    assert changed[:3] == [["a"], ["b"], ["c3", "c4"]]


def test_the_prompt_does_not_wait_for_a_dead_recorder(project: Path) -> None:
    # Somebody else leads the session, as a login shell does: or the terminal would go as well.
    shell = Shell(project, "sh", "-c", '"$@"; exec sleep 60', "sh")
    try:
        shell.line("echo one > a")
        leader = shell.process.pid
        recorder = Path(f"/proc/{leader}/task/{leader}/children").read_text().split()[0]
        os.kill(int(recorder), signal.SIGKILL)
        until(lambda: not Path(f"/proc/{recorder}").exists())
        assert b"still here" in shell.line("echo still here")
    finally:
        shell.close()


def test_without_a_terminal_it_says_what_to_do(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "substrate"], cwd=project, stdin=subprocess.DEVNULL,
        capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert b"hint:" in done.stderr
