"""Many files looked at by two processes: each as by one, whatever befalls the other."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

import pytest

from substrate.model.nodes import Kind
from substrate.model.paths import RelPath
from substrate.workspace import look_ahead
from substrate.workspace.dirwalk import Directory
from substrate.workspace.look_ahead import LookAhead, looking
from substrate.workspace.probe import Seen, look

pytestmark = pytest.mark.needs("linux")


@pytest.fixture
def tree(tmp_path: Path) -> tuple[Path, list[RelPath]]:
    """Plain files in several directories, and some that are not."""
    for where in range(6):
        (tmp_path / f"d{where}" / "deep").mkdir(parents=True)
        for number in range(100):
            file = tmp_path / f"d{where}" / "deep" / f"{number:03}"
            file.write_bytes(b"%d %d\n" % (where, number) * number)
            if number % 7 == 0:
                file.chmod(0o600)
            if number % 9 == 0:
                os.utime(file, ns=(1_700_000_000_123_456_789, 1_600_000_000_000_000_001))
    os.setxattr(tmp_path / "d1/deep/004", "user.note", b"\0\xff")
    (tmp_path / "d2/deep/005").unlink()
    (tmp_path / "d2/deep/006").unlink()
    (tmp_path / "d2/deep/006").symlink_to("007")
    (tmp_path / "d2/deep/008").unlink()
    os.mkfifo(tmp_path / "d2/deep/008")
    (tmp_path / "d3/deep/009").unlink()
    (tmp_path / "d3/deep/009").mkdir()
    paths = [f"d{w}/deep/{n:03}".encode() for w in range(6) for n in range(100)]
    return tmp_path, [RelPath(path) for path in [*paths, b"gone/with/its/directory"]]


def _by_one(root: Path, paths: list[RelPath]) -> dict[RelPath, Seen]:
    found = {}
    for path in paths:
        file = root / os.fsdecode(path)
        if not file.parent.is_dir():
            continue
        with Directory.open_root(file.parent) as directory:
            seen = look(directory, os.fsencode(file.name))
        if seen.node.kind is Kind.FILE:
            found[path] = seen
    return found


def _compare(ours: dict[RelPath, Seen], wanted: dict[RelPath, Seen]) -> None:
    assert ours.keys() == wanted.keys()
    for path, seen in ours.items():
        assert seen.node == wanted[path].node
        at, then = seen.stat, wanted[path].stat
        assert at is not None
        assert then is not None
        for name in ("st_mode", "st_uid", "st_gid", "st_nlink", "st_size", "st_atime_ns"):
            assert getattr(at, name) == getattr(then, name)
        assert seen.same_inode_untouched(then)


def test_two_see_what_one_sees(
    tree: tuple[Path, list[RelPath]], monkeypatch: pytest.MonkeyPatch
) -> None:
    root, paths = tree
    wanted = _by_one(root, paths)
    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(look_ahead, "processors", lambda: 2)
    with looking(root, paths) as ahead:
        assert ahead is not None
        assert ahead._child is not None
        # Until it has answered, so that nothing is left to us.
        assert select.select([ahead._child], [], [], 60)[0]
        found = ahead.result()
    assert len(found) == 596
    _compare(found, wanted)
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("befalls", ["killed", "no fork"])
def test_what_the_child_does_not_say_is_left_to_the_caller(
    tree: tuple[Path, list[RelPath]], befalls: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, paths = tree
    wanted = _by_one(root, paths)
    if befalls == "no fork":
        monkeypatch.setattr(look_ahead, "fork", lambda _: None)
    ahead = LookAhead.begin(root, paths)
    assert ahead is not None
    if ahead._child is not None:
        os.kill(ahead._child._pid, signal.SIGKILL)
    found = ahead.result()
    # What it had taken is missing, and what it had not is there.
    _compare(found, {path: wanted[path] for path in found})
    assert befalls == "killed" or found.keys() == wanted.keys()


def test_few_files_and_an_end_before_the_answer(tree: tuple[Path, list[RelPath]]) -> None:
    root, paths = tree
    with looking(root, paths[: look_ahead.WORTH_A_FORK - 1]) as ahead:
        assert ahead is None
    before = os.listdir("/proc/self/fd")
    with pytest.raises(KeyError), looking(root, paths):
        raise KeyError
    assert os.listdir("/proc/self/fd") == before
