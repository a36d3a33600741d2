"""`substrate uninstall`: what was set up is taken back; history goes only with --purge."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.contract.program import Program

pytestmark = pytest.mark.needs("linux")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    project = tmp_path / "project"
    project.mkdir()
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "one"]):
        subprocess.run(["git", *words], cwd=project, check=True)
    (project / ".git/info/exclude").write_text("mine\n")
    home = {"HOME": str(tmp_path), "SUBSTRATE_HOME": str(tmp_path / "home")}
    made = Program(project, {**home, "SUBSTRATE_SOCKET": str(tmp_path / "s")})
    made("-c", "echo 1 > a").went_well()
    made("connect", "codex", "--yes").went_well()
    assert (project / ".git/info/exclude").read_text() != "mine\n"
    return made


def test_history_stays(program: Program, tmp_path: Path) -> None:
    plan = program("uninstall", "--dry-run").went_well().text
    assert "Nothing was changed" in plan and "keep" in plan
    assert (tmp_path / ".codex/hooks.json").exists()
    done = program("uninstall").went_well().text
    assert "pip uninstall" in done
    assert not (tmp_path / ".codex").exists()
    assert program.json("log")["commands"]
    shown = subprocess.run(
        ["git", "status", "--short"], cwd=program.cwd, capture_output=True, text=True, check=True
    )
    assert shown.stdout == "?? a\n", "git does not list the history"


def test_purge_lists_and_needs_a_yes(program: Program, tmp_path: Path) -> None:
    program("rewrite", "--base", "HEAD", "--target", "HEAD").went_well()
    refused = program("uninstall", "--purge").is_clear(5, "nothing was removed")
    assert ".substrate-git" in refused.text and "recovery snapshot" in refused.text
    assert (program.cwd / ".substrate-git").is_dir() and (tmp_path / ".codex").exists()
    gone = program.json("uninstall", "--purge", "--yes")
    assert gone["purged"] and gone["left"] == []
    assert gone["recovery_snapshots"] == {str(program.cwd): 1}
    assert not (program.cwd / ".substrate-git").exists() and not (tmp_path / ".codex").exists()
    refs = subprocess.run(["git", "for-each-ref"], cwd=program.cwd, capture_output=True, text=True)
    assert "manifold" not in refs.stdout
    assert (program.cwd / ".git/info/exclude").read_text() == "mine\n"
    assert {path.name for path in (tmp_path / "home").iterdir()} <= {"bin"}
    assert (program.cwd / "a").read_text() == "1\n"
