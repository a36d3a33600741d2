"""What people read: that it is true, names what it speaks of, and says what to do next."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.contract.program import Program


def test_a_dry_run_names_what_it_is_the_plan_of(finished: Program) -> None:
    newest = finished.json("log", "--limit", "1")["commands"][0]["command_id"]
    plan = finished("undo", "--dry-run").went_well().text.splitlines()
    assert plan == [f"would undo {newest}  rm b; exit 3  (dry run)", "restore b"]
    assert finished.json("undo", "--dry-run")["what"] == f"undo of {newest}"


def test_undo_and_redo_name_the_command_and_its_text(worked: Program) -> None:
    newest = worked.json("log", "--limit", "1")["commands"][0]["command_id"]
    for verb, said in (("undo", "undid"), ("redo", "redid"), ("undo", "undid")):
        first = worked(verb).went_well().text.splitlines()[0]
        assert first == f"{said} {newest}  rm b; exit 3: 1 file"


def test_a_rollback_lists_the_commands_that_it_takes_back(worked: Program) -> None:
    worked.sh("true")
    worked("checkpoint").went_well()
    worked.sh("echo x > x")
    worked.sh("printf 'two\nlines' > y")
    worked.sh("echo gone > z")
    undone, last, first = worked.json("log", "--limit", "3")["commands"]
    worked("undo").went_well()
    heading, *lines = worked("rollback", "--checkpoint", "1").went_well().text.splitlines()
    assert heading == f"rollback to cp/task/{first['session_id']}/1: 2 files"
    assert lines[:2] == [
        f"  undid {last['command_id']}  printf 'two …",
        f"  undid {first['command_id']}  echo x > x",
    ]
    heading, *lines = worked("redo").went_well().text.splitlines()
    assert heading.startswith("took back c-")
    assert [line.split()[:2] for line in lines[:2]] == [
        ["redid", last["command_id"]],
        ["redid", first["command_id"]],
    ]
    assert undone["command_id"] not in "".join(lines)


@pytest.mark.needs("linux")
def test_a_long_command_is_cut_to_the_terminal(worked: Program) -> None:
    worked.sh("echo " + "long " * 40 + "> long")
    shown = worked.on_a_terminal(60, "undo")
    assert shown[0].startswith("undid c-")
    assert shown[0].endswith("…: 1 file")
    assert len(shown[0]) == 60


def test_the_beginning_of_a_session_is_answered_with_the_whole_command(substrate: Program) -> None:
    substrate.sh("echo 1 > a")
    session = substrate.json("session", "list")["sessions"][0]["session_id"]
    for words in (["undo"], ["rollback", "--to"]):
        told = substrate(*words, session[:6]).is_clear(5, "is only the beginning")
        assert f"`substrate {' '.join(words)} {session}`" in told.errors


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
    shown = finished.on_a_terminal(columns, "log")
    assert [line for line in shown if len(line) > columns] == []
    header, *lines = shown
    words = {"when", "id", "session", "exit", "files", "what"}
    assert {word for word in words if word not in header.split()} == set(left_away)
    assert any("rm b; exit 3" in line for line in lines), "what was run is the point of it"


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


def test_a_path_from_the_root_in_a_subdirectory(worked: Program) -> None:
    (worked.cwd / "sub").mkdir()
    told = worked("diff", "@", "b", cwd=worked.cwd / "sub").went_well()
    assert "changed no files in sub/b;" in told.errors
    call = told.errors.rpartition(": substrate ")[2].split()
    assert call[-1] == "../b"
    assert b"deleted file" in worked(*call, cwd=worked.cwd / "sub").went_well().out


def test_the_hints_of_a_conflict_can_be_typed_as_they_are(substrate: Program) -> None:
    sub = substrate.cwd / "sub"
    sub.mkdir()
    file = sub / "a file"
    file.write_text("one\ntwo\nthree\nfour\n")
    substrate.sh("sed -i s/two/TWO/ 'sub/a file'; echo n > n")
    file.write_text("one\nTWO\nTHREE\nfour\n")
    by = substrate.json("log", "--path", "n")["commands"][0]["command_id"]
    told = substrate("undo", "--path", "a file", cwd=sub)
    told.is_clear(1, "1 path conflicts", "same or adjacent lines were changed since")
    calls = _quoted_calls(told.errors)
    assert calls == [
        f"substrate undo {by} --path 'a file' --take {side}" for side in ("ours", "theirs")
    ]
    told = substrate("undo", cwd=sub).is_clear(1, "1 path conflicts")
    assert _quoted_calls(told.errors)[-1] == f"substrate undo {by} --skip-conflicts"
    substrate(*shlex.split(calls[-1])[1:], cwd=sub).went_well()
    assert file.read_text() == "one\ntwo\nthree\nfour\n"


def test_a_conflict_in_a_binary_file_does_not_mention_lines(substrate: Program) -> None:
    (substrate.cwd / "a").write_bytes(b"\0one")
    substrate.sh("printf '\\0two' > a")
    (substrate.cwd / "a").write_bytes(b"\0three")
    substrate("undo").is_clear(1, "a: it is not text, and it was changed since")


def test_the_hints_of_a_rollback_that_conflicts_name_the_point(worked: Program) -> None:
    first = worked.json("log", "--limit", "2")["commands"][-1]["command_id"]
    worked.sh("echo 2 > a", env={"SUBSTRATE_SESSION_ID": "s-1"})
    (worked.cwd / "a").write_bytes(b"3\n")
    told = worked("rollback", "--to", first).is_clear(1)
    calls = _quoted_calls(told.errors)
    assert calls[0] == f"substrate rollback --to {first} --take ours"


def _quoted_calls(text: str) -> list[str]:
    return re.findall("`(substrate [^`]*)`", text)


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
    assert worked("undo", "--take", "theirs").went_well().text.startswith("undid ")
    assert not (worked.cwd / "c").exists()


def test_the_current_session_is_the_callers_own(substrate: Program) -> None:
    agent = {"SUBSTRATE_AGENT_ID": "claude-code"}
    substrate.sh("echo 1 > a", env=agent)
    theirs = substrate.json("session", "list")["sessions"][0]["session_id"]
    told = substrate("session", "current").is_clear(4, "no session of yours is open here")
    assert f"{theirs} of claude-code is open" in told.errors
    substrate.sh("echo 2 > a")
    substrate.sh("echo 3 > a", env=agent)
    mine = substrate.json("session", "current")
    assert (mine["agent_id"], mine["session_id"] != theirs) == ("human", True)
    assert substrate.json("status")["session_id"] == mine["session_id"]
    of_agent = substrate("session", "current", "--json", env=agent).went_well().document
    assert of_agent["session_id"] == theirs


def test_a_search_without_a_hit_says_so(finished: Program) -> None:
    told = finished("recover", "search", "no such text").is_status(1)
    assert "no line in any kept snapshot matches 'no such text'" in told.errors
    assert finished("recover", "search", "no such text", "--json").document == {
        "matches": [],
        "truncated": False,
    }


def test_a_replay_warns_once_of_a_lost_stdin(substrate: Program) -> None:
    substrate("-c", "cat > a", stdin=b"x").went_well()
    told = substrate("replay", "@")
    assert told.errors.count("stdin") == 1


@pytest.mark.needs("linux")
def test_forget_asks_with_the_plan_and_without_the_words_of_a_dry_run(worked: Program) -> None:
    lines = worked.on_a_terminal(200, "forget", "mine", typed=b"\n", status=5)
    assert "Would be removed:" in lines
    assert any(line.startswith("Nothing brings this back. Type forget") for line in lines)
    assert not any("Run it again without" in line for line in lines)
    lines = worked.on_a_terminal(200, "forget", "unknown", typed=b"\n")
    assert lines.count("Nothing recorded here holds it.") == 1
    assert not any("Type forget" in line for line in lines)
    (worked.cwd / "mine").unlink()
    assert "Removed for good:" in worked.on_a_terminal(200, "forget", "mine", typed=b"forget\n")


def test_an_empty_word_does_not_mean_everything(worked: Program) -> None:
    """Such as `undo --path "$FILE"` where the variable is not set."""
    before = worked.json("log")
    for words in (
        ["undo", "--path", ""], ["undo", "--session", ""], ["log", "--path", ""],
        ["log", "--session", ""], ["-C", "", "log"], ["session", "start", ""], ["forget", ""],
        ["rollback", "--to", "@", "--path", ""], ["diff", "@", ""],
    ):  # fmt: skip
        worked(*words).is_clear(2, "empty")
    worked("undo", "--prompt", "").is_clear(4, "no prompt matches ''")
    told = worked("undo", "").is_clear(4)
    assert "--path" not in told.errors
    assert worked.json("log") == before


def test_huge_numbers_are_no_bugs(finished: Program) -> None:
    huge = "9" * 30
    assert finished.json("log", "--limit", huge) == finished.json("log", "--limit", "0")
    finished("show", f"@~{huge}").is_clear(4, "matches '@~999")
    finished("rollback", "--dry-run", "--checkpoint", huge).is_clear(2, "not a checkpoint")
    finished("rollback", "--dry-run", "--checkpoint", "²").is_clear(2, "not a checkpoint")
