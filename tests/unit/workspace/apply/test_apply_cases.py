"""Every (old kind, new kind) pair of apply, by its label; and that no label lacks a test."""

from __future__ import annotations

import ast
import os
import socket
import stat
from collections.abc import Iterable
from pathlib import Path

import pytest

from substrate.model.nodes import ABSENT, Kind, Node
from substrate.workspace.apply.apply_cases import LABELS
from substrate.workspace.apply.plan import How
from tests.unit.workspace.applying import Ground
from tests.unit.workspace.applying import any_ground as ground

__all__ = ["ground"]

pytestmark = pytest.mark.needs("posix")


def change(ground: Ground, old: Node, new: Node, how: How = How.REPLACE) -> None:
    """Put `old` at x, apply x: old -> new, and find exactly `new`, nothing more."""
    ground.put(b"x", old)
    before = set(ground.listing()) | {b"x"}
    report = ground.apply(ground.op(b"x", new, how))
    assert ground.at(b"x") == new
    assert report.conflicts == () and report.kept_directories == () and report.trashed == ()
    assert report.done == ((b"x",) if old != new else ())
    assert report.already == ((b"x",) if old == new else ())
    assert set(ground.listing()) | {b"x"} == before


@pytest.mark.case("absent->absent")
def test_nothing_stays_nothing(ground: Ground) -> None:
    change(ground, ABSENT, ABSENT)


@pytest.mark.case("absent->file")
def test_a_file_appears(ground: Ground) -> None:
    change(ground, ABSENT, ground.file(b"new", 0o640))


@pytest.mark.case("absent->symlink")
def test_a_link_appears(ground: Ground) -> None:
    change(ground, ABSENT, ground.link(b"nowhere/\xff"))


@pytest.mark.case("absent->directory")
def test_a_directory_appears(ground: Ground) -> None:
    change(ground, ABSENT, ground.directory(0o2750))


@pytest.mark.case("absent->special")
def test_a_fifo_appears(ground: Ground) -> None:
    change(ground, ABSENT, ground.fifo(0o622))


@pytest.mark.case("file->absent")
def test_a_file_goes(ground: Ground) -> None:
    change(ground, ground.file(b"old"), ABSENT)


@pytest.mark.case("file->file")
@pytest.mark.case("file->file content")
def test_a_file_gets_other_content(ground: Ground) -> None:
    change(ground, ground.file(b"old"), ground.file(b"new, and longer"))


@pytest.mark.case("file->file mode")
@pytest.mark.parametrize("mode", [0o000, 0o444, 0o4755, 0o1777])
def test_a_file_gets_another_mode_and_stays_the_same_inode(ground: Ground, mode: int) -> None:
    old = ground.file(b"same", 0o640)
    ground.put(b"x", old)
    inode = ground.where(b"x").stat().st_ino
    report = ground.apply(ground.op(b"x", old._replace(mode=mode)))
    assert report.done == (b"x",)
    assert ground.at(b"x") == old._replace(mode=mode)
    assert ground.where(b"x").stat().st_ino == inode


@pytest.mark.needs("user-xattrs")
@pytest.mark.case("file->file xattrs")
def test_a_file_gets_other_attributes(ground: Ground) -> None:
    change(
        ground,
        ground.file(b"same", 0o444, a=b"1", b=b"2"),
        ground.file(b"same", 0o444, b=b"3", c=b"\0"),
    )


@pytest.mark.needs("user-xattrs")
@pytest.mark.case("file->file all")
def test_a_file_changes_in_every_way_at_once(ground: Ground) -> None:
    change(ground, ground.file(b"old", 0o600, a=b"1"), ground.file(b"new", 0o2755, b=b"2"))


@pytest.mark.case("file->file in place")
@pytest.mark.parametrize(("old", "new"), [(b"short", b"longer" * 5000), (b"long" * 9000, b"")])
def test_a_file_is_rewritten_in_place(ground: Ground, old: bytes, new: bytes) -> None:
    ground.put(b"x", ground.file(old, 0o644))
    os.link(ground.where(b"x"), ground.where(b"other"))
    report = ground.apply(ground.op(b"x", ground.file(new, 0o600), How.IN_PLACE))
    assert report.done == (b"x",) and report.broken_links == ()
    assert ground.at(b"x") == ground.at(b"other") == ground.file(new, 0o600)


