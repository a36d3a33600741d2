"""Every `--json` answer has the fields that docs/commands.md promises; more are allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.contract.program import Program

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
COMMIT = re.compile(r"[0-9a-f]{40}")

ENTRY = {
    "session_id", "command_id", "span_id", "ts", "command", "exit", "duration_ms",
    "changed_files", "substrate_git_commit", "kind", "isolation",
}  # fmt: skip
OUTCOME = {
    "commit", "restored", "deleted", "merged", "conflicts", "recovery_ref", "recover_with",
}  # fmt: skip
CHECKPOINT = {"session_id", "checkpoint_seq", "commit", "tag", "message"}
SESSION = {"session_id", "started", "closed", "commands", "checkpoints", "agent_id"}
STATS = {"size_bytes", "commits", "commands", "checkpoints", "sessions", "last_compaction"}
FILE = {"path", "change", "binary", "additions", "deletions", "old", "new"}
SPAN = {
    "ts", "event_type", "session_id", "command_id", "span_id", "parent_span", "agent_id",
    "workspace", "cwd", "command", "exit", "duration_ms", "changed_files", "fs_diff",
    "scopes_used", "substrate_git_commit", "base_commit", "isolation", "stdout", "stderr",
    "replay_context", "conflicts", "outcome",
}  # fmt: skip
KINDS = {
    "baseline", "command", "external", "undo", "redo", "rollback", "restore", "squash",
}  # fmt: skip


def has(document: Mapping[str, object], fields: Iterable[str]) -> None:
    missing = set(fields) - set(document)
    assert not missing, f"promised and not there: {sorted(missing)}"


def test_log(finished: Program) -> None:
    document = finished.json("log")
    entries = document["commands"]
    for entry in entries:
        has(entry, ENTRY)
        assert entry["kind"] in KINDS
        assert TIME.fullmatch(entry["ts"])
    assert [e["kind"] for e in entries] == [
        "command", "external", "command", "command", "baseline",
    ]  # fmt: skip
    failed, outside, idle, first, _ = entries
    assert (failed["exit"], failed["changed_files"]) == (3, ["b"])
    assert (idle["changed_files"], idle["substrate_git_commit"]) == ([], None)
    assert sorted(first["changed_files"]) == ["a", "b"]
    assert COMMIT.fullmatch(first["substrate_git_commit"])
    assert outside["command_id"].startswith("c-")
    has(first["isolation"], {"strategy", "tier", "network", "reason"})
    assert first["isolation"]["strategy"] == "direct"
    assert isinstance(first["duration_ms"], int)


def test_log_options(finished: Program) -> None:
    assert len(finished.json("log", "--limit", "2")["commands"]) == 2
    assert len(finished.json("--session", "s-1", "log")["commands"]) == 3
    kinds = [e["kind"] for e in finished.json("log", "--path", "mine")["commands"]]
    assert kinds == ["external"]


def test_show(finished: Program) -> None:
    document = finished.json("show", "@")
    has(document, ENTRY)
    assert document["command"] == "rm b; exit 3"
    has(finished.json("show", "s-1"), {"session_id"})


def test_diff(finished: Program) -> None:
    document = finished.json("diff", "@~2")
    has(document, {"command_id", "files"})
    a, b = document["files"]
    has(a, FILE)
    assert (a["path"], a["change"], a["binary"]) == ("a", "modified", False)
    assert (a["additions"], a["deletions"]) == (1, 1)
    assert (b["path"], b["change"], b["old"]) == ("b", "added", None)
    assert b["new"]["mode"] == "0755"
    assert [f["change"] for f in finished.json("diff", "@")["files"]] == ["deleted"]


def test_diff_kinds(substrate: Program) -> None:
    substrate.sh("printf 'a\\0' > bin; echo x > m; echo x > t; mkdir e")
    substrate.sh("printf 'b\\0' > bin; chmod 600 m; rm t; ln -s m t; rmdir e")
    files = {f["path"]: f for f in substrate.json("diff", "@")["files"]}
    assert {name: f["change"] for name, f in files.items()} == {
        "bin": "modified", "m": "mode", "t": "type", "e": "deleted",
    }  # fmt: skip
    assert files["bin"]["binary"] is True
    assert [f["path"] for f in substrate.json("diff", "@", "m")["files"]] == ["m"]


def test_undo_and_redo(worked: Program) -> None:
    document = worked.json("undo")
    has(document, OUTCOME)
    assert COMMIT.fullmatch(document["commit"])
    assert document["restored"] == ["b"]
    assert document["recovery_ref"].startswith("refs/")
    assert document["recover_with"].startswith("substrate recover restore ")
    again = worked.json("redo")
    has(again, OUTCOME)
    assert again["deleted"] == ["b"]


def test_the_printed_way_back_works(worked: Program) -> None:
    document = worked.json("undo")
    assert (worked.cwd / "b").exists()
    words = document["recover_with"].split()
    has(worked.json(*words[1:]), OUTCOME)
    assert not (worked.cwd / "b").exists()


def test_undo_dry_run(finished: Program) -> None:
    document = finished.json("undo", "--dry-run")
    has(document, OUTCOME)
    assert document["commit"] is None
    assert document["restored"] == ["b"]
    assert not (finished.cwd / "b").exists()


def test_conflicts(worked: Program) -> None:
    target = worked.json("log")["commands"][3]["command_id"]
    (worked.cwd / "a").write_bytes(b"mine\n")
    refused = worked("undo", target, "--json").is_clear(1, "conflict")
    assert refused.out == b""
    assert refused.error["kind"] == "conflict"
    assert refused.error["paths"] == ["a"]
    done = worked("undo", target, "--skip-conflicts", "--json")
    assert done.status == 1, "conflicts are left"
    [conflict] = done.document["conflicts"]
    has(conflict, {"path", "reason"})
    assert conflict["path"] == "a"


def test_rollback(worked: Program) -> None:
    first = worked.json("log")["commands"][3]["command_id"]
    document = worked.json("rollback", "--to", first)
    has(document, OUTCOME)
    assert document["restored"] == ["b"]
    assert (worked.cwd / "mine").exists()
    exact = worked.json("rollback", "--to", first, "--exact")
    assert exact["deleted"] == ["mine"]


def test_a_checkpoint_names_the_agent_whose_session_it_marks(worked: Program) -> None:
    robot = Program(worked.cwd, {**worked.env, "SUBSTRATE_AGENT_ID": "robot"})
    robot.sh("echo by a robot > b")
    assert worked.json("checkpoint")["agent_id"] == "robot"
    assert "(agent: robot)" in worked("checkpoint").went_well().text
    assert "(agent:" not in robot("checkpoint").went_well().text


def test_checkpoints(worked: Program) -> None:
    made = worked.json("checkpoint", "create", "-m", "tests pass")
    has(made, CHECKPOINT)
    assert made["checkpoint_seq"] == 1
    assert made["tag"] == f"cp/task/{made['session_id']}/1"
    assert made["message"] == "tests pass"
    assert made["agent_id"] == "human"
    worked.json("checkpoint")
    listed = worked.json("checkpoint", "list")["checkpoints"]
    assert [c["checkpoint_seq"] for c in listed] == [1, 2], "oldest first"
    for one in listed:
        has(one, CHECKPOINT)


def test_sessions(worked: Program) -> None:
    has(worked.json("session", "start", "s-2"), {"session_id", "started"})
    listed = {s["session_id"]: s for s in worked.json("session", "list")["sessions"]}
    for one in listed.values():
        has(one, SESSION)
    assert listed["s-1"]["commands"] == 3
    assert listed["s-1"]["closed"] is None
    assert worked.json("session", "current")["session_id"] == "s-2"
    closed = worked.json("session", "close", "s-1")
    assert TIME.fullmatch(closed["closed"])


def test_a_closed_session_is_not_the_current_one(worked: Program) -> None:
    assert worked.json("status")["session_id"] == "s-1"
    worked.json("session", "close")
    document = worked.json("status")
    assert (document["session_id"], document["last_session_id"]) == (None, "s-1")
    assert "none open; s-1 was the last" in worked("status").text
    worked("session", "current", "--json").is_clear(4, "no session is open here", "s-1")


def test_stats(worked: Program) -> None:
    document = worked.json("stats")
    has(document, STATS)
    assert document["last_compaction"] is None
    assert (document["commits"], document["commands"], document["sessions"]) == (4, 3, 1)
    worked.json("compact")
    assert TIME.fullmatch(worked.json("stats")["last_compaction"])


def test_status(worked: Program) -> None:
    (worked.cwd / "node_modules").mkdir()
    (worked.cwd / "node_modules/x").write_bytes(b"x")
    document = worked.json("status")
    has(document, {"workspace", "session_id", "agent_id", "excluded"})
    assert document["workspace"] == str(worked.cwd)
    reasons = {e["path"]: e["reason"] for e in document["excluded"]}
    assert reasons == {".substrate-git": "metadata", "node_modules": "built-in: node_modules/"}


def test_blame_of_an_edit_that_is_not_recorded_yet(worked: Program) -> None:
    with (worked.cwd / "a").open("a") as file:
        file.write("outside\n")
    line = worked.json("blame", "a")["lines"][-1]
    assert (line["text"], line["kind"]) == ("outside", "external")
    assert (line["command_id"], line["substrate_git_commit"]) == (None, None), "none resolves"
    shown = worked("blame", "a").went_well().text.splitlines()[-1]
    assert shown.split()[:2] == ["-", "(external)"]
    worked.sh("true; echo more >> a")
    recorded = worked.json("blame", "a")["lines"][-2]["command_id"]
    worked("show", recorded).went_well()


def test_blame(worked: Program) -> None:
    [line] = worked.json("blame", "a")["lines"]
    has(line, {"line", "text", "command_id", "session_id", "agent_id"})
    assert (line["text"], line["session_id"]) == ("1", "s-1")


def test_compact(worked: Program) -> None:
    preview = worked.json("compact", "--dry-run", "--keep-sessions", "1")
    has(preview, {"squashed", "kept"})
    document = worked.json("compact")
    has(document, {"squashed", "size_before", "size_after"})


def test_recover(worked: Program) -> None:
    worked.json("undo")
    [one] = worked.json("recover", "list")["recoveries"]
    has(one, {"ref", "commit", "ts", "operation", "paths"})
    has(worked.json("recover", "show", one["name"]), {"ref"})


def test_fsck_and_reset(worked: Program) -> None:
    assert worked.json("fsck") == {"ok": True, "problems": []}
    has(worked.json("fsck", "--repair"), {"extent", "problems"})
    has(worked.json("history", "reset", "--dry-run"), {"dry_run"})
    has(worked.json("history", "reset", "--yes"), {"put_aside"})
    worked("log").is_clear(4)


def test_trace(finished: Program) -> None:
    spans = finished.json("trace")["spans"]
    complete = [s for s in spans if s["event_type"] == "command_complete"]
    for span in complete:
        has(span, SPAN)
        has(span["fs_diff"], {"writes", "mods", "deletes", "truncated"})
        has(span["isolation"], {"strategy", "tier", "network", "reason"})
    starts = {s["span_id"] for s in spans if s["event_type"] == "command_start"}
    assert starts == {s["span_id"] for s in complete}
    logged = {e["command_id"]: e for e in finished.json("log")["commands"]}
    first = complete[0]
    entry = logged[first["command_id"]]
    assert first["substrate_git_commit"] == entry["substrate_git_commit"]
    assert sorted(first["fs_diff"]["writes"]) == [str(finished.cwd / "b")]
    assert first["fs_diff"]["mods"] == [str(finished.cwd / "a")]


def test_version(substrate: Program) -> None:
    has(substrate.json("--version"), {"version"})


@pytest.mark.needs("byte-names")
def test_names_that_are_no_text(substrate: Program) -> None:
    substrate.sh(b"printf x > 'a\xff%'; printf y > 'p%'")
    [entry] = [e for e in substrate.json("log")["commands"] if e["kind"] == "command"]
    assert sorted(entry["changed_files"]) == ["a%FF%25", "p%"]
    assert entry["encoded"] is True
    by_path: dict[str, Any] = {f["path"]: f for f in substrate.json("diff", "@")["files"]}
    assert by_path["a%FF%25"]["encoded"] is True
    assert "encoded" not in by_path["p%"]
    undone = substrate.json("undo")
    assert sorted(undone["deleted"]) == ["a%FF%25", "p%"]


def test_options_before_and_after_the_verb(finished: Program) -> None:
    before = finished("--json", "log").went_well().document
    assert before == finished.json("log")


def test_nothing_but_the_document_on_stdout(worked: Program) -> None:
    """Notes go to stderr, also when there is something to note."""
    (worked.cwd / "d").mkdir()
    worked.sh("echo x > d/x")
    (worked.cwd / "d/mine").write_bytes(b"m")
    document = worked.json("undo")
    assert document["deleted"] == ["d/x"]
    assert Path(worked.cwd / "d/mine").exists()
