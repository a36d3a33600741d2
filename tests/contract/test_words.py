"""What people read: that it is true, names what it speaks of, and says what to do next."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress

import pytest

from tests.contract.program import Program


def test_a_dry_run_names_what_it_is_the_plan_of(finished: Program) -> None:
    newest = finished.json("log", "--limit", "1")["commands"][0]["command_id"]
    plan = finished("undo", "--dry-run").went_well().text.splitlines()
    assert plan == [f"undo of {newest}  (dry run)", "restore b"]
    assert finished.json("undo", "--dry-run")["what"] == f"undo of {newest}"


def test_the_log_says_in_words_what_no_command_did(finished: Program) -> None:
    text = finished("log").went_well().text
    assert "[external] changed outside Substrate" in text
    assert text.endswith("1  [baseline] the files as first found\n")


@pytest.mark.needs("linux")
@pytest.mark.parametrize(
    ("columns", "left_away"),
    [
        (120, []),
        (80, ["session"]),
        (60, ["session", "when"]),
        (40, ["session", "when", "files"]),
        (34, ["session", "when", "files", "exit"]),
    ],
)
def test_the_log_fits_the_terminal(finished: Program, columns: int, left_away: list[str]) -> None:
    shown = _on_a_terminal(finished, columns, "log")
    assert [line for line in shown if len(line) > columns] == []
    header, *lines = shown
    words = {"when", "id", "session", "exit", "files", "what"}
    assert {word for word in words if word not in header.split()} == set(left_away)
    assert any("rm b; exit 3" in line for line in lines), "what was run is the point of it"


def _on_a_terminal(program: Program, columns: int, *words: str) -> list[str]:
    import termios

    leader, follower = os.openpty()
    termios.tcsetwinsize(follower, (24, columns))
    env = {**os.environ, **program.env, "SUBSTRATE_AGENT": "off", "TERM": "dumb"}
    process = subprocess.Popen(
        [sys.executable, "-m", "substrate", *words], cwd=program.cwd, env=env,
        stdin=follower, stdout=follower, stderr=follower,
    )  # fmt: skip
    os.close(follower)
    shown = b""
    with suppress(OSError):  # Linux's way to say that the other side has closed
        while data := os.read(leader, 65536):
            shown += data
    os.close(leader)
    assert process.wait() == 0
    return shown.decode().replace("\r", "").splitlines()


def test_the_baseline_counts_files_and_empty_directories(substrate: Program) -> None:
    (substrate.cwd / "d/e").mkdir(parents=True)
    (substrate.cwd / "empty").mkdir()
    (substrate.cwd / "d/e/f").write_bytes(b"")
    substrate.sh("true")
    assert "  2  [baseline]" in substrate("log").text


def test_a_diff_of_nothing_says_so_beside_the_answer(finished: Program) -> None:
    done = finished("diff", "@", "mine").went_well()
    assert done.out == b""
    assert "changed no files in mine" in done.errors


def test_a_file_in_the_place_of_an_id(finished: Program) -> None:
    finished("diff", "mine").is_clear(4, "hint: for a file of the last command", "diff @ mine")


def test_a_command_that_was_not_quoted(substrate: Program) -> None:
    substrate("-c", "make", "test").is_clear(125, "'test' is one too many", "-c 'make test'")


def test_an_empty_command_is_refused_and_not_recorded(finished: Program) -> None:
    before = finished.json("log")
    finished("-c", "").is_clear(125, "no command was given")
    assert finished.json("log") == before


def test_a_missing_action_is_named(substrate: Program) -> None:
    substrate("session").is_clear(2, "start|close|list|current")
    substrate("history").is_clear(2, "reset")


def test_nothing_to_start_over(substrate: Program) -> None:
    for options in ([], ["--dry-run"], ["--yes"]):
        substrate("history", "reset", *options).is_clear(4, "no history in")


def test_a_repair_takes_a_dry_run(worked: Program) -> None:
    tip = worked.cwd / ".substrate-git/.git/refs/heads/main"
    tip.unlink()
    told = worked("fsck", "--repair", "--dry-run")
    assert (told.status, tip.exists()) == (6, False)
    assert "substrate fsck --repair" in told.errors
    worked("fsck", "--repair").went_well()
    assert tip.exists()


def test_a_compaction_with_nothing_to_do_does_not_report_growth(worked: Program) -> None:
    worked("compact").went_well()
    second = worked.json("compact")
    assert second["size_after"] <= second["size_before"]


def test_everything_skipped_is_not_called_done(worked: Program) -> None:
    worked.sh("echo theirs > c", env={"SUBSTRATE_SESSION_ID": "s-1"})
    (worked.cwd / "c").write_bytes(b"mine\n")
    done = worked("undo", "--skip-conflicts")
    assert done.status == 1
    assert done.text.startswith("nothing was changed: every path is in conflict")
    assert worked("undo", "--take", "theirs").went_well().text.startswith("undo of ")
    assert not (worked.cwd / "c").exists()