@pytest.mark.case("file->symlink")
def test_a_file_becomes_a_link(ground: Ground) -> None:
    change(ground, ground.file(b"old"), ground.link(b"elsewhere"))


@pytest.mark.case("file->directory")
def test_a_file_becomes_a_directory_with_something_in_it(ground: Ground) -> None:
    ground.put(b"x", ground.file(b"old"))
    below = ground.file(b"inside")
    report = ground.apply(ground.op(b"x", ground.directory(0o555)), *[ground.op(b"x/in", below)])
    assert report.done == (b"x", b"x/in")
    assert ground.at(b"x") == ground.directory(0o555)
    assert ground.at(b"x/in") == below


@pytest.mark.case("file->special")
def test_a_file_becomes_a_fifo(ground: Ground) -> None:
    change(ground, ground.file(b"old"), ground.fifo())


@pytest.mark.case("symlink->absent")
def test_a_link_goes_and_its_target_stays(ground: Ground) -> None:
    ground.put(b"target", ground.file(b"precious"))
    change(ground, ground.link(b"target"), ABSENT)
    assert ground.at(b"target") == ground.file(b"precious")


@pytest.mark.case("symlink->file")
def test_a_link_becomes_a_file_and_its_target_stays(ground: Ground) -> None:
    ground.put(b"target", ground.file(b"precious"))
    change(ground, ground.link(b"target"), ground.file(b"own"))
    assert ground.at(b"target") == ground.file(b"precious")


@pytest.mark.case("symlink->symlink")
def test_a_link_points_elsewhere(ground: Ground) -> None:
    change(ground, ground.link(b"one"), ground.link(b"two"))


@pytest.mark.case("symlink->directory")
def test_a_link_to_a_directory_becomes_a_directory(ground: Ground) -> None:
    ground.put(b"target", ground.directory())
    ground.put(b"x", ground.link(b"target"))
    new = ground.file(b"mine")
    report = ground.apply(
        ground.op(b"x", ground.directory()),
        ground.op(b"x/in", new)._replace(expect=ABSENT),
    )
    assert report.done == (b"x", b"x/in")
    assert ground.at(b"x/in") == new
    assert list(ground.where(b"target").iterdir()) == []


@pytest.mark.case("symlink->special")
def test_a_link_becomes_a_fifo(ground: Ground) -> None:
    change(ground, ground.link(b"target"), ground.fifo())


@pytest.mark.case("directory->absent")
def test_a_directory_goes_with_what_was_recorded_in_it(ground: Ground) -> None:
    ground.put(b"x", ground.directory())
    ground.put(b"x/sub", ground.directory(0o700))
    ground.put(b"x/sub/file", ground.file(b"1"))
    report = ground.apply(*[ground.op(p, ABSENT) for p in (b"x", b"x/sub", b"x/sub/file")])
    assert report.done == (b"x/sub/file", b"x/sub", b"x")
    assert ground.listing() == {}


@pytest.mark.case("directory->file")
def test_a_directory_becomes_a_file(ground: Ground) -> None:
    ground.put(b"x", ground.directory())
    ground.put(b"x/in", ground.file(b"1"))
    new = ground.file(b"now a file")
    report = ground.apply(ground.op(b"x", new), ground.op(b"x/in", ABSENT))
    assert report.done == (b"x/in", b"x")
    assert ground.at(b"x") == new


@pytest.mark.case("directory->symlink")
def test_a_directory_becomes_a_link(ground: Ground) -> None:
    change(ground, ground.directory(), ground.link(b"elsewhere"))


@pytest.mark.case("directory->directory")
@pytest.mark.case("directory->directory mode")
@pytest.mark.parametrize("mode", [0o000, 0o555, 0o1777])
def test_a_directory_gets_another_mode(ground: Ground, mode: int) -> None:
    change(ground, ground.directory(0o755), ground.directory(mode))


