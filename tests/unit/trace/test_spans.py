from __future__ import annotations

import json
from pathlib import Path

import pytest

from substrate.model.paths import RelPath
from substrate.trace import spans
from substrate.trace.fs_diff_record import FsDiff
from substrate.trace.writer import encode

ISOLATION = ("direct", "none", "open", "because")
COMMAND = spans.Command(
    session_id="s-1",
    command_id="c-1",
    span_id="spn_1",
    parent_span=None,
    agent_id="human",
    workspace=Path("/w"),
    cwd=Path("/w/sub"),
    shell="make TOKEN=abc",
)
COMPLETION = spans.Completion(
    ended_ns=1_763_917_923_123_000_000,
    exit=0,
    duration_ms=12,
    fs_diff=FsDiff((RelPath(b"new"),), (RelPath(b"mod"),), (RelPath(b"old"),)),
    isolation=ISOLATION,
    substrate_git_commit="ab" * 20,
    base_commit="cd" * 20,
    outcome="completed",
)
CONTEXT = spans.replay_context(COMMAND, {}, umask=0o022, stdin="null")


def complete(command: spans.Command = COMMAND, **changes: object) -> dict[str, object]:
    completion = COMPLETION._replace(**changes)  # type: ignore[arg-type]
    return spans.command_complete(command, completion, CONTEXT)


def test_every_field_of_the_contract_is_there() -> None:
    assert list(complete()) == [
        *("ts", "event_type", "session_id", "command_id", "span_id", "parent_span", "agent_id"),
        *("workspace", "cwd", "command", "exit", "duration_ms", "changed_files", "fs_diff"),
        *("scopes_used", "substrate_git_commit", "base_commit", "isolation", "stdout", "stderr"),
        *("replay_context", "conflicts", "outcome"),
    ]


def test_a_completed_command() -> None:
    span = complete()
    assert span["ts"] == "2025-11-23T17:12:03.123Z"
    assert span["event_type"] == "command_complete"
    assert span["command"] == "make TOKEN=[redacted]"
    assert span["changed_files"] == ["mod", "new", "old"]
    assert span["fs_diff"] == {
        "writes": ["/w/new"],
        "mods": ["/w/mod"],
        "deletes": ["/w/old"],
        "truncated": False,
    }
    assert span["isolation"] == dict(
        zip(("strategy", "tier", "network", "reason"), ISOLATION, strict=True)
    )
    assert span["stdout"] == span["stderr"] == {"sha256": None, "bytes": None, "ref": None}
    assert span["scopes_used"] == []
    assert json.loads(encode(span)) == span


def test_the_start_shares_what_is_known_beforehand() -> None:
    start = spans.command_start(COMMAND, 0, ISOLATION)
    end = complete()
    assert start["event_type"] == "command_start"
    shared = start.keys() - {"ts", "event_type"}
    assert shared >= {"span_id", "session_id", "command_id", "command", "cwd", "workspace"}
    assert all(start[name] == end[name] for name in shared)


def test_nothing_changed() -> None:
    span = complete(fs_diff=FsDiff(), substrate_git_commit=None)
    assert span["changed_files"] == []
    assert span["substrate_git_commit"] is None


def test_names_that_are_not_text_are_encoded_and_the_record_says_so() -> None:
    assert "encoded" not in complete()
    span = complete(fs_diff=FsDiff((RelPath(b"a\xff"), RelPath(b"b%"))))
    assert span["changed_files"] == ["a%FF", "b%"]
    assert span["encoded"] is True


@pytest.mark.parametrize(
    "command",
    [
        COMMAND._replace(workspace=Path("/w\udcff")),
        COMMAND._replace(cwd=Path("/w\udcff")),
        COMMAND._replace(shell=b"cat \xff"),
        COMMAND._replace(shell="", argv=(b"cat", b"\xff")),
    ],
)
def test_so_are_places_and_commands(command: spans.Command) -> None:
    span = complete(command)
    assert span["encoded"] is True
    assert "%FF" in str(span)
    encode(span).decode("utf-8")


def test_conflicts_are_paths() -> None:
    assert complete(conflicts=(RelPath(b"a\xff"),))["conflicts"] == ["a%FF"]


def test_arguments_are_quoted_so_that_they_differ() -> None:
    command = COMMAND._replace(shell="", argv=("cp", "a b", "--token", "t", "it's", ""))
    assert spans.command_text(command) == "cp 'a b' --token [redacted] 'it'\"'\"'s' ''"


def test_a_change_beyond_reason_is_shortened_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans, "SHOWN_PATHS", 3)
    many = tuple(RelPath(b"%d" % n) for n in range(5))
    span = complete(fs_diff=FsDiff(many))
    assert span["fs_diff"] == {
        "writes": ["/w/0", "/w/1", "/w/2"],
        "mods": [],
        "deletes": [],
        "truncated": True,
    }
    assert span["changed_files"] == ["0", "1", "2"]
    assert span["changed_total"] == 5


def test_a_repetition_needs_more_than_the_text() -> None:
    variables = {"PATH": "/bin", "LANG": "C", "AWS_SECRET_ACCESS_KEY": "x", "HOME": "/h\udcff"}
    context = spans.replay_context(COMMAND, variables, umask=0o027, stdin="pipe")
    assert context == {
        "shell": "make TOKEN=[redacted]",
        "env": {"PATH": "/bin", "HOME": "/h%FF", "LANG": "C"},
        "umask": "0027",
        "stdin": "pipe",
    }


def test_a_secret_in_a_harmless_variable_is_redacted() -> None:
    variables = {"PYTHONPATH": "https://u:hunter2@host/simple"}
    context = spans.replay_context(COMMAND, variables, umask=0, stdin="null")
    assert context["env"] == {"PYTHONPATH": "https://u:[redacted]@host/simple"}


def test_arguments_stay_apart_in_the_context() -> None:
    command = COMMAND._replace(shell="", argv=("curl", "-u", "bob:hunter2", b"\xff"))
    context = spans.replay_context(command, {}, umask=0, stdin="null")
    assert context["argv"] == ["curl", "-u", "bob:[redacted]", "%FF"]
    assert "shell" not in context


def test_more_fields_may_be_added_and_are_redacted() -> None:
    extra = {"notice": "TOKEN=abc", "git": {"refs": ["x", "https://u:p@h"]}, "n": 3, "exit": 99}
    span = complete(extra=extra)
    assert span["notice"] == "TOKEN=[redacted]"
    assert span["git"] == {"refs": ["x", "https://u:[redacted]@h"]}
    assert (span["n"], span["exit"]) == (3, 0)
