"""What every verb promises a person at the prompt."""

from __future__ import annotations

import os
import pty
import shlex
import sys
from pathlib import Path

import pytest

from tests.contract.program import Program
from tests.unit.history.workbench import tree


@pytest.fixture
def substrate(tmp_path: Path) -> Program:
    project = tmp_path / "project"
    project.mkdir()
    program = Program(project)
    (project / "a").write_bytes(b"0\n")
    program.sh("echo 1 > a; echo new > b", env={"SUBSTRATE_SESSION_ID": "s-1"})
    return program


def follow_advice(program: Program, text: str) -> None:
    """Type what the program said would take it back."""
    [line] = [line for line in text.splitlines() if line.startswith("to take this back: ")]
    words = shlex.split(line.removeprefix("to take this back: "))
    assert words[0] == "substrate"
    program(*words[1:]).went_well()


@pytest.mark.parametrize(
    "words",
    [["undo"], ["rollback", "--checkpoint", "s-1/1"], ["rollback", "--checkpoint", "1", "--exact"]],
    ids=" ".join,
)
def test_whatever_changed_the_tree_says_how_to_take_it_back(
    substrate: Program, words: list[str]
) -> None:
    substrate("checkpoint").went_well()
    substrate.sh("echo 2 > a; rm b; mkdir d; echo x > d/x", env={"SUBSTRATE_SESSION_ID": "s-1"})
    before = tree(substrate.cwd)
    done = substrate(*words).went_well()
    assert tree(substrate.cwd) != before
    follow_advice(substrate, done.text)
    assert tree(substrate.cwd) == before


@pytest.mark.parametrize(
    "words",
    [
        ["undo"], ["rollback", "--checkpoint", "s-1/1"], ["compact", "--keep-sessions", "0"],
        ["history", "reset", "--yes"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_dry_run_prints_a_plan_and_changes_nothing(substrate: Program, words: list[str]) -> None:
    substrate("checkpoint").went_well()
    substrate.sh("echo 2 > a; rm b", env={"SUBSTRATE_SESSION_ID": "s-1"})
    before = tree(substrate.cwd)
    log = substrate.json("log")
    done = substrate(*words, "--dry-run").went_well()
    assert done.text.strip()
    assert tree(substrate.cwd) == before
    assert substrate.json("log") == log
    if words[0] in ("undo", "rollback"):
        assert "a" in done.text
        assert "b" in done.text


def test_no_colour_in_a_pipe(substrate: Program) -> None:
    for words in (["log"], ["diff", "@"], ["status"], ["undo", "--dry-run"]):
        assert b"\x1b" not in substrate(*words).went_well().out


@pytest.mark.needs("posix")
@pytest.mark.parametrize("no_color", ["", "1"])
def test_colour_on_a_terminal_unless_unwanted(substrate: Program, no_color: str) -> None:
    out = on_a_terminal(substrate, ["log"], {"NO_COLOR": no_color, "TERM": "xterm"})
    assert (b"\x1b[" in out) == (not no_color)


def on_a_terminal(program: Program, words: list[str], env: dict[str, str]) -> bytes:
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(program.cwd)
        os.execve(
            sys.executable,
            [sys.executable, "-m", "substrate", *words],
            {**os.environ, "SUBSTRATE_DAEMON": "off", **env},
        )
    out = b""
    while True:
        try:
            more = os.read(terminal, 65536)
        except OSError:
            break
        if not more:
            break
        out += more
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    return out


def test_at_names_the_last_command(substrate: Program) -> None:
    substrate.sh("echo 2 > a", env={"SUBSTRATE_SESSION_ID": "s-1"})
    substrate.sh("true", env={"SUBSTRATE_SESSION_ID": "s-1"})
    names = [substrate.json("show", f"@~{n}")["command"] for n in range(3)]
    assert names == ["true", "echo 2 > a", "echo 1 > a; echo new > b"]


def test_the_environment_names_session_and_agent(substrate: Program) -> None:
    env = {"SUBSTRATE_SESSION_ID": "s-2", "SUBSTRATE_AGENT_ID": "robot"}
    substrate.sh("echo 2 > a", env=env)
    newest = substrate.json("log")["commands"][0]
    assert (newest["session_id"], newest["agent_id"]) == ("s-2", "robot")
    substrate("--session", "s-3", "--agent-id", "other", "-c", "echo 3 > a", env=env).went_well()
    newest = substrate.json("log")["commands"][0]
    assert (newest["session_id"], newest["agent_id"]) == ("s-3", "other")


def test_a_nested_call_joins_the_session_and_names_its_parent(substrate: Program) -> None:
    inner = shlex.join([sys.executable, "-m", "substrate", "-c", "echo inner > i"])
    direct = {"SUBSTRATE_SESSION_ID": "s-1", "SUBSTRATE_WORLD": "disabled"}
    substrate.sh(f"{inner}; echo outer > o", env=direct)
    spans = {
        span["command"]: span
        for span in substrate.json("trace")["spans"]
        if span["event_type"] == "command_complete"
    }
    outer = next(span for command, span in spans.items() if "outer" in command)
    assert spans["echo inner > i"]["parent_span"] == outer["span_id"]
    assert spans["echo inner > i"]["session_id"] == "s-1"
    changed = {e["command"]: e["changed_files"] for e in substrate.json("log")["commands"]}
    assert changed["echo inner > i"] == ["i"]


def test_the_python_interface(substrate: Program) -> None:
    from substrate import History

    history = History(substrate.cwd)
    (substrate.cwd / "a").write_bytes(b"api\n")
    done = history.record_command_result(session_id="s-api", summary="by a program")
    assert done.changed_files == 1
    mark = history.mark_checkpoint(session_id="s-api")
    assert mark.tag == "cp/task/s-api/1"
    (substrate.cwd / "a").write_bytes(b"more\n")
    history.record_command_result(session_id="s-api")
    history.rollback_to_checkpoint(session_id="s-api", checkpoint_id=1)
    assert (substrate.cwd / "a").read_bytes() == b"api\n"
    assert substrate.json("log")["commands"][0]["kind"] == "rollback"


def test_help_is_for_people_even_beside_json(substrate: Program) -> None:
    for words in (["--help", "--json"], ["--json", "log", "--help"], ["help"], ["help", "log"]):
        assert "usage: substrate" in substrate(*words).went_well().text
    substrate().is_clear(2, "substrate --help", "on a terminal only")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_closed_streams_are_no_crash(substrate: Program, closed: str, tmp_path: Path) -> None:
    program = f"{shlex.quote(sys.executable)} -m substrate"
    done = tmp_path / "status"
    os.system(f"cd {shlex.quote(str(substrate.cwd))}; {program} log {closed}; echo $? > {done}")
    assert done.read_text() == "0\n"
