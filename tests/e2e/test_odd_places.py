"""Places that are no plain directory on a plain disk: repositories that lie elsewhere, mounts."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.as_user import NOBODY
from tests.contract.program import Program
from tests.mounts import mounted, tmpfs_words

pytestmark = pytest.mark.needs("world-overlay", "root")


def git(root: Path, *words: str) -> str:
    argv = ["git", "-c", "safe.directory=*", *words]
    done = subprocess.run(argv, cwd=root, capture_output=True, check=True, text=True)
    return done.stdout.strip()


def repository(root: Path) -> Path:
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / "f").write_text("1\n")
    git(root, "add", "f")
    git(root, "commit", "-qm", "one")
    return root


def program_in(root: Path, uid: int | None = None) -> Program:
    base = root.parent
    home = base / "home"
    env = {"HOME": str(home), "SUBSTRATE_HOME": str(home / ".substrate")}
    home.mkdir(exist_ok=True)
    if uid is not None:
        for path in (base, *base.rglob("*")):
            os.chown(path, uid, uid, follow_symlinks=False)
    return Program(root, env, uid)


@pytest.fixture
def far() -> Iterator[Path]:
    """Below no temporary directory, which every tier leaves open; others may pass."""
    base = Path(tempfile.mkdtemp(prefix="substrate-test-", dir="/var/lib"))
    base.chmod(0o755)
    try:
        yield base
    finally:
        shutil.rmtree(base)


class TestLinkedWorktree:
    """Its repository is in another directory, which no view covers."""

    @pytest.fixture
    def linked(self, far: Path) -> Path:
        main = repository(far / "main")
        git(main, "worktree", "add", "-q", "-b", "side", str(far / "linked"))
        return far / "linked"

    @pytest.mark.parametrize("tier", ["workspace", "guarded", "full"])
    @pytest.mark.parametrize("uid", [None, NOBODY], ids=["root", "user"])
    def test_a_commit_lands_is_recorded_and_undone(
        self, linked: Path, tier: str, uid: int | None
    ) -> None:
        program = program_in(linked, uid)
        before = git(linked, "rev-parse", "side")
        line = "echo 2 > f; git commit -qam two; git branch other; git status --short > status"
        program("--isolate", tier, "-c", line).went_well()
        assert git(linked, "log", "-1", "--format=%s", "side") == "two"
        assert git(linked, "status", "--short", "--untracked-files=no") == ""
        assert (linked / "status").read_text() == "?? status\n"
        [entry] = program.json("log", "--limit", "1")["commands"]
        assert entry["isolation"]["tier"] == tier
        assert "outside the workspace, not protected" in entry["isolation"]["reason"]
        shown = program.json("show", entry["command_id"])
        assert sorted(shown["detail"]["git"]["refs"]) == ["refs/heads/other", "refs/heads/side"]
        program("undo", "--with-git").went_well()
        assert git(linked, "rev-parse", "side") == before
        assert (linked / "f").read_text() == "1\n"
        git(linked, "fsck", "--strict")

    def test_a_command_that_only_commits(self, linked: Path) -> None:
        program = program_in(linked)
        before = git(linked, "rev-parse", "side")
        program.sh("git commit -q --allow-empty -m two")
        shown = program.json("show", "@")
        assert list(shown["detail"]["git"]["refs"]) == ["refs/heads/side"]
        program("undo", "@", "--with-git").went_well()
        assert git(linked, "rev-parse", "side") == before

    def test_what_another_worktree_did_in_between_is_not_taken_back(self, linked: Path) -> None:
        program = program_in(linked)
        main = linked.parent / "main"
        program.sh(
            f"git commit -q --allow-empty -m two; git -C {main} commit -q --allow-empty -m m"
        )
        program("undo", "@", "--with-git").went_well()
        assert git(main, "log", "-1", "--format=%s") == "m"
        assert git(linked, "log", "-1", "--format=%s") == "one"

    def test_a_hook_is_named_and_cannot_be_planted_where_everything_is_shut(
        self, linked: Path
    ) -> None:
        program = program_in(linked)
        hook = linked.parent / "main" / ".git" / "hooks" / "post-commit"
        line = f"echo x > {hook}; git config core.pager evil;"
        line += " echo /tmp/x > $(git rev-parse --git-dir)/commondir"
        for tier in ("guarded", "full"):
            done = program("--isolate", tier, "-c", line)
            assert done.errors.count("ead-only file system") + done.errors.count("denied") >= 3
        assert not hook.exists()
        assert "pager" not in (linked.parent / "main" / ".git" / "config").read_text()
        assert git(linked, "log", "-1", "--format=%s") == "one"
        done = program("-c", f"echo x > {hook}").went_well()
        assert f"makes other programs run code: {hook}" in done.errors


def test_a_submodule_commits_in_the_superproject_s_world(tmp_path: Path) -> None:
    """Its git directory is in the superproject's: the view covers it."""
    sub = repository(tmp_path / "sub")
    top = repository(tmp_path / "top")
    git(top, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(sub), "sub")
    git(top, "commit", "-qm", "two")
    program = program_in(top)
    program.sh("cd sub && echo 2 > f && git commit -qam three && cd .. && git commit -qam four")
    assert git(top / "sub", "log", "-1", "--format=%s") == "three"
    assert git(top, "submodule", "status")[:1] != "+"
    assert git(top, "status", "--short") == ""
    git(top / "sub", "fsck", "--strict")


