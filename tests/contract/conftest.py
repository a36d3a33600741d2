from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.as_user import NOBODY
from tests.contract.program import Program
from tests.contract.world_site import Case, Site, make_site, skip_unless_possible


@pytest.fixture
def substrate(tmp_path: Path) -> Program:
    """The program, in an empty project."""
    project = tmp_path / "project"
    project.mkdir()
    return Program(project)


@pytest.fixture(
    params=[os.geteuid() if hasattr(os, "geteuid") else 0, NOBODY], ids=lambda uid: f"uid{uid}"
)
def site(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A workspace for worlds of the best kind, as root and as an ordinary user."""
    case = Case("overlay", request.param)
    skip_unless_possible(case)
    with make_site(case, monkeypatch) as made:
        yield made


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worlds are made ahead in this test, as with the daemon's speed layer."""
    from substrate.world.prewarm import WorldsAhead, no_prewarm  # only Linux has them

    monkeypatch.setattr(no_prewarm.current, "worlds", WorldsAhead())


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