@pytest.mark.needs("user-xattrs")
@pytest.mark.case("directory->directory xattrs")
def test_a_directory_gets_other_attributes(ground: Ground) -> None:
    change(ground, ground.directory(0o755, a=b"1"), ground.directory(0o755, b=b"2"))


@pytest.mark.case("directory->special")
def test_a_directory_becomes_a_fifo(ground: Ground) -> None:
    change(ground, ground.directory(), ground.fifo())


@pytest.mark.case("special->absent")
def test_a_fifo_goes(ground: Ground) -> None:
    change(ground, ground.fifo(), ABSENT)


@pytest.mark.case("special->file")
def test_a_fifo_becomes_a_file(ground: Ground) -> None:
    change(ground, ground.fifo(), ground.file(b"bytes"))


@pytest.mark.case("special->symlink")
def test_a_fifo_becomes_a_link(ground: Ground) -> None:
    change(ground, ground.fifo(), ground.link(b"elsewhere"))


@pytest.mark.case("special->directory")
def test_a_fifo_becomes_a_directory(ground: Ground) -> None:
    change(ground, ground.fifo(), ground.directory())


@pytest.mark.case("special->special")
def test_a_fifo_gets_another_mode(ground: Ground) -> None:
    change(ground, ground.fifo(0o600), ground.fifo(0o666))


@pytest.mark.case("special->absent")
def test_a_socket_that_goes_is_kept_in_the_trash(ground: Ground) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(ground.root, os.O_RDONLY)
        try:
            server.bind(f"/proc/self/fd/{here}/x" if os.path.isdir("/proc/self/fd") else "x")
        finally:
            os.close(here)
        report = ground.apply(ground.op(b"x", ABSENT))
    assert report.done == report.trashed == (b"x",)
    (entry,) = ground.trash.list()
    assert entry.kind is Kind.SOCKET and stat.S_ISSOCK(entry.location.lstat().st_mode)


@pytest.mark.case("file->special")
@pytest.mark.parametrize("kind", [Kind.SOCKET, Kind.CHAR_DEVICE, Kind.BLOCK_DEVICE])
def test_sockets_and_devices_are_never_made(ground: Ground, kind: Kind) -> None:
    old = ground.put(b"x", ground.file(b"stays"))
    report = ground.apply(ground.op(b"x", Node(kind, 0o600)), ground.op(b"y", Node(kind, 0o600)))
    assert [noted.path for noted in report.cannot_restore] == [b"x", b"y"]
    assert kind.value in report.cannot_restore[0].reason
    assert report.done == () and not report.complete
    assert ground.at(b"x") == old and ground.at(b"y") == ABSENT


@pytest.mark.case("absent->file")
@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077, 0o777])
def test_the_umask_does_not_matter(ground: Ground, umask: int) -> None:
    new = {
        b"file": ground.file(b"1", 0o664),
        b"dir": ground.directory(0o2775),
        b"dir/inner": ground.file(b"2", 0o606),
        b"fifo": ground.fifo(0o662),
    }
    ops = [ground.op(path, node) for path, node in new.items()]
    before = os.umask(umask)
    try:
        ground.apply(*ops)
    finally:
        os.umask(before)
    assert {path: ground.at(path) for path in new} == new


# ------------------------------------------------------------------------ is each label tested?


def labels_tested(source: str) -> set[str]:
    """The arguments of every ``@pytest.mark.case`` on a test function in `source`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            for call in node.decorator_list:
                if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.case":
                    found |= {str(a.value) for a in call.args if isinstance(a, ast.Constant)}
    return found


def untested(labels: Iterable[str], source: str) -> set[str]:
    return set(labels) - labels_tested(source)


def test_every_case_has_a_test() -> None:
    source = Path(__file__).read_text()
    assert untested(LABELS, source) == set()
    assert labels_tested(source) <= set(LABELS), "a test names a case that does not exist"
    assert len(LABELS) == len(set(LABELS)) == 25 + 7


def test_a_case_without_a_test_is_noticed() -> None:
    source = (
        '@pytest.mark.case("a->b")\ndef test_x(): ...\n@pytest.mark.case("c->d")\ndef no(): ...'
    )
    assert untested(["a->b", "c->d", "e->f"], source) == {"c->d", "e->f"}
