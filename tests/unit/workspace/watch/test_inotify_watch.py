"""A real tree, real edits, real events."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from substrate.errors import MissingDependencyError
from substrate.model.paths import RelPath
from substrate.system.files import renames
from substrate.workspace.exclude import Exclusions
from substrate.workspace.watch import inotify_watch
from substrate.workspace.watch.inotify_watch import TreeWatch

pytestmark = pytest.mark.needs("linux")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("src/deep/er", "node_modules/x", ".git/refs", "empty"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "src/a").write_bytes(b"a")
    (tmp_path / "src/deep/er/b").write_bytes(b"b")
    return tmp_path


@pytest.fixture
def tree(root: Path) -> Iterator[TreeWatch]:
    made = TreeWatch(root, Exclusions.load(root))
    made.set_up()
    yield made
    made.close()


def suspects(tree: TreeWatch) -> dict[bytes, bool]:
    """What came since the last look, and whether it is meant with all below."""
    tree.read()
    found = {bytes(path): one.deep for path, one in tree.suspects.items()}
    tree.settled(tree.generation)
    return found


def test_nothing_happened(tree: TreeWatch) -> None:
    assert suspects(tree) == {}
    assert tree.directories == 5, "root, src, src/deep, src/deep/er, empty"


def test_every_way_to_change_a_file(root: Path, tree: TreeWatch) -> None:
    (root / "src/new").write_bytes(b"1")
    assert suspects(tree) == {b"src/new": True}
    with (root / "src/new").open("ab", buffering=0) as kept_open:
        kept_open.write(b"2")
        assert suspects(tree) == {b"src/new": True}, "though nobody closed it"
    (root / "src/new").chmod(0o600)
    (root / "src/deep/er/b").rename(root / "src/c")
    os.symlink("c", root / "src/link")
    (root / "src/a").unlink()
    assert set(suspects(tree)) == {
        b"src/new", b"src/deep/er/b", b"src/c", b"src/link", b"src/a",
    }  # fmt: skip
    (root / "src/new").read_bytes()
    assert suspects(tree) == {}, "who only reads changes nothing"


def changed_links(tree: TreeWatch) -> dict[bytes, bool]:
    tree.read_linked()
    return suspects(tree)


def settle_links(tree: TreeWatch) -> None:
    """Wait until the times of the last change are old enough to show the next one."""
    for _ in range(500):
        if not changed_links(tree):
            return
        time.sleep(0.01)
    raise AssertionError("a file stays a suspect")


def test_a_file_with_another_name_is_compared(
    root: Path, tree: TreeWatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "name"
    assert (changed_links(tree), len(tree.linked)) == ({}, 0)
    outside.write_bytes(b"1")
    os.link(outside, root / "src/linked")
    assert changed_links(tree) == {b"src/linked": True}
    settle_links(tree)
    outside.write_bytes(b"through the other name")
    assert changed_links(tree) == {b"src/linked": True}
    settle_links(tree)
    outside.unlink()
    tree.read_linked()
    assert len(tree.linked) == 0


def test_a_file_that_had_another_name_before_the_watch(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "name"
    os.link(root / "src/deep/er/b", outside)
    (root / "node_modules/x/one").write_bytes(b"1")
    os.link(root / "node_modules/x/one", root / "node_modules/x/two")
    helper = TreeWatch(root, Exclusions.load(root))
    helper.set_up()
    tree = TreeWatch(root, Exclusions.load(root))
    tree.linked.take_over(helper.linked.table())
    helper.close()
    assert len(tree.linked) == 1, "excluded files do not count"
    settle_links(tree)
    outside.write_bytes(b"changed")
    assert changed_links(tree) == {b"src/deep/er/b": True}
    tree.close()


def test_directories_come_move_and_go(root: Path, tree: TreeWatch) -> None:
    (root / "fresh/below").mkdir(parents=True)
    (root / "fresh/below/early").write_bytes(b"before there could be a watch")
    assert suspects(tree) == {b"fresh": True}
    (root / "fresh/below/late").write_bytes(b"x")
    assert suspects(tree) == {b"fresh/below/late": True}
    (root / "fresh").rename(root / "elsewhere")
    assert set(suspects(tree)) == {b"fresh", b"elsewhere"}
    (root / "elsewhere/below/late").write_bytes(b"y")
    assert set(suspects(tree)) == {b"elsewhere/below/late"}, "under its new name"
    subprocess.run(["rm", "-r", str(root / "elsewhere")], check=True)
    assert b"elsewhere" in suspects(tree)
    (root / "elsewhere").mkdir()
    (root / "elsewhere/again").write_bytes(b"z")
    assert suspects(tree) == {b"elsewhere": True}
    (root / "elsewhere/again").write_bytes(b"zz")
    assert suspects(tree) == {b"elsewhere/again": True}


def test_a_changed_mode_reports_the_directory_alone(root: Path, tree: TreeWatch) -> None:
    (root / "src").chmod(0o700)
    assert suspects(tree) == {b"src": False}


def test_moved_out_of_the_tree_and_back(
    root: Path, tree: TreeWatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "src"
    (root / "src").rename(outside)
    assert suspects(tree) == {b"src": True}
    (outside / "a").write_bytes(b"not ours any more")
    assert suspects(tree) == {}
    outside.rename(root / "src")
    assert suspects(tree) == {b"src": True}
    (root / "src/deep/er/b").write_bytes(b"ours again")
    assert suspects(tree) == {b"src/deep/er/b": True}


def test_what_is_left_out_is_not_watched(root: Path, tree: TreeWatch) -> None:
    for name in ("node_modules/x/f", ".git/refs/f", "src/__pycache__"):
        path = root / name
        path.mkdir() if path.name == "__pycache__" else path.write_bytes(b"x")
    (root / "src/__pycache__/m.pyc").write_bytes(b"x")
    (root / ".ctx").mkdir()
    assert suspects(tree) == {}
    (root / ".git").rename(root / "kept")
    assert suspects(tree) == {b"kept": True}
    (root / "kept/refs/f").write_bytes(b"y")
    assert suspects(tree) == {b"kept/refs/f": True}


def test_the_users_own_rules(root: Path) -> None:
    (root / ".substrateignore").write_bytes(b"*.log\nempty/\n")
    tree = TreeWatch(root, Exclusions.load(root))
    tree.set_up()
    try:
        (root / "src/x.log").write_bytes(b"x")
        (root / "empty/y").write_bytes(b"y")
        assert suspects(tree) == {}
        (root / ".substrateignore").write_bytes(b"")
        suspects(tree)
        assert "rules" in tree.lost
    finally:
        tree.close()


def test_only_what_was_answered_is_settled(root: Path, tree: TreeWatch) -> None:
    (root / "src/a").write_bytes(b"1")
    tree.read()
    answered = tree.generation
    (root / "src/a").write_bytes(b"2")
    tree.read()
    tree.settled(answered)
    assert list(tree.suspects) == [RelPath(b"src/a")], "written again since"


def test_more_events_than_the_queue_holds(root: Path, tree: TreeWatch) -> None:
    room = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for number in range(room + 10):  # no two alike in a row: those would be one
        os.chmod(root / ("src/a", "empty")[number % 2], 0o700 + number % 3)
    tree.read()
    assert "too many changes" in tree.lost
    assert not tree.suspects


def test_limits_are_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inotify_watch, "MOST_DIRECTORIES", 3)
    tree = TreeWatch(root, Exclusions.load(root))
    with pytest.raises(MissingDependencyError, match="too many directories"):
        tree.set_up()
    tree.close()


_WITH_FEW_WATCHES = """
import sys
from pathlib import Path
from substrate.errors import MissingDependencyError
from substrate.workspace.exclude import Exclusions
from substrate.workspace.watch.inotify_watch import TreeWatch
root = Path(sys.argv[1])
tree = TreeWatch(root, Exclusions.load(root))
try:
    tree.set_up()
