"""`substrate` called by a command that runs in a world, as its users meet it."""

from __future__ import annotations

import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.contract.program import Done, Program

pytestmark = pytest.mark.needs("overlay", "root")

INNER = shlex.join([sys.executable, "-m", "substrate"])


@pytest.fixture
def program(tmp_path: Path) -> Program:
    project = tmp_path / "project"
    (project / "sub").mkdir(parents=True)
    (project / "a").write_text("1\n")
    made = Program(project, {"HOME": str(tmp_path), "SUBSTRATE_HOME": str(tmp_path / "home")})
    made("-c", "echo 2 > a; echo n > sub/new").went_well()
    return made


def inside(program: Program, line: str, *options: str) -> Done:
    """`line` in a world; ``@S`` in it is the program."""
    return program("--world", *options, "-c", line.replace("@S", INNER))


def spans(program: Program) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = program.json("trace")["spans"]
    return [span for span in found if span["event_type"] == "command_complete"]


def test_questions_are_answered_as_outside(program: Program) -> None:
    asked = ("log --json", "show @ --json", "diff --stat", "diff @ a", "checkpoint list", "log")
    outside = [program(*words.split()).went_well().out for words in asked]
    # The command around them is not in them yet.
    answered = inside(program, "; ".join(f"@S {words}" for words in asked)).went_well()
    assert answered.out == b"".join(outside)
    assert answered.err == b""


@pytest.mark.parametrize("words", ["doctor", "agent status", "agent stop"])
def test_what_cannot_be_seen_from_inside_is_not_reported(program: Program, words: str) -> None:
    """It would say that this machine has no overlay, and that no daemon runs."""
    done = inside(program, f"@S {words}")
    assert (done.status, done.text) == (5, "")
    assert "this cannot be done from inside a world" in done.errors


def test_a_path_counts_from_the_callers_directory(program: Program) -> None:
    first = program.json("log")["commands"][0]["command_id"]
    shown = inside(program, f"cd sub && @S diff {first} new --stat").went_well()
    assert shown.text.split()[-1] == "sub/new"
    made = inside(program, f"mkdir fresh && cd fresh && @S diff {first} ../a").went_well()
    assert "+2" in made.text


def test_status_shows_this_place(program: Program) -> None:
    answered = inside(program, "@S status --json").went_well().document
    assert answered["workspace"] == str(program.cwd)
    assert [world["state"] for world in answered["worlds"]] == ["running"]


def test_the_exit_status_and_both_streams_come_through(program: Program) -> None:
    done = inside(program, "@S show c-nothing --json > out 2> err; echo $?").went_well()
    assert done.text == "4\n"
    assert (program.cwd / "out").read_text() == ""
    assert json.loads((program.cwd / "err").read_text().splitlines()[-1])["error"]["hint"]


def test_a_long_answer_and_a_reader_that_goes_away(program: Program) -> None:
    program("-c", "seq 400000 > long").went_well()
    done = inside(program, "@S diff @ | wc -c; @S diff @~1 | head -c 5; echo").went_well()
    assert int(done.text.split()[0]) > 2_000_000
    assert done.text.split()[1] == "diff"


def test_a_checkpoint_is_made_at_once_without_the_commands_own_change(program: Program) -> None:
    done = inside(program, "echo 3 > a; @S checkpoint -m half --json").went_well()
    made = done.document
    assert "not part of this checkpoint" in done.errors
    [listed] = program.json("checkpoint", "list")["checkpoints"]
    assert (listed["checkpoint_seq"], listed["message"]) == (made["checkpoint_seq"], "half")
    assert (program.cwd / "a").read_text() == "3\n"
    program("rollback", "--checkpoint", str(made["checkpoint_seq"])).went_well()
    assert (program.cwd / "a").read_text() == "2\n"


def test_an_undo_takes_effect_when_the_command_is_over(program: Program) -> None:
    first = program.json("log")["commands"][0]["command_id"]
    done = inside(program, "@S undo; cat a; echo mine > mine").went_well()
    assert done.text == f"{first} will be undone when this command is over\n2\n"
    assert f"asked for inside: undo of {first}, done as c-" in done.errors
    assert (program.cwd / "a").read_text() == "1\n"
    assert not (program.cwd / "sub" / "new").exists()
    assert (program.cwd / "mine").read_text() == "mine\n"
    kinds = [entry["kind"] for entry in program.json("log")["commands"]]
    assert kinds[:2] == ["undo", "command"]
    program("redo").went_well()
    assert (program.cwd / "a").read_text() == "2\n"


def test_undos_inside_walk_back_one_by_one(program: Program) -> None:
    program("-c", "echo 3 > a").went_well()
    done = inside(program, "@S undo; @S undo --json; @S undo; echo $?").went_well()
    assert done.text.splitlines()[-1] == "4"
    assert json.loads(done.text.splitlines()[1])["queued"] is True
    assert (program.cwd / "a").read_text() == "1\n"


@pytest.mark.parametrize("words", ["--since 1h", "--prompt", "--agent human"])
def test_inside_only_one_command_is_undone(program: Program, words: str) -> None:
    done = inside(program, f"@S undo {words}")
    assert done.status == 5
    assert "only one command is undone" in done.errors
    assert (program.cwd / "a").read_text() == "2\n"


