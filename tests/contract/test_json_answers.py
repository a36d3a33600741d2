"""`--json` prints exactly one JSON document, whatever the verb; errors leave stdout empty."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from substrate.cli.frame.arguments import VERBS
from tests.contract.program import Program

CALLS = [
    ("log",),
    ("log", "--limit", "1", "--path", "a.txt"),
    ("show", "@"),
    ("diff", "@"),
    ("diff", "@~1", "--stat"),
    ("undo", "--dry-run"),
    ("undo",),
    ("redo",),
    ("rollback", "--checkpoint", "1", "--dry-run"),
    ("rollback", "--checkpoint", "1"),
    ("checkpoint", "-m", "again"),
    ("checkpoint", "list"),
    ("session", "list"),
    ("session", "current"),
    ("session", "start"),
    ("session", "close"),
    ("blame", "a.txt"),
    ("status",),
    ("stats",),
    ("pause",),
    ("resume",),
    ("compact", "--dry-run"),
    ("compact",),
    ("recover", "list"),
    ("forget", "a.txt", "--dry-run"),
    ("fsck",),
    ("history", "reset", "--dry-run"),
    ("world", "list"),
    ("export-html", "exported.html"),
    ("projects",),
    ("projects", "prune", "--dry-run"),
    ("config", "list"),
    ("config", "get", "retention.checkpoints"),
    ("uninstall", "--dry-run"),
    ("trace",),
    ("connect", "claude-code", "--dry-run"),
    ("connect", "claude-code", "--yes"),
    ("connect", "--shim", "other", "--dry-run"),
    ("connect", "--status"),
    ("disconnect",),
    ("doctor",),
    ("rewrite", "--base", "base", "--target", "target", "--dry-run"),
    ("rewrite", "--base", "base", "--target", "target"),
]


def substrate(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "substrate", *words], capture_output=True, check=False
    )


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commands on both sides of a checkpoint, one with an awkward name, the last undone."""
    base = tmp_path_factory.mktemp("begun")
    root = base / "project"
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    git = "git init -q -b main && git config user.name a && git config user.email a@b.invalid"
    git += " && git add . && git commit -qm base && git tag base && git checkout -q -b target"
    git += " && git commit -q --allow-empty -m target && git checkout -q main"
    subprocess.run(git, shell=True, cwd=root, check=True)
    program = Program(root, {"HOME": str(base), "SUBSTRATE_HOME": str(base / "home")})
    for words in (
        ("-c", "echo two >> a.txt"),
        ("checkpoint",),
        ("-c", "echo three >> a.txt; echo x > 'new\n\033[2Jline'"),
        ("-c", "echo four >> a.txt"),
        ("undo",),
    ):
        program(*words).went_well()
    return base


@pytest.fixture
def project(begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, to work on."""
    shutil.copytree(begun, tmp_path / "copy", symlinks=True)
    root = tmp_path / "copy/project"
    monkeypatch.chdir(root)
    monkeypatch.setenv("SUBSTRATE_HOME", str(tmp_path / "copy/home"))
    return root


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("words", CALLS, ids=" ".join)
def test_the_answer_is_one_document(words: tuple[str, ...]) -> None:
    done = substrate(*words, "--json")
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout), dict)
    assert b"\x1b" not in done.stdout + done.stderr


@pytest.mark.usefixtures("project")
def test_people_get_text_without_escapes() -> None:
    for words in CALLS:
        done = substrate(*words)
        assert done.returncode == 0, (words, done.stderr)
        if words[0] != "diff":  # to a pipe, a diff is exact
            assert b"\x1b" not in done.stdout + done.stderr, words


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("show", "c-nothing"), 4),
        (("diff", "c-nothing"), 4),
        (("undo", "c-nothing"), 4),
        (("rollback", "--checkpoint", "99"), 4),
        (("rollback", "--to", "c-nothing"), 4),
        (("blame", "no-such-file"), 4),
        (("recover", "show", "nothing"), 4),
        (("log", "--limit", "many"), 2),
        (("checkpoint", "lsit"), 2),
        (("-C", "nowhere", "log"), 4),
        (("connect", "nobody"), 4),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_an_error_is_a_document_on_stderr(words: tuple[str, ...], status: int) -> None:
    done = substrate(*words, "--json")
    assert done.returncode == status, done.stderr
    assert done.stdout == b""
    *people, document = done.stderr.decode().splitlines()
    assert people[0].startswith("substrate: error: ")
    error = json.loads(document)["error"]
    assert set(error) >= {"kind", "message", "hint"}
    assert error["hint"], "every error says what to do next"


def test_every_verb_is_asked() -> None:
    # `run` answers with the command's own output, `completion` with a script; the others are asked
    # where there is something for them to answer.
    elsewhere = {"run", "replay", "daemon", "shell", "mcp", "ui", "hook", "try", "completion"}
    assert {words[0] for words in CALLS} == set(VERBS) - elsewhere


@pytest.mark.needs("byte-names")
def test_names_that_are_not_text_are_marked(project: Path) -> None:
    with open(os.fsencode(project) + b"/50%\xff", "wb") as file:
        file.write(b"x")
    assert substrate("-c", "rm 50*").returncode == 0
    [file_record] = json.loads(substrate("diff", "@", "--json").stdout)["files"]
    assert file_record["path"] == "50%25%FF"
    assert file_record["encoded"] is True
