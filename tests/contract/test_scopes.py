"""`diff` and `undo` of ranges, sessions, agents, and of what came since a point."""

from __future__ import annotations

import subprocess

import pytest

from tests.contract.program import Program


@pytest.fixture
def three(substrate: Program) -> tuple[Program, list[str]]:
    """Three commands, each with a file of its own, and an edit outside before the last."""
    substrate.sh("printf 'one\n' > 1.txt")
    substrate.sh("printf 'two\n' > 2.txt")
    (substrate.cwd / "typed.txt").write_text("mine\n")
    substrate.sh("printf 'three\\0\n' > 3.bin; chmod 600 1.txt")
    found = substrate.json("log")["commands"]
    return substrate, [e["command_id"] for e in reversed(found) if e["kind"] == "command"]


def test_a_range_in_every_shape(three: tuple[Program, list[str]]) -> None:
    substrate, (one, two, last) = three
    words = f"{one}..{last}"
    found = substrate.json("diff", words)
    assert found["scope"] == words
    assert found["commands"] == [last, two]
    assert [file["path"] for file in found["files"]] == ["1.txt", "2.txt", "3.bin"]
    assert substrate("diff", words, "2.txt", "--stat").went_well().text.split() == [
        "A", "+1", "-0", "2.txt",
    ]  # fmt: skip
    assert "{+two+}" in substrate("diff", words, "2.txt", "--word").went_well().text


def test_git_takes_the_patch(three: tuple[Program, list[str]]) -> None:
    substrate, (one, _, last) = three
    done = substrate("diff", f"{one}..{last}", "--patch").went_well()
    assert "1.txt" in done.errors, "no patch says that a file is private"
    elsewhere = substrate.cwd.parent / "elsewhere"
    elsewhere.mkdir()
    subprocess.run(["git", "apply", "-"], input=done.out, cwd=elsewhere, check=True)
    assert (elsewhere / "2.txt").read_bytes() == b"two\n"
    assert (elsewhere / "3.bin").read_bytes() == b"three\0\n"


def test_what_came_since_is_taken_back_and_redone(three: tuple[Program, list[str]]) -> None:
    substrate, (one, _, _) = three
    plan = substrate("undo", "--since", one, "--dry-run").went_well().text
    assert plan.startswith(f"undo of what came since {one}  (dry run)\n  would undo c-")
    substrate("undo", "--since", one).went_well()
    assert sorted(path.name for path in substrate.cwd.glob("[!.]*")) == ["1.txt", "typed.txt"]
    substrate("undo", "--since", one).is_clear(5, "is already undone")
    substrate("redo").went_well()
    assert (substrate.cwd / "3.bin").exists()


def test_edits_outside_alone(three: tuple[Program, list[str]]) -> None:
    substrate, _ = three
    found = substrate.json("diff", "--external")
    known = {entry["command_id"] for entry in substrate.json("log")["commands"]}
    assert set(found["commands"]) <= known
    assert [file["path"] for file in found["files"]] == ["typed.txt"]


def test_one_agent_and_a_whole_session(three: tuple[Program, list[str]]) -> None:
    substrate, _ = three
    substrate("--agent-id", "codex", "--session", "s-codex", "-c", "echo x > codex.txt")
    for words in (["--agent", "codex"], ["--whole-session", "s-codex"], ["s-codex"]):
        found = substrate.json("diff", *words)
        assert [file["path"] for file in found["files"]] == ["codex.txt"]
    assert substrate.json("diff", "--since", "1h", "--agent", "nobody")["files"] == []
    substrate("undo", "--agent", "codex").went_well()
    assert not (substrate.cwd / "codex.txt").exists()
    assert (substrate.cwd / "2.txt").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["undo", "@", "--since", "1h"], "do not go together"),
        (["undo", "--prompt", "p-1", "--whole-session", "s-1"], "do not go together"),
        (["undo", "@", "--agent", "codex"], "--agent does not go with one command"),
        (["diff", "--external", "--agent", "codex"], "--external is about"),
        (["diff", "--stat", "--patch"], "--stat and --patch do not go together"),
        (["undo", "--since", "2026-99-01"], "not a time"),
    ],
)
def test_words_that_contradict_are_refused(finished: Program, words: list[str], said: str) -> None:
    finished(*words).is_clear(2, said)
