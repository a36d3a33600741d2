"""`substrate completion`, and `log --grep`."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.contract.program import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    project = tmp_path / "project"
    project.mkdir()
    return Program(project)


def completed(program: Program, script: str, *words: str) -> list[str]:
    """What bash would offer for the last of the words."""
    line = (
        f"{script}\nCOMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1};"
        ' _substrate; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", line], cwd=program.cwd, env={**os.environ, **program.env, "PATH": path},
        capture_output=True, check=True, text=True,
    )  # fmt: skip
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_verbs_options_and_ids(program: Program) -> None:
    program("-c", "echo 1 > a").went_well()
    newest = program.json("log")["commands"][0]["command_id"]
    script = program("completion", "bash").went_well().text
    assert completed(program, script, "substrate", "wor") == ["world"]
    assert completed(program, script, "substrate", "world", "dis") == ["discard"]
    assert "--dry-run" in completed(program, script, "substrate", "world", "apply", "--d")
    assert completed(program, script, "substrate", "recover", "sea") == ["search"]
    assert newest in completed(program, script, "substrate", "-C", ".", "undo", "c-")


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_script_is_one_that_the_shell_can_read(program: Program, shell: str) -> None:
    script = program("completion", shell).went_well().text
    assert "substrate completion ids" in script and "discard" in script
    if shutil.which(shell) is not None:
        checked = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_without_a_history_no_id_is_offered(program: Program) -> None:
    done = program("completion", "ids").went_well()
    assert (done.text, done.errors) == ("", "")


def test_the_log_is_searched_for_a_text(program: Program) -> None:
    for line in ("echo ONE > a", "echo two > b", "echo one > c"):
        program("-c", line).went_well()
    found = program.json("log", "--grep", "One")["commands"]
    assert [one["command"] for one in found] == ["echo one > c", "echo ONE > a"]
    assert len(program.json("log", "--grep", "one", "--limit", "1")["commands"]) == 1
    [both] = program.json("log", "--grep", "one", "--path", "a")["commands"]
    assert both["command"] == "echo ONE > a"
    assert "no recorded command has 'three'" in program("log", "--grep", "three").text


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_runs_nothing_that_an_id_contains(program: Program, tmp_path: Path) -> None:
    """A store can come from a stranger, and bash expands the words that it is offered."""
    program("-c", "echo 1 > a").went_well()
    script = program("completion", "bash").went_well().text
    with closing(sqlite3.connect(program.cwd / ".substrate-git/index/history.db")) as ledger:
        forged = f"s-$(>{tmp_path}/ran)"
        ledger.execute("UPDATE entries SET session_id = ? WHERE kind = 'command'", [forged])
        ledger.commit()
    completed(program, script, "substrate", "show", "s-")
    assert not (tmp_path / "ran").exists()