def test_a_submodule_that_is_the_workspace(far: Path) -> None:
    sub = repository(far / "sub")
    top = repository(far / "top")
    git(top, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(sub), "sub")
    program = program_in(top / "sub")
    program.sh("echo 2 > f; git commit -qam three")
    assert git(top / "sub", "log", "-1", "--format=%s") == "three"
    program("undo", "--with-git").went_well()
    assert git(top / "sub", "log", "-1", "--format=%s") == "one"
    done = program("--isolate", "guarded", "-c", "git commit -q --allow-empty -m four")
    assert done.status != 0 and "ead-only file system" in done.errors


@pytest.fixture(params=["tmpfs", "overlay"])
def own_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A workspace that is the top of a file system of its own."""
    root = tmp_path / "project"
    for name in ("project", "lower", "upper", "work"):
        (tmp_path / name).mkdir()
    (tmp_path / "lower" / "a").write_text("1\n")
    (tmp_path / "lower" / "d").mkdir()
    (tmp_path / "lower" / "d" / "deep").write_text("deep\n")
    mount = ["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", str(root)]
    if request.param == "overlay":
        layers = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work"
        mount = ["mount", "-t", "overlay", "overlay", "-o", layers, str(root)]
    subprocess.run(mount, check=True)
    try:
        if request.param == "tmpfs":
            subprocess.run(["cp", "-a", f"{tmp_path}/lower/.", str(root)], check=True)
        git(root, "init", "-q")
        yield root
    finally:
        subprocess.run(["umount", "-l", str(root)], check=True)


@pytest.mark.needs("mounts")
def test_a_workspace_on_a_file_system_of_its_own(own_disk: Path) -> None:
    program = program_in(own_disk)
    inode = (own_disk / "a").stat().st_ino
    program.sh(
        "echo 2 >> a; rm -r d; mkdir -p d/new; echo n > d/new/n; ln -s a link; chmod 700 d/new;"
        " mkdir -p node_modules/m; echo m > node_modules/m/m; git add a; git commit -qm one"
    )
    assert (own_disk / "a").read_text() == "1\n2\n"
    if (own_disk.parent / "upper" / "a").exists():
        inode = 0  # an overlay gives no handles: what it was copied from cannot be proved
    assert inode in (0, (own_disk / "a").stat().st_ino)
    assert not (own_disk / "d" / "deep").exists()
    assert (own_disk / "d" / "new").stat().st_mode & 0o777 == 0o700
    assert (own_disk / "node_modules" / "m" / "m").read_text() == "m\n"
    assert git(own_disk, "log", "-1", "--format=%s") == "one"
    git(own_disk, "fsck", "--strict")
    [entry] = program.json("log", "--limit", "1")["commands"]
    assert entry["isolation"]["strategy"] == "overlay"
    for path in own_disk.rglob("*"):
        marks = os.listxattr(path, follow_symlinks=False)
        assert not [name for name in marks if "overlay" in name], path
    program("undo", "--files-only").went_well()
    assert (own_disk / "d" / "deep").read_text() == "deep\n"
    assert not (own_disk / "link").is_symlink()
    program("fsck").went_well()
    for worlds in (
        own_disk / ".substrate-git" / "worlds",
        own_disk.parent / "home/.substrate/worlds",
    ):
        assert not worlds.exists() or not list(worlds.iterdir())


@pytest.mark.needs("mounts")
def test_a_mount_inside_is_real_and_named(tmp_path: Path) -> None:
    root = repository(tmp_path / "project")
    (root / "data").mkdir()
    program = program_in(root)
    with mounted(root / "data", *tmpfs_words()):
        (root / "data" / "old").write_text("old\n")
        program("--hold", "-c", "cat data/old > copy; echo new > data/new; rm data/old").went_well()
        # Not protected: it is there though the rest waits.
        assert os.listdir(root / "data") == ["new"]
        [world] = program.json("world", "list")["worlds"]
        [entry] = program.json("log", "--limit", "1")["commands"]
        assert f"not protected: {root / 'data'}" in entry["isolation"]["reason"]
        program("world", "apply", world["world_id"]).went_well()
        assert (root / "copy").read_text() == "old\n"
        assert os.listdir(root / "data") == ["new"]


@pytest.mark.needs("mounts")
class TestAChangeOnAMountInside:
    """A world cannot hold it back, and undo cannot take it back: the command says so."""

    @pytest.fixture
    def program(self, tmp_path: Path) -> Iterator[Program]:
        root = repository(tmp_path / "project")
        (root / "data").mkdir()
        program = program_in(root)
        with mounted(root / "data", *tmpfs_words()):
            (root / "data" / "sub").mkdir()
            for name in ("one", "two", "sub/three"):
                (root / "data" / name).write_text("1\n")
            yield program

    def test_a_removal_is_named_at_the_command(self, program: Program) -> None:
        done = program("-c", "rm -rf data/*; echo 2 > f").went_well()
        assert "data is another mount and is not protected" in done.errors
        assert "(data/one, data/sub, data/sub/three, data/two)" in done.errors
        program("undo").went_well()
        assert os.listdir(program.cwd / "data") == []

    def test_undo_does_not_pass_over_it(self, program: Program) -> None:
        """Seen: undo took back the command before it instead."""
        program("-c", "echo 2 > f").went_well()
        program("-c", "rm -rf data/*").went_well()
        program("-c", "true").went_well()
        program("undo").is_clear(5, "rm -rf data/*", "another mount")
        assert (program.cwd / "f").read_text() == "2\n"

    @pytest.mark.parametrize(
        "line", ["echo 2 > data/one", "echo 2 > data/sub/new", "chmod 600 data/sub/three"]
    )
    def test_every_kind_of_change_is_named(self, program: Program, line: str) -> None:
        assert "data is another mount" in program("-c", line).went_well().errors

    def test_without_a_change_there_nothing_is_reported(self, program: Program) -> None:
        done = program("-c", "cat data/one > copy; ls data/sub").went_well()
        assert "another mount" not in done.errors

    def test_more_files_than_are_listed(self, program: Program) -> None:
        many = program.cwd / "data" / "many"
        many.mkdir()
        for number in range(1_500):
            (many / str(number)).touch()
        assert "another mount" not in program("-c", "ls data/many").went_well().errors
        assert "data is another mount" in program("-c", "rm data/many/700").went_well().errors

    def test_without_a_world_it_is_recorded_and_comes_back(self, program: Program) -> None:
        done = program("--no-world", "-c", "rm -rf data/*").went_well()
        assert "another mount" not in done.errors
        program("undo").went_well()
        assert (program.cwd / "data" / "sub" / "three").read_text() == "1\n"

    def test_the_baseline_does_not_count_it(self, program: Program) -> None:
        program("-c", "true").went_well()
        [baseline] = [
            line for line in program("log").went_well().text.splitlines() if "[baseline]" in line
        ]
        assert baseline.partition("[baseline]")[0].split()[-1] == "1"  # `f`


class TestFilesOfOtherUsers:
    """`sudo` and container builds leave such files in a user's own directory."""

    @pytest.fixture
    def program(self, far: Path) -> Program:
        root = far / "project"
        (root / "own").mkdir(parents=True)
        program = program_in(root, NOBODY)
        program("-c", "echo 1 > own/mine").went_well()
        for path in (root / "shut", root / "own" / "shut"):
            path.write_text("root's\n")
            path.chmod(0o600)
        return program

    def test_removed_they_are_gone_and_undo_brings_them_back(
        self, program: Program, far: Path
    ) -> None:
        root = far / "project"
        program("-c", "rm -f shut; rm -rf own").went_well()
        assert sorted(os.listdir(root)) == [".substrate-git"]
        program("undo").went_well()
        for path in (root / "shut", root / "own" / "shut"):
            assert (path.read_text(), path.stat().st_uid) == ("root's\n", 0)
        assert (root / "own" / "mine").read_text() == "1\n"

    def test_what_a_world_cannot_do_is_reported(self, program: Program, far: Path) -> None:
        done = program("-c", "mv shut moved")
        assert done.status == 1
        assert "substrate --no-world" in done.errors
        program("--no-world", "-c", "mv shut moved").went_well()
        assert (far / "project" / "moved").read_text() == "root's\n"


