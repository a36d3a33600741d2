"""A command does to files of any mode what it does without Substrate: their owner may.

Git keeps its objects at 0444 and touches them all the time. Root is not held back by modes, so
these tests mean most when an ordinary user runs them.
"""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.contract.program import Program

pytestmark = pytest.mark.needs("linux", "world-overlay")

#: What a command may do to a file, by the file's name.
WORK = {
    "touched": "touch -d @1000 touched",
    "written": "chmod u+rw written; echo more >> written; chmod 0444 written",
    "opened": "chmod 0640 opened",
    "shut": "chmod 0000 shut",
    "moved": "mv moved elsewhere",
    "removed": "rm -f removed",
    "linked": "ln linked other-name",
    "attributed": "chmod u+rw attributed; "
    'python3 -c \'import os; os.setxattr("attributed", "user.note", b"x")\'; '
    "chmod 0444 attributed",
    "replaced": "echo new > made; chmod 0444 made; mv -f made replaced",
    "directory": "touch -d @1000 directory/inside; chmod u+w directory; echo n > directory/new; "
    "chmod 0555 directory",
}


def make(root: Path, place: str, mode: int) -> Path:
    below = root / place
    below.mkdir(parents=True)
    (below / "directory").mkdir()
    for path in [*(below / name for name in WORK if name != "directory"),
                 below / "directory" / "inside"]:  # fmt: skip
        path.write_text(f"{path.name}\n")
        path.chmod(mode)
        os.utime(path, (500, 500))
    (below / "directory").chmod(0o555)
    return below


def state(below: Path) -> dict[str, object]:
    """Kind, mode, content, attributes, and times that a command set."""
    out: dict[str, object] = {}
    for path in sorted(below.rglob("*")):
        at = path.lstat()
        mode = stat.S_IMODE(at.st_mode)
        path.chmod(mode | 0o700)
        attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
        content = b"" if path.is_dir() else path.read_bytes()
        path.chmod(mode)
        when = at.st_mtime if at.st_mtime < 10**6 else "now"
        out[str(path.relative_to(below))] = (oct(at.st_mode), content, attributes, when)
    return out


@pytest.mark.parametrize(
    ("place", "mode"),
    [
        ("src", 0o444), ("src", 0o644),
        ("node_modules/x", 0o444), ("node_modules/x", 0o200), ("node_modules/x", 0o000),
        (".git/x", 0o444), (".git/x", 0o644),
    ],
)  # fmt: skip
def test_what_a_command_does_to_them_arrives(tmp_path: Path, place: str, mode: int) -> None:
    command = f"cd {place}; " + "; ".join(WORK.values())
    bare, recorded = tmp_path / "bare", tmp_path / "recorded"
    for root in (bare, recorded):
        make(root, place, mode)
        subprocess.run(["git", "init", "-q", root], check=True)
    subprocess.run(["bash", "-ec", command], cwd=bare, check=True)
    substrate = Program(recorded)
    substrate.sh("true")
    done = substrate("--world", "-c", command)
    assert (done.status, "not applied" in done.errors) == (0, False), done.errors
    assert state(recorded / place) == state(bare / place)
    assert substrate.json("world", "list")["worlds"] == []


def test_a_git_object_that_is_only_touched_stays_the_same_file(tmp_path: Path) -> None:
    """Setting a time needs ownership: no copy, no rename, nothing in the trash."""
    objects = tmp_path / ".git" / "objects" / "pack"
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    pack = objects / "pack-1.pack"
    pack.write_bytes(b"PACK")
    pack.chmod(0o444)
    before = pack.stat()
    substrate = Program(tmp_path)
    substrate.sh("true")
    substrate.sh("touch -d @1000 .git/objects/pack/pack-1.pack")
    after = pack.stat()
    assert after.st_mtime == 1000
    assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert not list(tmp_path.glob(".substrate-git/trash/**/pack-1.pack"))
