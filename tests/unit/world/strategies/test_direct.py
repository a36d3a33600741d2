from __future__ import annotations

import os
from pathlib import Path

import pytest

from substrate.errors import UsageError, WorkspaceError
from substrate.world.interface import Isolation, RunRequest, World
from substrate.world.strategies.direct import DirectWorld


def world() -> World:
    return DirectWorld()


def test_a_shell_line_runs_where_it_should(tmp_path: Path) -> None:
    outcome = world().run(RunRequest(tmp_path, shell="echo hi > here && exit 3"))
    assert (tmp_path / "here").read_text() == "hi\n"
    assert (outcome.exit, outcome.signal, outcome.timed_out) == (3, None, False)
    assert outcome.duration_ms >= 0


def test_arguments_are_not_given_to_a_shell(tmp_path: Path) -> None:
    world().run(RunRequest(tmp_path, argv=("touch", "$HOME; *", b"a\xff")))
    assert sorted(os.listdir(os.fsencode(tmp_path))) == [b"$HOME; *", b"a\xff"]


def test_what_changed_must_be_found_by_a_scan(tmp_path: Path) -> None:
    assert world().run(RunRequest(tmp_path, shell="true")).changed is None


def test_it_says_what_it_cannot_promise() -> None:
    isolation = DirectWorld("--no-world was given").isolation
    assert isolation[:3] == ("direct", "none", "open")
    assert isolation.reason.startswith("--no-world was given; ")
    assert "excluded files" in isolation.reason
    assert "other processes" in isolation.reason


def test_the_outcome_carries_what_applied(tmp_path: Path) -> None:
    direct = DirectWorld()
    outcome = direct.run(RunRequest(tmp_path, shell="true"))
    assert outcome.isolation == direct.isolation
    assert isinstance(outcome.isolation, Isolation)
    assert outcome.scopes_used == ()


def test_variables_are_set_and_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOES", "x")
    monkeypatch.setenv("STAYS", "y")
    request = RunRequest(
        tmp_path, shell='echo "$GOES,$STAYS,$COMES" > out', env={"GOES": None, "COMES": "z"}
    )
    world().run(request)
    assert (tmp_path / "out").read_text() == ",y,z\n"


def test_stdin_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "in").write_text("text")
    stdin = os.open(tmp_path / "in", os.O_RDONLY)
    world().run(RunRequest(tmp_path, argv=("cp", "/dev/stdin", "out"), stdin=stdin))
    os.close(stdin)
    assert (tmp_path / "out").read_text() == "text"


def test_a_command_that_is_not_there_is_reported(tmp_path: Path) -> None:
    outcome = world().run(RunRequest(tmp_path, argv=("no-such-command",)))
    assert (outcome.exit, outcome.notice) == (127, "no-such-command: command not found")


def test_a_timeout_is_reported(tmp_path: Path) -> None:
    outcome = world().run(RunRequest(tmp_path, argv=("sleep", "60"), timeout_s=0.1))
    assert (outcome.exit, outcome.timed_out) == (124, True)
    assert outcome.notice == "the command was ended after 0.1 s"


@pytest.mark.parametrize("request_", [{}, {"argv": ("true",), "shell": "true"}])
def test_exactly_one_command(tmp_path: Path, request_: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        world().run(RunRequest(tmp_path, **request_))  # type: ignore[arg-type]


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError):
        world().run(RunRequest(tmp_path / "gone", shell="true"))
