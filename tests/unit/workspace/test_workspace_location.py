"""Finding the workspace, its repository, and the places where no history is kept."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from substrate.errors import HistoryRefusedError, WorkspaceError
from substrate.workspace.workspace_location import Workspace, find_workspace, protect_store


def git(*words: str, cwd: Path) -> str:
    done = subprocess.run(["git", *words], cwd=cwd, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """pytest's own directory is a plain one: nothing above it is marked."""
    made = tmp_path / "place"
    made.mkdir()
    return Path(os.path.realpath(made))


def test_an_unmarked_directory_is_its_own_workspace(place: Path) -> None:
    deep = place / "a" / "b"
    deep.mkdir(parents=True)
    at = deep.stat()
    identity = (at.st_dev, at.st_ino)
    assert find_workspace(deep) == Workspace(
        deep, deep / ".substrate-git", None, None, "", identity
    )


def test_the_nearest_store_wins_over_any_repository(place: Path) -> None:
    deep = place / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (place / ".git").mkdir()
    (place / "a" / "b" / ".git").mkdir()
    assert find_workspace(deep).root == place / "a" / "b"
    (place / ".substrate-git").mkdir()
    assert find_workspace(deep).root == place
    (place / "a" / ".substrate-git").mkdir()
    assert find_workspace(deep).root == place / "a"
    assert find_workspace(place).root == place


def test_a_store_that_is_no_directory_is_none(place: Path) -> None:
    (place / "a").mkdir()
    (place / ".substrate-git").write_text("a file")
    assert find_workspace(place / "a").root == place / "a"


@pytest.mark.needs("symlinks")
def test_links_are_resolved_before_looking_up(place: Path) -> None:
    (place / "real" / "inner").mkdir(parents=True)
    (place / "real" / ".git").mkdir()
    (place / "link").symlink_to("real/inner")
    assert find_workspace(place / "link").root == place / "real"


@pytest.mark.parametrize("name", ["none", "file"])
def test_not_a_directory(place: Path, name: str) -> None:
    (place / "file").write_text("x")
    with pytest.raises(WorkspaceError) as caught:
        find_workspace(place / name)
    assert caught.value.hint
    assert name in caught.value.message


def test_an_ordinary_repository(place: Path) -> None:
    git("init", "-q", cwd=place)
    found = find_workspace(place)
    assert (found.git_dir, found.git_common_dir) == (place / ".git", place / ".git")


def test_a_linked_worktree(place: Path) -> None:
    main = place / "main"
    main.mkdir()
    git("init", "-q", cwd=main)
    git("commit", "-q", "--allow-empty", "-m", "one", cwd=main)
    git("worktree", "add", "-q", str(place / "linked"), cwd=main)
    found = find_workspace(place / "linked")
    assert found.root == place / "linked"
    assert found.git_dir == main / ".git" / "worktrees" / "linked"
    assert found.git_common_dir == main / ".git"
    assert str(found.git_dir) == git("rev-parse", "--absolute-git-dir", cwd=place / "linked")


def test_a_submodule_has_a_relative_pointer(place: Path) -> None:
    module = place / ".git" / "modules" / "sub"
    module.parent.mkdir(parents=True)
    git("init", "-q", "--separate-git-dir", str(module), str(place / "sub"), cwd=place)
    (place / "sub" / ".git").write_bytes(b"gitdir: ../.git/modules/sub\r\n")
    found = find_workspace(place / "sub")
    assert (found.git_dir, found.git_common_dir) == (module, module)


@pytest.mark.parametrize(
    "pointer", [b"", b"gitdir:", b"gitdir: /nowhere", b"junk", b"\xff" * 10000, b"gitdir: \0x"]
)
def test_a_pointer_to_nowhere_is_no_repository(place: Path, pointer: bytes) -> None:
    (place / ".git").write_bytes(pointer)
    found = find_workspace(place)
    assert (found.root, found.git_dir) == (place, None)


@pytest.mark.needs("posix")
def test_a_pointer_that_is_a_fifo_does_not_hang(place: Path) -> None:
    os.mkfifo(place / ".git")
    assert find_workspace(place).git_dir is None


def test_no_history_at_the_top(private_environment: Path) -> None:
    assert "root of the file system" in find_workspace(Path("/")).history_refused
    assert "home directory" in find_workspace(private_environment).history_refused


@pytest.mark.needs("symlinks")
def test_no_history_in_a_home_behind_a_link(
    place: Path, private_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "home").symlink_to(private_environment)
    monkeypatch.setenv("HOME", str(place / "home"))
    assert "home directory" in find_workspace(place / "home").history_refused


@pytest.mark.needs("linux")
def test_no_history_at_a_mount_point() -> None:
    assert "mounted" in find_workspace(Path("/proc")).history_refused


