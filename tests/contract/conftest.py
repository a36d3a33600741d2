from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.contract.program import Program


@pytest.fixture
def substrate(tmp_path: Path) -> Program:
    """The program, in an empty project."""
    project = tmp_path / "project"
    project.mkdir()
    return Program(project)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A project in which a few things happened, shared by all tests of a module: look only."""
    base = tmp_path_factory.mktemp("finished")
    (base / "project").mkdir()
    program = Program(base / "project", {**_homes(base), "SUBSTRATE_WORLD": "disabled"})
    (program.cwd / "a").write_bytes(b"0\n")
    program.sh("echo 1 > a; echo b > b; chmod 755 b", env={"SUBSTRATE_SESSION_ID": "s-1"})
    program.sh("true", env={"SUBSTRATE_SESSION_ID": "s-1"})
    (program.cwd / "mine").write_bytes(b"m\n")
    program("-c", "rm b; exit 3", env={"SUBSTRATE_SESSION_ID": "s-1"})
    return program


@pytest.fixture
def worked(finished: Program, tmp_path: Path) -> Program:
    """A copy of it, to work on."""
    shutil.copytree(finished.cwd.parent, tmp_path / "copy", symlinks=True)
    return Program(tmp_path / "copy/project", _homes(tmp_path / "copy"))


def _homes(base: Path) -> dict[str, str]:
    return {"HOME": str(base), "SUBSTRATE_HOME": str(base / "home")}
