from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from substrate.system import environment
from substrate.system.environment import parse


def test_everything_has_a_default() -> None:
    found = parse({"HOME": "/home/ada"})
    assert found.home == Path("/home/ada")
    assert found.substrate_home == Path("/home/ada/.substrate")
    assert found.trace_path == Path("/home/ada/.substrate/trace.jsonl")
    assert (found.session_id, found.agent_id, found.world) == (None, "human", None)
    assert found.daemon_enabled
    assert not found.no_color
    assert found.parent_span is None


def test_what_is_set_is_taken() -> None:
    found = parse(
        {
            "HOME": "/home/ada",
            "SUBSTRATE_HOME": "/srv/substrate",
            "SUBSTRATE_SESSION_ID": "s-1",
            "SUBSTRATE_AGENT_ID": "claude",
            "SUBSTRATE_WORLD": "Disabled",
            "SUBSTRATE_DAEMON": "off",
            "SUBSTRATE_PARENT_SPAN": "spn_1",
            "NO_COLOR": "1",
        }
    )
    assert found.substrate_home == Path("/srv/substrate")
    assert found.trace_path == Path("/srv/substrate/trace.jsonl")
    assert (found.session_id, found.agent_id, found.world) == ("s-1", "claude", "disabled")
    assert not found.daemon_enabled
    assert found.no_color
    assert found.parent_span == "spn_1"


@pytest.mark.parametrize(
    ("said", "agent_id"),
    [
        ({"AI_AGENT": "claude-code_2-1-325_agent"}, "claude-code"),
        ({"CODEX_SESSION_ID": "0199"}, "codex"),
        ({"CODEX_SANDBOX": "seatbelt"}, "codex"),
        ({"CODEX_HOME": "/home/ada/.codex"}, "human"),
        ({"CLAUDECODE": "1"}, "claude-code"),
        ({"GEMINI_CLI": "1"}, "gemini-cli"),
        ({"CURSOR_AGENT": "1"}, "cursor"),
        ({"AI_AGENT": "claude-code_2-1-325_agent", "SUBSTRATE_AGENT_ID": "mine"}, "mine"),
        ({"AI_AGENT": "", "CODEX_SESSION_ID": ""}, "human"),
    ],
)
def test_a_coding_agent_names_itself(said: dict[str, str], agent_id: str) -> None:
    assert parse({"HOME": "/home/ada", **said}).agent_id == agent_id


def test_a_trace_of_its_own() -> None:
    found = parse({"HOME": "/home/ada", "SUBSTRATE_TRACE": "/var/log/t.jsonl"})
    assert found.trace_path == Path("/var/log/t.jsonl")


def test_a_relative_place_is_fixed_by_the_present_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = parse({"HOME": "/home/ada", "SUBSTRATE_HOME": "here", "SUBSTRATE_TRACE": "t.jsonl"})
    assert found.substrate_home == Path(os.getcwd(), "here")
    assert found.trace_path == Path(os.getcwd(), "t.jsonl")


@pytest.mark.parametrize("name", ["SUBSTRATE_HOME", "SUBSTRATE_SESSION_ID", "NO_COLOR"])
def test_set_but_empty_is_not_set(name: str) -> None:
    variables = {"HOME": "/home/ada"}
    plain = parse(variables)
    assert parse({**variables, name: ""})._replace(variables={}) == plain._replace(variables={})


def test_an_unknown_world_is_as_none() -> None:
    assert parse({"HOME": "/h", "SUBSTRATE_WORLD": "maybe"}).world is None


@pytest.mark.parametrize("variables", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_without_a_home_there_still_is_a_place(variables: dict[str, str]) -> None:
    found = parse(variables)
    assert found.substrate_home.is_absolute()
    assert found.trace_path.is_absolute()


def test_the_process_environment_is_read_at_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBSTRATE_AGENT_ID", "one")
    before = environment.current()
    monkeypatch.setenv("SUBSTRATE_AGENT_ID", "two")
    assert (before.agent_id, environment.current().agent_id) == ("one", "two")
    assert before.get("SUBSTRATE_AGENT_ID") == "one"


@pytest.mark.needs("linux")
def test_an_environment_that_is_replaced_is_the_new_one_alone() -> None:
    before = dict(os.environb)
    wanted = {b"PATH": before[b"PATH"], b"NEW": b"\xff", b"EMPTY": b""}
    try:
        environment.replace({**wanted, b"OLD": b"1"})
        environment.replace(wanted)
        assert dict(os.environb) == wanted
        said = subprocess.run(["env", "-0"], capture_output=True, check=True).stdout
        # C libraries may have put variables of their own beside these (readline: COLUMNS, LINES).
        had = {pair.partition(b"=")[0] for pair in said.split(b"\0")} & {*before, *wanted, b"OLD"}
        assert had - {b"COLUMNS", b"LINES"} == set(wanted)
        assert b"NEW=\xff" in said.split(b"\0")
    finally:
        environment.replace(before)
    assert dict(os.environb) == before


@pytest.mark.parametrize("name", ["SUBSTRATE_DAEMON", "SUBSTRATE_AGENT"])
def test_the_daemon_is_switched_off_by_either_name(name: str) -> None:
    assert not parse({name: "Off", "HOME": "/"}).daemon_enabled
    assert parse({name: "on", "HOME": "/"}).daemon_enabled