def test_root_makes_no_store_in_another_user_s_project(far: Path) -> None:
    root = far / "project"
    root.mkdir()
    program_in(root, NOBODY)
    as_root = Program(root, {"HOME": str(far), "SUBSTRATE_HOME": str(far / "root-home")}, None)
    done = as_root("-c", "echo by root > made").went_well()
    assert f"belongs to another user (uid {NOBODY})" in done.errors
    assert "undo cannot take it back" in done.errors
    assert f"sudo -u '#{NOBODY}' substrate" in done.errors
    assert os.listdir(root) == ["made"]
    owner = program_in(root, NOBODY)
    owner("-c", "rm -f made").went_well()
    owner("undo").went_well()
    assert (root / "made").read_text() == "by root\n"
    # Root does not open the owner's history either: its owner could make root act on it.
    as_root("undo").is_clear(5, "belongs to another user")
    done = as_root("-c", "echo again > made").went_well()
    assert "belongs to another user" in done.errors
    assert {path.lstat().st_uid for path in (root / ".substrate-git").rglob("*")} == {NOBODY}


def test_a_store_that_root_made_there_says_how_to_take_it_over(far: Path) -> None:
    root = far / "project"
    root.mkdir()
    as_root = Program(root, {"HOME": str(far), "SUBSTRATE_HOME": str(far / "root-home")}, None)
    as_root("-c", "echo 1 > a").went_well()
    owner = Program(root, program_in(root).env, NOBODY)
    os.chown(root, NOBODY, NOBODY)
    for path in (far / "home", *(far / "home").rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    owner("undo").is_clear(5, "belongs to another user (uid 0)", "chown -R")
    as_root("-c", "echo 2 > a").went_well()
    assert "no history" not in as_root("log").errors
    subprocess.run(
        ["chown", "-R", f"{NOBODY}:{NOBODY}", str(root / ".substrate-git"), str(root)], check=True
    )
    owner("undo").went_well()
    assert (root / "a").read_text() == "1\n"
