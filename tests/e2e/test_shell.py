"""`substrate` alone, on a terminal: the user's own bash, and every line of it recorded."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons import is_in_foreground, until
from tests.shell_terminal import PROMPT, RC, Terminal

pytestmark = pytest.mark.needs("linux")


@pytest.fixture
def project(tmp_path: Path, private_environment: Path) -> Path:
    path = tmp_path / "project"
    path.mkdir()
    (private_environment / ".bashrc").write_text(RC)
    return path


@pytest.fixture
def shell(project: Path) -> Iterator[Terminal]:
    opened = Terminal(project)
    yield opened
    opened.close()


def test_each_line_is_a_command_with_its_own_diff(shell: Terminal, project: Path) -> None:
    shell.line("echo one > a")
    shell.line("greet")
    shell.line("mkdir d && cd d && kept=value")
    assert b"value" in shell.line('echo "$kept" | tee b')
    shell.line("false")
    assert b"status 1" in shell.line("echo status $?")
    assert shell.exit("exit 7") == 7
    assert shell.lines() == [
        ("echo one > a", 0, ["a"]),
        ("greet", 0, []),
        ("mkdir d && cd d && kept=value", 0, ["d"]),
        ('echo "$kept" | tee b', 0, ["d/b"]),
        ("false", 1, []),
        ("echo status $?", 0, []),
        ("exit 7", 7, []),
    ]


@pytest.mark.needs("world-overlay")
def test_it_says_what_it_is_before_the_first_prompt(shell: Terminal) -> None:
    assert b"a shell in a world: each line is recorded" in shell.greeting
    shell.line("echo one > a")
    shell.line(f"{shlex.quote(sys.executable)} -m substrate undo")
    assert not (shell.cwd / "a").exists()


def test_it_says_that_it_works_on_the_real_files(project: Path) -> None:
    shell = Terminal(project, "shell", "--no-world")
    try:
        assert b"a shell on the real files (asked for): each line is recorded" in shell.greeting
        shell.line("echo one > a")
        shell.line(f"{shlex.quote(sys.executable)} -m substrate undo")
        assert not (project / "a").exists()
    finally:
        shell.close()


def test_keys_reach_the_command_and_job_control_works(shell: Terminal, project: Path) -> None:
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
    found = shell.lines()
    assert found[0] == ("echo begun > f; sleep 60; echo ended > f", 130, ["f"])
    assert found[1][1] == 128 + signal.SIGTSTP
    [late] = [one for one in found if one[2] == ["g"]]
    assert late[0] == "fg" or late[0].startswith("world apply wld_")


def test_a_line_can_ask_for_history_and_take_it_back(shell: Terminal, project: Path) -> None:
    program = shlex.join([sys.executable, "-m", "substrate"])
    shell.line("echo one > a")
    shell.line("echo two > a")
    assert b"echo two > a" in shell.line(f"{program} log")
    assert b"+two" in shell.line(f"{program} diff @~1")
    assert b"will be undone" in shell.line(f"{program} undo; cat a; {program} -c 'exit 3'")
    assert b"one" in shell.line("cat a")
    assert b"checkpoint 1" in shell.line(f"{program} checkpoint")
    said = project.parent / "said"
    wait = f"until test -e {said}.go; do sleep 0.05; done"
    shell.line(f"({wait}; {program} log > {said} 2>&1; touch {said}.done) &")
    Path(f"{said}.go").touch()
    until(Path(f"{said}.done").exists)  # at the prompt, between two lines
    assert "echo two > a" in said.read_text()
    assert shell.exit() == 0
    assert (project / "a").read_text() == "one\n"


def test_a_line_that_history_does_not_keep_is_recorded_without_its_text(
    shell: Terminal, project: Path
) -> None:
    shell.line(" echo secret > a")
    assert shell.exit() == 0
    assert shell.lines()[0] == ("(a line that the shell's history does not keep)", 0, ["a"])


def test_repeated_lines_are_recorded_each_and_kept_once(shell: Terminal, project: Path) -> None:
    for _ in range(3):
        shell.line("echo x >> a")
    assert shell.line("history").count(b"echo x >> a") == 1
    assert shell.exit() == 0
    assert shell.lines()[:3] == [("echo x >> a", 0, ["a"])] * 3


def test_an_empty_line_is_nothing(shell: Terminal, project: Path) -> None:
    shell.line("")
    shell.line("true")
    assert shell.exit() == 0
    assert [line for line, _, _ in shell.lines()] == ["true", "exit"]


def test_undo_from_another_terminal(shell: Terminal, project: Path) -> None:
    shell.line("echo one > a")
    assert shell.substrate("undo").returncode == 0
    assert not (project / "a").exists()
    assert b"none" in shell.line("ls a 2> /dev/null || echo none")
    assert shell.exit() == 0


def test_several_lines_at_once_and_multi_line_commands(shell: Terminal, project: Path) -> None:
    shell.type(b"echo 1 > a\recho 2 > b\rfor i in 3 4; do\recho $i > c$i\rdone\r")
    until((project / "c4").exists)
    shell.line("true")
    assert shell.exit() == 0
    changed = [files for _, _, files in shell.lines()]
    assert changed[:3] == [["a"], ["b"], ["c3", "c4"]]


def test_the_prompt_does_not_wait_for_a_dead_recorder(project: Path) -> None:
    # Another process leads the session, like a login shell: otherwise the terminal would close.
    before = ("sh", "-c", '"$@"; exec sleep 60', "sh")
    shell = Terminal(project, "shell", "--no-world", before=before)
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
