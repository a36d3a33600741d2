"""Only its owner can read the store, and other tools ignore it."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.program import Program
from tests.unit.history.workbench import State, tree

NOBODY = 65534
SECRET = b"token=9c1185a5c5e9fc54612808977ee8f548b2258d31"


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=lambda mask: f"umask {mask:03o}")
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def open_ground() -> Iterator[Path]:
    """A directory that everybody may enter, as pytest's own are not."""
    base = Path(tempfile.mkdtemp(prefix="substrate-privacy-"))
    base.chmod(0o755)
    yield base
    shutil.rmtree(base)


def use_everything(program: Program) -> None:
    """Leave a trace in every part of the store and of the home."""
    (program.cwd / ".env").write_bytes(SECRET)
    (program.cwd / ".env").chmod(0o600)
    program.sh("head -c 400000 /dev/urandom > big; echo 1 > a; mkdir d; echo x > d/x")
    program("checkpoint").went_well()
    program.sh("rm .env big; echo 2 > a")
    program("undo").went_well()
    program("compact").went_well()
    program.sh("echo 3 > a")
    program("session", "close").went_well()
    git_dir = program.cwd / ".substrate-git/.git"
    (git_dir / "HEAD").write_bytes(b"")
    program("fsck", "--repair").went_well()
    next((git_dir / "objects/pack").glob("*.pack")).unlink()
    program("fsck", "--repair").went_well()
    assert list((program.cwd / ".substrate-git").glob("quarantine/*"))


@pytest.mark.needs("posix")
def test_nothing_is_open_to_others(tmp_path: Path, private_environment: Path, umask: int) -> None:
    del umask
    project = tmp_path / "project"
    project.mkdir()
    use_everything(Program(project))
    for top in (project / ".substrate-git", private_environment / ".substrate"):
        assert stat.S_IMODE(top.stat().st_mode) == 0o700, top
        # The wall is the top directory; what holds secrets is closed by itself, too.
        assert not list(top.glob("*.jsonl")) or _closed(top / "trace.jsonl")
        for path in top.rglob("*"):
            assert not path.is_symlink(), f"{path} leads out of the wall"


def _closed(path: Path) -> bool:
    return stat.S_IMODE(path.stat().st_mode) & 0o077 == 0


@pytest.mark.needs("other-user")
def test_another_user_really_cannot_read_it(open_ground: Path) -> None:
    """Every path is tried by name: the walls must hold without the directory's listing."""
    project, home = open_ground / "project", open_ground / "home"
    project.mkdir()
    home.mkdir()
    program = Program(project, {"HOME": str(home), "SUBSTRATE_HOME": str(home / ".substrate")})
    use_everything(program)
    tops = (project / ".substrate-git", home / ".substrate")
    paths = [str(path) for top in tops for path in (top, *top.rglob("*"))]
    assert len(paths) > 50
    script = (
        "import json, os, sys\n"
        "paths = json.load(sys.stdin)\n"
        f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "seen = []\n"
        "for path in paths:\n"
        "    for look in (os.listdir, lambda p: open(p, 'rb').read(1)):\n"
        "        try:\n"
        "            look(path); seen.append(path)\n"
        "        except OSError: pass\n"
        f"assert open({str(project / 'a')!r}).read() == '3\\n', 'the project itself is open'\n"
        "print(json.dumps(seen))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=json.dumps(paths).encode(),
        capture_output=True, check=True,
    )  # fmt: skip
    assert json.loads(done.stdout) == []


@pytest.mark.needs("posix")
def test_a_store_that_was_opened_up_is_closed_again_by_a_repair(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    program = Program(project)
    program.sh("echo 1 > a")
    store = project / ".substrate-git"
    store.chmod(0o755)
    assert program("fsck").status == 6
    program("fsck", "--repair").went_well()
    assert stat.S_IMODE(store.stat().st_mode) == 0o700


@pytest.mark.needs("posix")
def test_a_directory_that_was_there_before_is_closed_on_first_use(tmp_path: Path) -> None:
    store = tmp_path / "project/.substrate-git"
    store.mkdir(parents=True)
    store.chmod(0o777)
    Program(tmp_path / "project").sh("echo 1 > a")
    assert stat.S_IMODE(store.stat().st_mode) == 0o700


@pytest.mark.needs("npm")
def test_npm_does_not_pack_it(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "package.json").write_text('{"name": "x", "version": "1.0.0"}')
    (project / "index.js").write_text("1\n")
    Program(project).sh("echo 2 > index.js")
    done = subprocess.run(
        ["npm", "pack", "--dry-run", "--json", "--offline"],
        cwd=project, capture_output=True, check=True,
        env={**os.environ, "npm_config_cache": str(tmp_path / "npm"),
             "npm_config_update_notifier": "false"},
    )  # fmt: skip
    document = json.loads(done.stdout)
    packed = document[0] if isinstance(document, list) else next(iter(document.values()))
    assert sorted(file["path"] for file in packed["files"]) == ["index.js", "package.json"]


class TestTheUsersRepository:
    def make(self, root: Path) -> Program:
        root.mkdir()
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
            if words[0] == "add":
                (root / "a").write_bytes(b"1\n")
                (root / ".gitignore").write_bytes(b"ignored\n")
            subprocess.run(["git", *words], cwd=root, check=True)
        (root / "ignored").write_bytes(b"i\n")
        (root / "untracked").write_bytes(b"u\n")
        (root / ".git/info").mkdir(exist_ok=True)
        (root / ".git/info/exclude").write_bytes(b"# mine\nno newline at the end")
        return Program(root)

    def git(self, program: Program, *words: str) -> bytes:
        return subprocess.run(
            ["git", "--no-optional-locks", *words], cwd=program.cwd, capture_output=True, check=True
        ).stdout

    def test_status_does_not_see_the_store(self, tmp_path: Path) -> None:
        program = self.make(tmp_path / "project")
        before = self.git(program, "status", "--porcelain", "--ignored")
        program.sh("echo 2 > a")
        program("undo").went_well()
        after = self.git(program, "status", "--porcelain", "--ignored")
        hidden = b"!! .substrate-git/\n"
        assert after.replace(hidden, b"") == before
        assert self.git(program, "status", "--porcelain") == b"?? untracked\n"
        assert b".substrate-git" not in self.git(program, "add", "--dry-run", "--all")
        assert b".substrate-git" not in self.git(program, "clean", "-nd")

    def test_its_directory_stays_byte_for_byte(self, tmp_path: Path) -> None:
        program = self.make(tmp_path / "project")
        before = self.inside(program)
        program.sh("echo 2 > a; rm ignored; mkdir d; echo x > d/x")
        program("undo").went_well()
        program("checkpoint").went_well()
        program("compact").went_well()
        program("fsck").went_well()
        after = self.inside(program)
        changed = {path for path in {*before, *after} if before.get(path) != after.get(path)}
        assert changed == {b"info/exclude"}
        exclude = (program.cwd / ".git/info/exclude").read_bytes()
        assert exclude.startswith(b"# mine\nno newline at the end\n")
        assert exclude.count(b".substrate-git/") == 1

    def test_the_exclude_line_is_written_once(self, tmp_path: Path) -> None:
        program = self.make(tmp_path / "project")
        program.sh("echo 2 > a")
        once = (program.cwd / ".git/info/exclude").read_bytes()
        program("history", "reset", "--yes").went_well()
        program.sh("echo 3 > a")
        assert (program.cwd / ".git/info/exclude").read_bytes() == once

    def inside(self, program: Program) -> State:
        return tree(program.cwd / ".git", leave_out=())
