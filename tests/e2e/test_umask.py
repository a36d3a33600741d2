"""The caller's umask is the command's; what Substrate makes for itself does not depend on it.

Modes do not stop root, so the tests run as an ordinary user.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.as_user import NOBODY
from tests.contract.program import AS_USER, Done, Program

pytestmark = pytest.mark.needs("linux")

#: Each with a world, and one without.
CASES = [("--world", 0o377), ("--world", 0o777), ("--world", 0o000), ("--no-world", 0o377)]


@pytest.fixture
def owner() -> Iterator[Program]:
    base = Path(tempfile.mkdtemp(prefix="substrate-test-", dir="/var/tmp"))
    uid = NOBODY if os.geteuid() == 0 else None
    root, home = base / "project", base / "home"
    root.mkdir()
    home.mkdir()
    for made in (base, root, home):
        if uid is not None:
            os.chown(made, uid, uid)
    try:
        yield Program(root, {"HOME": str(home), "SUBSTRATE_HOME": str(home / ".substrate")}, uid)
    finally:
        subprocess.run(["chmod", "-R", "u+rwx", base], check=True)
        shutil.rmtree(base)


def under(owner: Program, umask: int, *words: str) -> Done:
    how = ["-m", "substrate"] if owner.uid is None else ["-c", AS_USER, str(owner.uid)]
    shell = ["sh", "-c", f'umask {umask:04o}; exec "$@"', "sh"]
    return owner.start([*shell, sys.executable, *how, *words], None, b"", {})


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.needs("world-overlay")
@pytest.mark.parametrize(("world", "umask"), CASES, ids=[f"{how} {one:04o}" for how, one in CASES])
def test_first_use_and_what_follows(owner: Program, umask: int, world: str) -> None:
    (owner.cwd / "before").write_text("1\n")
    line = "umask; echo 1 > made; mkdir directory; rm -f before; chmod 600 made"
    done = under(owner, umask, world, "-c", line).went_well()
    assert int(done.text, 8) == umask
    assert mode(owner.cwd / "made") == 0o600
    assert mode(owner.cwd / "directory") == 0o777 & ~umask
    for words in ("undo", "redo", "checkpoint", "fsck"):
        under(owner, umask, words).went_well()
    assert mode(owner.cwd / "directory") == 0o777 & ~umask
    owner("undo").went_well()
    assert (owner.cwd / "before").read_text() == "1\n"


def test_what_is_made_is_only_for_its_owner(owner: Program) -> None:
    under(owner, 0o000, "-c", "echo 1 > made").went_well()
    for made in (owner.cwd / ".substrate-git", owner.cwd.parent / "home" / ".substrate"):
        assert mode(made) == 0o700
