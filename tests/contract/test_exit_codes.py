"""The exit-code table, row by row, and the shape of every failure."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.program import Program


def fails(program: Program, status: int, kind: str, *words: str) -> None:
    """In words for people and, with `--json`, in a document too; nothing on stdout."""
    told = program(*words, "--json").is_clear(status)
    assert told.out == b""
    assert set(told.error) >= {"kind", "message", "hint"}
    assert told.error["kind"] == kind
    assert told.error["message"]
    assert told.error["hint"]


@pytest.mark.parametrize(
    "words",
    [
        ["lgo"], ["log", "--limit", "x"], ["log", "--limit", "-1"], ["rollback"],
        ["rollback", "--to", "@", "--checkpoint", "1"], ["checkpoint", "delete"],
        ["rollback", "--checkpoint", "one"], ["blame"], ["blame", "a", "-L", "x"],
        ["compact", "--keep-sessions", "-1"], ["undo", "--take", "mine"], ["--frobnicate"],
        ["log", "--frobnicate"], ["undo", "a", "b"], ["session", "list", "x"],
        ["world", "blow-up"], ["session", "begin"],
        ["undo", "--path", "../elsewhere"], ["trace", "--since", "yesterday"], ["recover"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_2_usage(finished: Program, words: list[str]) -> None:
    told = finished(*words, "--json").is_clear(2)
    assert "invalid choice" not in told.errors, "our words, not those of argparse"
    assert told.error["kind"] == "usage"


def test_0_for_queries_and_changes(worked: Program) -> None:
    for words in (
        ["log"], ["show", "@"], ["diff"], ["diff", "--stat"], ["status"], ["stats"], ["fsck"],
        ["blame", "a"], ["checkpoint"], ["checkpoint", "list"], ["session", "list"],
        ["session", "current"], ["undo", "--dry-run"], ["undo"], ["redo"], ["recover", "list"],
        ["compact", "--dry-run"], ["compact"], ["fsck", "--repair"], ["trace"], ["--help"],
        ["undo", "--help"], ["--version"], ["session", "close"],
    ):  # fmt: skip
        worked(*words).went_well()


def test_4_not_found_or_ambiguous(worked: Program) -> None:
    fails(worked, 4, "not-found", "show", "c-nobody")
    fails(worked, 4, "not-found", "undo", "zzz")
    fails(worked, 4, "not-found", "rollback", "--checkpoint", "9")
    fails(worked, 4, "not-found", "blame", "nothing")
    fails(worked, 4, "not-found", "recover", "show", "c-nobody")
    fails(worked, 4, "not-found", "--session", "nobody", "log")
    fails(worked, 4, "ambiguous", "show", "c-")
    fails(worked, 4, "not-found", "-C", str(worked.cwd / ".substrate-git/.git/HEAD"), "log")
    fails(worked, 4, "not-found", "-C", "nowhere", "log")
    worked("undo").went_well()
    worked("undo").went_well()
    fails(worked, 4, "not-found", "undo")


def test_4_no_history_yet(substrate: Program) -> None:
    for words in (["log"], ["undo"], ["fsck"], ["compact"]):
        fails(substrate, 4, "not-found", *words)
    assert not (substrate.cwd / ".substrate-git").exists(), "a question makes no history"


def test_5_refused(worked: Program) -> None:
    command = worked.json("log")["commands"][0]["command_id"]
    worked("undo").went_well()
    fails(worked, 5, "refused", "undo", command)
    fails(worked, 5, "refused", "history", "reset")


def test_6_damaged(worked: Program) -> None:
    (worked.cwd / ".substrate-git/.git/HEAD").write_bytes(b"")
    done = worked("fsck", "--json")
    assert done.status == 6
    assert done.document["ok"] is False


def test_the_commands_own_status_passes_through(substrate: Program) -> None:
    for status in (0, 1, 2, 5, 42, 125, 255):
        assert substrate("-c", f"exit {status}").status == status
    assert substrate("-c", "kill -9 $$").status == -9, "it dies of the same signal"
    assert substrate("run", "--", "sh", "-c", "kill -15 $$").status == -15
    assert substrate("run", "--", "no-such-program").status == 127
    assert substrate("run", "--timeout", "0.2", "--", "sleep", "60").status == 124


def test_125_substrate_itself_failed(substrate: Program) -> None:
    told = substrate("--session", "a/b", "-c", "true").is_clear(125)
    assert told.out == b""
    substrate("run", "--world", "--no-world", "--", "true").is_clear(125)
    substrate("-c", "true", env={"SUBSTRATE_HOME": "/dev/null/x"}).is_clear(125)


def test_70_a_bug_leaves_a_report_and_no_traceback(substrate: Program, tmp_path: Path) -> None:
    """A verb that raises an unexpected exception, started like the real program."""
    broken = tmp_path / "broken.py"
    broken.write_text(
        "NAME, HELP, EXAMPLE = 'broken', 'breaks', 'substrate broken'\n"
        "def configure(parser): pass\n"
        "def run(args, context): raise RuntimeError('token=abcdefghijklmnop123456')\n"
    )
    start = (
        "import sys; from substrate.cli.main import substrate\n"
        "sys.exit(substrate(['broken', '--json'], {'broken': 'broken'}))\n"
    )
    done = substrate.start([sys.executable, "-c", start], None, b"", {"PYTHONPATH": str(tmp_path)})
    done.is_clear(70, "a bug in Substrate")
    assert done.error["kind"] == "bug"
    report = Path(done.errors.split("written to ")[1].split(";")[0])
    assert "RuntimeError" in report.read_text()
    assert report.stat().st_mode & 0o077 == 0


def test_errors_are_two_lines_for_people(finished: Program) -> None:
    first, second = finished("show", "c-nobody").errors.splitlines()
    assert first.startswith("substrate: error: ")
    assert second.startswith("hint: ")


def test_a_damaged_entry_hides_no_other_in_the_log(worked: Program) -> None:
    entries = worked.json("log")["commands"]
    commits = [e["substrate_git_commit"] for e in entries if e["substrate_git_commit"]]
    store = worked.cwd / ".substrate-git/.git"
    git = ["git", f"--git-dir={store}", "rev-parse", *(f"{one}^{{tree}}" for one in commits)]
    trees = subprocess.run(git, capture_output=True, text=True, check=True).stdout.split()
    # A question writes the newest objects again from the ledger if they are lost.
    tree = next(one for one in trees if one != trees[0])
    (store / "objects" / tree[:2] / tree[2:]).unlink()
    again = worked.json("log")["commands"]
    assert [e["command_id"] for e in again] == [e["command_id"] for e in entries]
    assert [e["command_id"] for e in again if "damaged" in e]
    assert [e["command_id"] for e in again if "damaged" not in e]