@pytest.mark.needs("posix")
def test_no_history_in_a_sticky_directory(place: Path) -> None:
    place.chmod(0o1777)
    assert "sticky" in find_workspace(place).history_refused
    with pytest.raises(HistoryRefusedError) as caught:
        protect_store(find_workspace(place))
    assert caught.value.hint
    assert os.listdir(place) == []


def in_child_as_nobody(code: object) -> bytes:
    assert callable(code)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            os.write(writer, os.fsencode(code()))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


@pytest.mark.needs("other-user")
def test_no_history_in_another_users_directory() -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o777)
        said = in_child_as_nobody(lambda: find_workspace(Path(name)).history_refused)
        assert b"another user (uid 0)" in said
        os.chown(name, 65534, 65534)
        assert in_child_as_nobody(lambda: find_workspace(Path(name)).history_refused + "!") == b"!"
        os.chmod(name, 0o555)
        said = in_child_as_nobody(lambda: find_workspace(Path(name)).history_refused)
        assert b"cannot be written" in said


@pytest.mark.needs("other-user")
@pytest.mark.parametrize("mark", [".git", ".substrate-git"])
def test_a_mark_planted_in_a_shared_directory_is_passed_over(mark: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        shared, mine = Path(name), Path(name) / "mine"
        os.chmod(shared, 0o1777)
        mine.mkdir()
        (shared / mark).mkdir()
        os.chown(mine, 65534, 65534)
        said = in_child_as_nobody(lambda: str(find_workspace(mine).root))
        assert said == os.fsencode(os.path.realpath(mine))


def test_the_store_is_private_and_hidden(place: Path) -> None:
    git("init", "-q", cwd=place)
    before = (place / ".git/info/exclude").read_bytes()
    for name in (".ctx", ".manifold"):
        (place / name).mkdir()
        (place / name / "x").write_text("x")
    protect_store(find_workspace(place))
    store = place / ".substrate-git"
    (store / "secret").write_text("x")
    assert stat.S_IMODE(store.stat().st_mode) == 0o700 or os.name != "posix"
    assert (store / ".gitignore").read_bytes() == b"*\n"
    after = (place / ".git/info/exclude").read_bytes()
    assert after == before + b".substrate-git/\n.ctx/\n.manifold/\n"
    assert git("status", "--porcelain", "--untracked-files=all", cwd=place) == ""
    protect_store(find_workspace(place))
    assert (place / ".git/info/exclude").read_bytes() == after


def test_the_users_exclude_file_keeps_its_bytes(place: Path) -> None:
    git("init", "-q", cwd=place)
    mine = b"/.ctx/\n\xff*.tmp\r\n# no newline at the end"
    (place / ".git/info/exclude").write_bytes(mine)
    protect_store(find_workspace(place))
    after = (place / ".git/info/exclude").read_bytes()
    assert after == mine + b"\n.substrate-git/\n.manifold/\n"


def test_a_repository_without_an_info_directory(place: Path) -> None:
    git("init", "-q", "--template=", cwd=place)
    protect_store(find_workspace(place))
    assert git("status", "--porcelain", cwd=place) == ""


def test_worktrees_share_the_exclude_file(place: Path) -> None:
    main = place / "main"
    main.mkdir()
    git("init", "-q", cwd=main)
    git("commit", "-q", "--allow-empty", "-m", "one", cwd=main)
    git("worktree", "add", "-q", str(place / "linked"), cwd=main)
    protect_store(find_workspace(place / "linked"))
    assert b".substrate-git/" in (main / ".git/info/exclude").read_bytes()
    assert git("status", "--porcelain", cwd=place / "linked") == ""


@pytest.mark.needs("symlinks")
def test_a_linked_exclude_file_is_left_alone(place: Path) -> None:
    git("init", "-q", cwd=place)
    (place / "profile").write_text("mine")
    (place / ".git/info/exclude").unlink()
    (place / ".git/info/exclude").symlink_to(place / "profile")
    protect_store(find_workspace(place))
    assert (place / "profile").read_text() == "mine"
    assert ".substrate-git" not in git("status", "--porcelain", cwd=place)


@pytest.mark.needs("posix")
def test_an_open_store_is_closed(place: Path) -> None:
    (place / ".substrate-git").mkdir()
    (place / ".substrate-git").chmod(0o755)
    protect_store(find_workspace(place))
    assert stat.S_IMODE((place / ".substrate-git").stat().st_mode) == 0o700


@pytest.mark.needs("symlinks")
@pytest.mark.parametrize("kind", ["file", "link"])
def test_something_in_the_stores_place(place: Path, kind: str) -> None:
    store = place / ".substrate-git"
    if kind == "file":
        store.write_text("x")
    else:
        (place / "other").mkdir()
        store.symlink_to(place / "other")
    with pytest.raises(WorkspaceError, match="in the way") as caught:
        protect_store(find_workspace(place))
    assert caught.value.hint
