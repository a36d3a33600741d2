"""What a command was refused is named on stderr: its own error seldom says why."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from tests.contract.as_user import NOBODY
from tests.contract.program import Program

pytestmark = pytest.mark.needs("world-overlay")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    (tmp_path / "project").mkdir()
    return Program(tmp_path / "project")


def test_a_refused_connection(program: Program) -> None:
    line = "import socket; socket.socket().connect_ex(('192.0.2.1', 9))"
    done = program("--net", "off", "run", "--", sys.executable, "-c", line).went_well()
    assert "refused by --net off: tcp:192.0.2.1:9 (" in done.errors
    assert program("-c", "true").went_well().errors == ""


@pytest.mark.needs("root", "other-user")
@pytest.mark.parametrize("uid", [None, NOBODY])
def test_a_name_that_was_not_resolved(uid: int | None) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as place:
        home = Path(place, "home")
        home.mkdir()
        for path in (Path(place), home):
            os.chown(path, uid or 0, uid or 0)
        env = {"HOME": str(home), "SUBSTRATE_HOME": str(home / "s")}
        done = Program(Path(place), env, uid)("--net", "off", "-c", "getent ahosts name.invalid")
        assert done.status == 2
        assert "refused by --net off: dns:name.invalid (" in done.errors


@pytest.mark.needs("root")
def test_a_refused_write(program: Program) -> None:
    outside = Path("/usr/share/substrate-refused-write")
    done = program("--isolate", "guarded", "-c", f"echo x > {outside}")
    assert done.status != 0 and not outside.exists()
    assert f"writes refused by --isolate guarded: {outside} (" in done.errors