except MissingDependencyError as error:
    print(error.message, error.hint)
"""


@pytest.mark.needs("user-namespaces")
def test_the_systems_limit_is_named(root: Path) -> None:
    """In a separate user namespace, so that no other process runs out of watches."""
    script = 'echo 3 > /proc/sys/user/max_inotify_watches && exec "$@"'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh",
         sys.executable, "-c", _WITH_FEW_WATCHES, str(root)],
        capture_output=True, check=True,
    )  # fmt: skip
    assert b"fs.inotify.max_user_watches is reached as root: sysctl" in done.stdout


def test_the_root_itself_goes(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    tree = TreeWatch(root, Exclusions.load(root))
    tree.set_up()
    assert tree.is_same_place()
    root.rename(tmp_path / "renamed")
    root.mkdir()
    tree.read()
    assert "moved" in tree.lost
    assert not tree.is_same_place()
    tree.close()


def test_watches_that_a_child_set_up(root: Path) -> None:
    """The queue is shared; events from before the table came are read after it."""
    tree = TreeWatch(root, Exclusions.load(root))
    helper = TreeWatch(root, Exclusions.load(root))
    helper._inotify.close()
    helper._inotify = tree._inotify  # as after a fork
    helper.set_up()
    (root / "src/a").write_bytes(b"early")
    (root / "later").mkdir()
    tree.take_over(helper.table())
    (root / "later/f").write_bytes(b"x")
    assert suspects(tree) == {b"src/a": True, b"later": True}
    tree.close()


@pytest.mark.needs("symlinks")
def test_links_lead_nowhere(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    os.symlink(outside, root / "link")
    tree = TreeWatch(root, Exclusions.load(root))
    tree.set_up()
    (outside / "f").write_bytes(b"x")
    assert suspects(tree) == {}
    tree.close()


def test_directories_that_changed_places_are_both_watched(root: Path, tree: TreeWatch) -> None:
    assert renames.exchange(bytes(root / "src"), bytes(root / "empty"))
    suspects(tree)
    (root / "src/new").touch()
    (root / "empty/deep/er/new").touch()
    assert suspects(tree) == {b"src/new": True, b"empty/deep/er/new": True}


def test_no_link_leads_to_a_watch_under_another_name(root: Path, tree: TreeWatch) -> None:
    """When an event is read late, its path may be a symbolic link by then."""
    (root / "empty/deep").mkdir()
    (root / "empty").rename(root / "gone")
    (root / "empty").symlink_to("src")
    suspects(tree)
    (root / "src/deep/new").touch()
    (root / "gone/deep/new").touch()
    assert suspects(tree) == {b"src/deep/new": True, b"gone/deep/new": True}


def test_a_tree_whose_names_fold_is_not_watched(root: Path) -> None:
    """An event names what was moved; on such a tree a lookup by that name finds the new file."""
    store = root / ".substrate-git"
    for name in ("index", "INDEX"):  # what a lookup by another case finds there
        (store / name).mkdir(parents=True)
    made = TreeWatch(root, Exclusions.load(root))
    with pytest.raises(MissingDependencyError, match="names fold here"):
        made.set_up()
    made.close()
    (store / "INDEX").rmdir()
    made = TreeWatch(root, Exclusions.load(root))
    made.set_up()
    made.close()
