"""`substrate uninstall`: what was set up is taken back; history goes only with --purge."""

from __future__ import annotations

import os
import subprocess
import sys
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


@pytest.mark.needs("root")
def test_another_users_directory_at_a_known_path_does_not_stop_it(
    program: Program, tmp_path: Path
) -> None:
    """It was made where a project of ours was removed; a FIFO would keep git waiting."""
    shared = Program(tmp_path / "shared", program.env)
    shared.cwd.mkdir()
    shared("-c", "echo 1 > a").went_well()
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "one"]):
        subprocess.run(["git", *words], cwd=shared.cwd, check=True)
    os.mkfifo(shared.cwd / ".git/packed-refs")
    subprocess.run(["chown", "-R", "65534:65534", str(shared.cwd)], check=True)
    assert "Nothing was changed" in program("uninstall", "--dry-run").went_well().text


@pytest.mark.needs("world-overlay")
def test_purge_is_refused_while_a_command_runs_in_a_world(program: Program, tmp_path: Path) -> None:
    """Its work is in the world alone, and would be gone with it."""
    go = tmp_path / "go"
    os.mkfifo(go)
    words = [sys.executable, "-m", "substrate", "-c", f"echo work > result; read -r _ < {go}"]
    running = subprocess.Popen(words, cwd=program.cwd, env={**os.environ, **program.env})
    try:
        writer = os.open(go, os.O_WRONLY)  # opens when the command has come to its `read`
        program("uninstall", "--purge", "--yes").is_clear(5, "still running")
        assert (tmp_path / ".codex").exists(), "nothing was removed"
        os.write(writer, b"\n")
        os.close(writer)
    finally:
        assert running.wait(60) == 0
    assert (program.cwd / "result").read_text() == "work\n"