def test_an_undo_of_one_file_and_a_dry_run(program: Program) -> None:
    plan = inside(program, "@S undo --dry-run").went_well().text
    assert "dry run" in plan
    assert (program.cwd / "a").read_text() == "2\n"
    first = program.json("log", "--path", "a")["commands"][0]["command_id"]
    inside(program, f"@S undo {first} --path a").went_well()
    assert (program.cwd / "a").read_text() == "1\n"
    assert (program.cwd / "sub" / "new").exists()


def test_an_undo_that_collides_is_reported_and_changes_nothing(program: Program) -> None:
    first = program.json("log")["commands"][0]["command_id"]
    done = inside(program, f"echo mine > a; @S undo {first} --path a").went_well()
    assert f"asked for inside, but not done: undo of {first}: 1 path conflicts" in done.errors
    assert (program.cwd / "a").read_text() == "mine\n"


def test_an_undo_waits_if_the_command_is_held(program: Program) -> None:
    done = inside(program, "@S undo; echo 9 > a", "--hold").went_well()
    assert "not undone, because the command's own change waits" in done.errors
    assert (program.cwd / "a").read_text() == "2\n"


def test_only_the_own_sessions_commands_are_undone(program: Program) -> None:
    first = program.json("log")["commands"][0]["command_id"]
    done = inside(program, f"@S undo {first}; echo $?; @S undo; echo $?", "--session", "other")
    assert done.text.split() == ["5", "4"]
    assert (program.cwd / "a").read_text() == "2\n"


def test_a_nested_command_has_a_span_below_the_outer_one(program: Program) -> None:
    line = "@S -c 'echo in > in; exit 3'; echo $?; @S run -- @S -c 'kill -9 $$'; echo $?"
    done = inside(program, line).went_well()
    assert done.text.split() == ["3", "137"]
    assert "inside a world" not in done.errors
    assert (program.cwd / "in").read_text() == "in\n"
    *_, first, third, second, outer = spans(program)
    assert (first["exit"], first["outcome"], first["command"]) == (
        3, "completed", "echo in > in; exit 3",
    )  # fmt: skip
    assert (third["exit"], third["outcome"]) == (137, "killed")
    assert (first["parent_span"], second["parent_span"]) == (outer["span_id"],) * 2
    assert third["parent_span"] == second["span_id"]
    assert first["isolation"]["strategy"] == outer["isolation"]["strategy"] == "overlay"
    assert "its changes are part of that command's" in first["isolation"]["reason"]
    assert (first["changed_files"], outer["changed_files"]) == ([], ["in"])
    assert {one["session_id"] for one in (first, second, third, outer)} == {outer["session_id"]}
    # Every id that was printed resolves.
    shown = program.json("show", first["span_id"])
    assert shown["command_id"] == first["command_id"] == outer["command_id"]


def test_a_nested_command_that_never_reported_its_end_is_closed_with_the_outer_one(
    program: Program,
) -> None:
    line = "@S -c 'touch up; sleep 60' & until test -e up; do sleep 0.1; done; kill -9 $!"
    inside(program, line, "--kill-children").went_well()
    *_, nested, outer = spans(program)
    assert (nested["outcome"], nested["exit"]) == ("unknown", None)
    assert nested["parent_span"] == outer["span_id"]


def test_more_isolation_than_there_is_cannot_be_had_inside(program: Program) -> None:
    done = inside(program, "@S --isolate full -c 'touch ran'; echo $?").went_well()
    assert done.text == "125\n"
    assert "hint: run the outer command with --isolate full" in done.errors
    assert not (program.cwd / "ran").exists()
    options = ("--hold", "--no-world", "--live", "--net off")
    tried = "".join(f"@S {option} -c 'touch never'; echo $?; " for option in options)
    done = inside(program, f"{tried} @S --isolate workspace -c 'touch ran'").went_well()
    assert done.text.split() == ["125"] * len(options)
    assert (program.cwd / "ran").exists()
    assert not (program.cwd / "never").exists()


def test_everything_else_is_refused_with_a_hint(program: Program) -> None:
    refused = ("redo", "rollback --session x", "recover list", "world list", "compact", "fsck",
               "session list", "history reset --yes", "blame a")  # fmt: skip
    done = inside(program, "; ".join(f"@S {words}; echo $?" for words in refused)).went_well()
    assert done.text.split() == ["5"] * len(refused), done.errors
    assert done.errors.count("hint: log, show, diff") == len(refused)


def test_help_needs_no_daemon(program: Program) -> None:
    done = inside(program, "@S log --help; SUBSTRATE_BROKER=/nowhere @S undo --help").went_well()
    assert done.text.count("usage:") == 2


def test_after_the_command_there_is_no_answer(program: Program, tmp_path: Path) -> None:
    said = tmp_path / "said"
    ask = f"until test -e {said}.go; do sleep 0.05; done; @S log > {said}.out 2> {said}.err"
    inside(program, f"({ask}; touch {said}.done) > /dev/null 2>&1 &").went_well()
    Path(f"{said}.go").touch()
    deadline = time.monotonic() + 60
    while not Path(f"{said}.done").exists():
        assert time.monotonic() < deadline, "it never asked"
        time.sleep(0.05)
    assert Path(f"{said}.out").read_text() == ""
    assert "the command around this one is over" in Path(f"{said}.err").read_text()


def test_twenty_calls_at_once_are_all_answered(program: Program) -> None:
    line = "for i in $(seq 20); do @S show @ --json > out.$i & done; wait; cat out.* | wc -l"
    assert inside(program, line).went_well().text.strip() == "20"
