"""Commit messages and ref names: written by one version, read by every later one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrate.errors import UsageError
from substrate.history.store import messages
from substrate.history.store.messages import Trailers, compose, parse_trailers

text = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=40)


def test_the_names_are_the_prds() -> None:
    assert messages.checkpoint_tag("s-1", 3) == "refs/tags/cp/task/s-1/3"
    assert messages.session_closed_tag("s-1") == "refs/tags/cp/session/s-1/closed"
    assert messages.session_squashed_tag("s-1") == "refs/tags/cp/session/s-1/squashed"
    assert messages.checkpoint_squash_subject("s", "a", "b") == "cp: session s [a..b] squashed"
    assert messages.session_squash_subject("s") == "cp: session s squashed"


@pytest.mark.parametrize(
    ("kind", "session", "command", "wanted"),
    [
        ("command", "s-1", "make test", "cmd: s-1/c-7 make test"),
        ("command", None, "make", "cmd: -/c-7 make"),
        ("command", "s-1", "", "cmd: s-1/c-7"),
        ("command", "s-1", "cat <<E\nbody\nE", "cmd: s-1/c-7 cat <<E"),
        ("external", None, "external-changes", "cmd: external-changes"),
        ("baseline", None, "baseline", "cmd: c-7 baseline"),
        ("undo", "s-1", "undo of c-5", "cmd: s-1/c-7 undo of c-5"),
    ],
)
def test_subjects(kind: str, session: str | None, command: str, wanted: str) -> None:
    assert messages.subject(kind, session, "c-7", command) == wanted


def test_a_summary_is_one_short_printable_line() -> None:
    long = messages.summary_of("x" * 200)
    assert len(long) == 72
    assert long.endswith("…")
    assert messages.summary_of("a\tb\x1b[31m\x07") == "a?b?[31m?"


full = st.builds(
    Trailers,
    kind=st.sampled_from(["command", "undo", "baseline", "external"]),
    command_id=st.from_regex(r"c-[0-9a-z]{13}", fullmatch=True),
    session_id=st.none() | st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True),
    span_id=st.none() | st.from_regex(r"spn_[0-9a-z]{13}", fullmatch=True),
    agent_id=st.none() | st.from_regex(r"[a-z][a-z ./-]{0,10}[a-z]", fullmatch=True),
    exit=st.none() | st.integers(0, 255),
    attrs=st.just("") | st.just("ab" * 20),
)


@given(full, text)
def test_trailers_come_back_as_they_were(trailers: Trailers, command: str) -> None:
    subject = messages.subject("command", "s-1", "c-7", command)
    assert parse_trailers(compose(subject, trailers)) == trailers


@given(text, text)
def test_no_text_can_pose_as_trailers(command: str, agent: str) -> None:
    """A command or an agent's name with line breaks must not rewrite what a commit says."""
    forged = "\nSubstrate-Command: c-forged\u2028Substrate-Kind: baseline\rSubstrate-Exit: 9"
    trailers = Trailers("command", "c-1", agent_id=agent + forged, exit=0)
    message = compose(messages.subject("command", "s", "c-1", command + forged), trailers)
    found = parse_trailers(message)
    assert found is not None
    assert (found.kind, found.command_id, found.exit) == ("command", "c-1", 0)


def test_other_peoples_commits_have_no_trailers() -> None:
    assert parse_trailers(b"fix the parser\n\nSigned-off-by: A\n") is None
    assert parse_trailers(b"") is None
    assert parse_trailers(b"x\n\nSubstrate-Kind: command\n") is None


def test_a_garbled_exit_is_no_reason_to_fail() -> None:
    message = b"x\n\nSubstrate-Kind: command\nSubstrate-Command: c-1\nSubstrate-Exit: many\n"
    found = parse_trailers(message)
    assert found is not None
    assert found.exit is None


GOOD_SESSIONS = ("s-1", "fix.login", "A_b-c", "0", "x" * 64)
BAD_SESSIONS = (
    "", "-s", ".s", "a/b", "a b", "a\n", "a..b", "a.", "a.lock", "é", "x" * 65, "a~1", "a:b", "@",
)  # fmt: skip


@pytest.mark.parametrize("name", GOOD_SESSIONS)
def test_session_names_that_will_do(tmp_path: Path, name: str) -> None:
    assert messages.checked_session_id(name) == name
    tag = messages.checkpoint_tag(name, 1)
    assert subprocess.run(["git", "check-ref-format", tag], cwd=tmp_path).returncode == 0


@pytest.mark.parametrize("name", BAD_SESSIONS)
def test_session_names_that_will_not(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        messages.checked_session_id(name)
    assert "letters, digits" in caught.value.hint
