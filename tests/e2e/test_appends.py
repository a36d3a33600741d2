"""Several writers append to one log at once: every line stays in the tree."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.contract.program import Program

pytestmark = pytest.mark.needs("world-overlay")

_AGENTS, _TURNS = 3, 5


@pytest.fixture
def program(tmp_path: Path) -> Program:
    project = tmp_path / "project"
    project.mkdir()
    return Program(project)


def in_order(lines: list[str], agent: int) -> list[str]:
    return [line for line in lines if line.startswith(f"agent {agent} ")]


@pytest.mark.parametrize("first", [None, "", "one line of the user's\n"])
def test_three_agents_and_a_user_write_one_log(program: Program, first: str | None) -> None:
    log = program.cwd / "log"
    if first is not None:
        log.write_text(first)
    program("-c", "true").went_well()

    def agent(number: int) -> list[int]:
        statuses = []
        for turn in range(_TURNS):
            line = (
                f"echo agent {number} begins {turn} >> log; sleep 0.2;"
                f" echo agent {number} ends {turn} >> log"
            )
            statuses.append(program("--session", f"s-{number}", "-c", line).status)
        return statuses

    with ThreadPoolExecutor(_AGENTS) as pool:
        running = [pool.submit(agent, number) for number in range(_AGENTS)]
        # The user appends, too, while the agents work.
        if first:
            with log.open("a") as file:
                file.write("and another\n")
        assert [one.result() for one in running] == [[0] * _TURNS] * _AGENTS

    lines = log.read_text().splitlines()
    for number in range(_AGENTS):
        assert in_order(lines, number) == [
            f"agent {number} {word} {turn}" for turn in range(_TURNS) for word in ("begins", "ends")
        ]
    users = ["one line of the user's", "and another"] if first else []
    assert len(lines) == 2 * _AGENTS * _TURNS + len(users)
    assert [line for line in lines if not line.startswith("agent")] == users
    program("fsck").went_well()


def test_one_append_is_undone_and_the_others_stay(program: Program) -> None:
    (program.cwd / "log").write_text("0\n")
    for number in (1, 2, 3):
        program("-c", f"echo {number} >> log").went_well()
    with (program.cwd / "log").open("a") as log:
        log.write("mine\n")
    program("undo", "@~1").went_well()
    assert (program.cwd / "log").read_text() == "0\n1\n3\nmine\n"
    program("redo").went_well()
    assert (program.cwd / "log").read_text() == "0\n1\n2\n3\nmine\n"


def test_a_part_without_a_newline_is_a_conflict(program: Program) -> None:
    (program.cwd / "log").write_text("0\n")
    program("--hold", "-c", "printf half >> log").went_well()
    [held] = program.json("world", "list")["worlds"]
    with (program.cwd / "log").open("a") as log:
        log.write("mine\n")
    assert program("world", "apply", held["world_id"]).status == 1
    assert (program.cwd / "log").read_text() == "0\nmine\n"


@pytest.mark.parametrize("first", [None, ""])
@pytest.mark.parametrize("name", ["settings.json", "Makefile", "module.py"])
def test_two_documents_are_not_put_together(program: Program, name: str, first: str | None) -> None:
    """Seen: a JSON file that two commands created held both documents, one after the other."""
    file = program.cwd / name
    if first is not None:
        file.write_text(first)
    program("--hold", "-c", f"echo theirs > {name}").went_well()
    [held] = program.json("world", "list")["worlds"]
    file.write_text("mine\n")
    done = program("world", "apply", held["world_id"]).is_status(1)
    assert file.read_text() == "mine\n"
    show = re.search(r"`substrate (recover show \S+)`", done.errors)
    assert show is not None
    assert program(*show[1].split(), name).went_well().text == "theirs\n"


@pytest.mark.parametrize("name", ["run.log", "notes.txt", "LOG", "events.jsonl", "results"])
def test_two_logs_are_put_together(program: Program, name: str) -> None:
    program("--hold", "-c", f"echo theirs > {name}").went_well()
    [held] = program.json("world", "list")["worlds"]
    (program.cwd / name).write_text("mine\n")
    program("world", "apply", held["world_id"]).went_well()
    assert (program.cwd / name).read_text() == "mine\ntheirs\n"
