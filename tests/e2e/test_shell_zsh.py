"""The user's own zsh, if that is what ``$SHELL`` says."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons import is_in_foreground, until
from tests.shell_terminal import PROMPT, Terminal

pytestmark = [pytest.mark.needs("zsh"), pytest.mark.needs("world-overlay")]

RC = """
PS1='ready> '
unsetopt prompt_sp prompt_cr
setopt hist_ignore_space auto_pushd
chpwd() { echo changed >&2 }
precmd() { seen=$? }
"""


@pytest.fixture(params=["shell", "shell --no-world"])
def shell(
    tmp_path: Path, private_environment: Path, request: pytest.FixtureRequest
) -> Iterator[Terminal]:
    (tmp_path / "project").mkdir()
    (private_environment / "z").mkdir()
    (private_environment / "z" / ".zshrc").write_text(RC)
    (private_environment / ".zshenv").write_text('ZDOTDIR="$HOME/z"\nFROM_ENV=1\n')
    env = {"SHELL": shutil.which("zsh") or ""}
    opened = Terminal(tmp_path / "project", *request.param.split(), env=env)
    yield opened
    opened.close()


def test_each_line_is_a_command(shell: Terminal) -> None:
    project = shell.cwd
    shell.line("echo one > a")
    assert (project / "a").read_text() == "one\n"
    assert shell.line("mkdir d; cd d").count(b"changed") == 1
    shell.line(" echo secret > s")
    shell.line("echo x >> y")
    shell.line("echo x >> y")
    said = shell.line("false; echo $FROM_ENV $seen ${ZDOTDIR:t} ${OLDPWD:t} $#dirstack")
    assert b"1 0 z project 1\r\n" in said
    assert b"status 1" in shell.line("(exit 1)") + shell.line("echo status $seen")
    assert shell.exit("exit 4") == 4
    found = shell.lines()
    assert found[:5] == [
        ("echo one > a", 0, ["a"]),
        ("mkdir d; cd d", 0, ["d"]),
        ("(a line that the shell's history does not keep)", 0, ["d/s"]),
        ("echo x >> y", 0, ["d/y"]),
        ("echo x >> y", 0, ["d/y"]),
    ]
    assert found[-1] == ("exit 4", 4, [])


def test_keys_and_jobs(shell: Terminal) -> None:
    project = shell.cwd
    shell.type(b"echo begun > f; sleep 60; echo ended > f\r")
    until(lambda: is_in_foreground("sleep", str(project)))
    shell.type(b"\x03")
    shell.until(PROMPT)
    shell.type(b"sh -c 'echo go; read line; echo $line > g'\r")
    shell.until(b"go\r\n")
    shell.type(b"\x1a")
    shell.until(PROMPT)
    shell.line("rm -r f; cd -q /; cd -q -")
    shell.type(b"fg\r")
    shell.until(b"line > g'")
    shell.press(b"typed\r", PROMPT)
    until((project / "g").exists)
    assert shell.exit() == 0
    assert shell.lines()[0] == ("echo begun > f; sleep 60; echo ended > f", 130, ["f"])
    assert (project / "g").read_text() == "typed\n"
