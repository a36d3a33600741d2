"""Whatever happens in a tree is counted, under whichever name it happens, and ever after."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from substrate.errors import MissingDependencyError
from substrate.system.files import renames
from substrate.system.watcher_client import tree_of
from substrate.workspace.watch import inotify_quiet_proof
from substrate.workspace.watch.inotify_quiet_proof import StillWatch

pytestmark = pytest.mark.needs("linux")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name in ("src/deep/er", "node_modules/x", ".git/refs", "empty", ".substrate-git"):
        (root / name).mkdir(parents=True)
    for name in ("src/a", "src/deep/er/b", "node_modules/x/c", ".git/HEAD", "linked"):
        (root / name).write_bytes(b"content\n")
    os.link(root / "linked", tmp_path / "outside")
    os.symlink("src", root / "link")
    return root


@pytest.fixture
def watch(root: Path) -> Iterator[StillWatch]:
    made = StillWatch(root)
    made.set_up()
    yield made
    made.close()


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more\n")


#: Events by description: an action on a path that existed before the watch was set up.
EVENTS: dict[str, Callable[[Path], object]] = {
    "written to": lambda r: _append(r / "src/a"),
    "written to where history does not look": lambda r: _append(r / "node_modules/x/c"),
    "written to in a repository": lambda r: _append(r / ".git/HEAD"),
    "written to under a name outside": lambda r: _append(r.parent / "outside"),
    "a mode under a name outside": lambda r: (r.parent / "outside").chmod(0o600),
    "cut off": lambda r: os.truncate(r / "src/a", 3),
    "a name outside is made": lambda r: os.link(r / "src/a", r.parent / "new"),
    "a name outside is removed": lambda r: os.unlink(r.parent / "outside"),
    "made": lambda r: (r / "empty/new").touch(),
    "a directory is made": lambda r: (r / "src/deep/er/new").mkdir(),
    "removed": lambda r: (r / "src/a").unlink(),
    "a directory is removed": lambda r: (r / "empty").rmdir(),
    "renamed": lambda r: (r / "src/a").rename(r / "src/b"),
    "moved out": lambda r: (r / "src/deep").rename(r.parent / "deep"),
    "a directory's mode": lambda r: (r / "src/deep").chmod(0o700),
    "the root's mode": lambda r: r.chmod(0o700),
    "a time": lambda r: os.utime(r / "src/a", (1, 1)),
    "an attribute": lambda r: os.setxattr(r / "src/a", "user.x", b"y"),
    "a link's owner or time": lambda r: os.utime(r / "link", (1, 1), follow_symlinks=False),
    "the whole is moved away": lambda r: r.rename(r.parent / "elsewhere"),
}


@pytest.mark.parametrize("what", EVENTS)
def test_it_is_counted(root: Path, watch: StillWatch, what: str) -> None:
    before = watch.token()
    assert watch.token() == before
    EVENTS[what](root)
    assert tree_of(watch.token()) != tree_of(before)
    assert bool(watch.lost) is ("whole" in what)


def test_reading_is_nothing_and_so_is_the_store(root: Path, watch: StillWatch) -> None:
    before = watch.token()
    subprocess.run(["grep", "-r", "content", "."], cwd=root, check=True, capture_output=True)
    (root / ".substrate-git" / "new").touch()
    assert watch.token() == before


def test_a_lock_that_came_and_went_is_distinguished(root: Path, watch: StillWatch) -> None:
    before = watch.token()
    lock = root / ".git" / "index.lock"
    lock.touch()
    assert not watch.read()
    assert watch.is_passing
    lock.chmod(0o600)
    lock.unlink()
    assert watch.token() != before, "somebody may have looked meanwhile"
    assert tree_of(watch.token()) == tree_of(before)
    lock.touch()
    assert tree_of(watch.token()) != tree_of(before), "it is there"
    before = watch.token()
    lock.write_text("more")
    assert tree_of(watch.token()) != tree_of(before), "and watched"
    before = watch.token()
    lock.rename(lock.with_name("index"))
    assert tree_of(watch.token()) != tree_of(before)
    lock.touch()
    lock.rename(lock.with_name("index"))
    assert tree_of(watch.token()) != tree_of(before)
    before = watch.token()
    (root / ".git" / "HEAD").unlink()
    (root / ".git" / "HEAD").touch()
    (root / ".git" / "HEAD").unlink()
    assert tree_of(watch.token()) != tree_of(before), "it was another one"


def test_another_watch_is_never_taken_for_this_one(root: Path, watch: StillWatch) -> None:
    other = StillWatch(root)
    other.set_up()
    assert other.token() != watch.token()
    other.close()


def _is_seen(watch: StillWatch, edit: Callable[[], object]) -> bool:
    before = watch.token()
    assert not watch.lost
    edit()
    return tree_of(watch.token()) != tree_of(before)


def test_directories_that_changed_places_are_both_watched(root: Path, watch: StillWatch) -> None:
    assert renames.exchange(bytes(root / "src"), bytes(root / "node_modules"))
    for name in ("src/x/new", "node_modules/deep/new", "src/new", "node_modules/new"):
        assert _is_seen(watch, (root / name).mkdir), name


def test_no_link_leads_to_a_watch_under_another_name(root: Path, watch: StillWatch) -> None:
    """When an event is read late, its path may be a symbolic link by then."""
    (root / "other/deep").mkdir(parents=True)
    (root / "other/a").touch()
    (root / "other/x").touch()
    watch.token()
    (root / "empty/deep").mkdir()
    (root / "empty/x").touch()
    (root / "other/x").unlink()
    (root / "other/x").mkdir()
    watch.token()
    (root / "empty/deep/late").mkdir()
    (root / "empty/x").rename(root / "empty/a")
    (root / "empty/a").rename(root / "empty/x")
    (root / "empty").rename(root / "gone")
    (root / "empty").symlink_to("other")
    for name in ("other/deep/new", "other/x/new", "gone/deep/late/new", "other/deep/new/er"):
        assert _is_seen(watch, (root / name).mkdir), name


def test_another_tree_at_its_place_is_not_taken_for_it(root: Path, watch: StillWatch) -> None:
    above, aside = root.parent, root.parent.with_name(f"{root.parent.name}-aside")
    before = watch.token()
    above.rename(aside)
    shutil.copytree(aside, above, symlinks=True)
    assert watch.token() != before
    assert watch.lost


def _inodes(root: Path) -> list[Path]:
    found = [root, *root.rglob("*")]
    return [path for path in found if ".substrate-git" not in path.parts]


def _shuffle(root: Path, chance: random.Random) -> None:
    """New and moved things, at once: the watch hears of them late."""
    for _ in range(chance.randint(1, 8)):
        directories = [p for p in _inodes(root) if p.is_dir() and not p.is_symlink()]
        there, target = chance.choice(directories), chance.choice(directories)
        name = target / f"n{chance.randint(0, 9)}"
        if chance.random() < 0.3 and there != root and not name.exists():
            if not name.is_relative_to(there):
                there.rename(name)
        elif chance.random() < 0.5 and not name.exists():
            name.mkdir()
            (name / "inner").mkdir()
            (name / "inner" / "file").write_bytes(b"1")
        elif not name.is_dir():
            name.with_name("aside").write_bytes(b"2")
            name.with_name("aside").rename(name)


@pytest.mark.parametrize("seed", range(6))
def test_what_came_later_is_watched_as_well(root: Path, watch: StillWatch, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(10):
        _shuffle(root, chance)
        watch.token()
        assert not watch.lost
        for number, path in enumerate(_inodes(root)):
            if path.is_symlink():
                continue
            # By a name that it does not have in the tree, where that can be had.
            aside = root.parent / f"aside-{number}"
            if path.is_file():
                os.link(path, aside)
            before = watch.token()
            (aside if path.is_file() else path).chmod(0o750)
            assert tree_of(watch.token()) != tree_of(before), path
            aside.unlink(missing_ok=True)


def test_too_much_at_once_is_not_taken_for_nothing(
    root: Path, watch: StillWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inotify_quiet_proof, "_MOST_AT_ONCE", 5)
    before = watch.token()
    (root.parent / "bulk").mkdir()
    for number in range(9):
        (root.parent / "bulk" / str(number)).touch()
    (root.parent / "bulk").rename(root / "bulk")
    assert watch.token() != before
    assert watch.lost == "too many files"


def test_a_tree_with_too_many_files_is_not_watched(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inotify_quiet_proof, "_MOST_WATCHES", 5)
    with pytest.raises(MissingDependencyError, match="too many files"):
        StillWatch(root).set_up()


def test_several_trees_share_what_one_user_may_have(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limit = tmp_path / "limit"
    limit.write_text("40\n")
    monkeypatch.setattr(inotify_quiet_proof, "_LIMIT_FILE", str(limit))
    first = StillWatch(root)
    first.set_up()
    assert 10 < first.watches <= 20
    second = StillWatch(root)
    with pytest.raises(MissingDependencyError, match="too many files"):
        second.set_up()
    second.close()
    first.close()
    again = StillWatch(root)
    again.set_up()
    again.close()
