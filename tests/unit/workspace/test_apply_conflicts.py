"""A path that is not as expected is left alone, at every moment it may turn out so."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from substrate.model.nodes import ABSENT, Kind, Node
from substrate.workspace.apply.plan import How, Op, Plan
from tests.unit.workspace.applying import Ground
from tests.unit.workspace.applying import any_ground as ground

__all__ = ["ground"]

pytestmark = pytest.mark.needs("posix")


def _expecting(ground: Ground, path: bytes, expect: Node, become: Node) -> Op:
    return ground.op(path, become)._replace(expect=expect)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (lambda g: ABSENT, "nothing is there"),
        (lambda g: g.file(b"user's"), "content"),
        (lambda g: g.file(b"old", 0o600), "0600"),
        (lambda g: g.link(b"old"), "symlink"),
        (lambda g: g.directory(), "directory"),
        (lambda g: g.fifo(), "fifo"),
    ],
)
def test_staging_finds_what_is_not_as_expected(
    ground: Ground, found: Callable[[Ground], Node], says: str
) -> None:
    node = ground.put(b"x", found(ground))
    fine = ground.file(b"fine")
    plan = Plan.of(
        [
            _expecting(ground, b"x", ground.file(b"old"), ground.file(b"new")),
            ground.op(b"y", fine),
        ]
    )
    applier = ground.applier()
    staged = applier.stage(plan)
    (conflict,) = staged.conflicts
    assert (conflict.path, conflict.expected, conflict.found) == (b"x", ground.file(b"old"), node)
    assert says in conflict.reason
    report = applier.carry_out(staged)
    assert report.conflicts == staged.conflicts
    assert report.done == (b"y",)
    assert ground.at(b"x") == node and ground.at(b"y") == fine
    ground.assert_swept()


@pytest.mark.needs("user-xattrs")
def test_attributes_count(ground: Ground) -> None:
    ground.put(b"x", ground.file(b"old", a=b"mine"))
    report = ground.apply(_expecting(ground, b"x", ground.file(b"old"), ABSENT))
    assert "attributes" in report.conflicts[0].reason
    assert ground.at(b"x") == ground.file(b"old", a=b"mine")


def test_the_time_of_a_file_does_not_count(ground: Ground) -> None:
    ground.put(b"x", ground.file(b"old"))
    op = ground.op(b"x", ground.file(b"new"))
    os.utime(ground.where(b"x"), (1, 1))
    assert ground.apply(op).done == (b"x",)


def test_something_where_nothing_was_expected(ground: Ground) -> None:
    mine = ground.put(b"x", ground.file(b"mine"))
    report = ground.apply(_expecting(ground, b"x", ABSENT, ground.file(b"theirs")))
    assert report.conflicts[0].found == mine and ground.at(b"x") == mine


def test_what_is_already_so_is_no_conflict_and_no_work(ground: Ground) -> None:
    ground.put(b"x", ground.file(b"new"))
    inode = ground.where(b"x").stat().st_ino
    report = ground.apply(
        _expecting(ground, b"x", ground.file(b"old"), ground.file(b"new")),
        _expecting(ground, b"gone", ground.directory(), ABSENT),
        _expecting(ground, b"gone/below", ground.file(b"old"), ABSENT),
    )
    assert set(report.already) == {b"x", b"gone", b"gone/below"} and report.complete
    assert ground.where(b"x").stat().st_ino == inode


def test_discard_leaves_no_trace(ground: Ground) -> None:
    ground.put(b"x", ground.file(b"old"))
    before = ground.listing()
    applier = ground.applier()
    ops = [ground.op(b"x", ground.file(b"new")), ground.op(b"d", ground.directory())]
    staged = applier.stage(Plan.of(ops))
    assert ground.scratch.exists()
    applier.discard(staged)
    ground.assert_swept()
    assert ground.listing() == before


def _save_by_rename(ground: Ground, data: bytes) -> None:
    ground.where(b"x.tmp").write_bytes(data)
    ground.where(b"x.tmp").rename(ground.where(b"x"))


def _turn_into(ground: Ground, node: Node) -> None:
    ground.where(b"x").unlink()
    ground.put(b"x", node)


def _sneaky_edit(ground: Ground) -> None:
    at = ground.where(b"x").stat()
    ground.where(b"x").write_bytes(b"OLD")
    os.utime(ground.where(b"x"), ns=(at.st_atime_ns, at.st_mtime_ns))


CHANGES: dict[str, Callable[[Ground], object]] = {
    "edited in place": lambda g: g.where(b"x").write_bytes(b"mine"),
    "saved by rename": lambda g: _save_by_rename(g, b"mine"),
    "same size, same time": _sneaky_edit,
    "deleted": lambda g: g.where(b"x").unlink(),
    "now a link": lambda g: _turn_into(g, g.link(b"t")),
    "now a directory": lambda g: _turn_into(g, g.directory()),
    "another mode": lambda g: g.where(b"x").chmod(0o600),
}


@pytest.mark.parametrize("how", [How.REPLACE, How.IN_PLACE])
@pytest.mark.parametrize("become", ["file", "absent", "symlink", "directory", "mode"])
@pytest.mark.parametrize("change", CHANGES)
def test_changed_between_staging_and_carrying_out(
    ground: Ground, change: str, become: str, how: How
) -> None:
    old = ground.put(b"x", ground.file(b"old"))
    new = {
        "file": ground.file(b"new"),
        "absent": ABSENT,
        "symlink": ground.link(b"new"),
        "directory": ground.directory(),
        "mode": old._replace(mode=0o755),
    }[become]
    applier = ground.applier()
    staged = applier.stage(Plan.of([ground.op(b"x", new, how)]))
    assert staged.conflicts == ()
    CHANGES[change](ground)
    theirs = ground.at(b"x")
    report = applier.carry_out(staged)
    assert ground.at(b"x") == theirs
    (conflict,) = report.conflicts
    assert conflict.path == b"x" and report.done == ()
    ground.assert_swept()


def test_a_file_appears_between_staging_and_carrying_out(ground: Ground) -> None:
    applier = ground.applier()
    staged = applier.stage(Plan.of([ground.op(b"x", ground.file(b"new"))]))
    mine = ground.put(b"x", ground.file(b"mine"))
    report = applier.carry_out(staged)
    assert ground.at(b"x") == mine and report.conflicts[0].found == mine


def test_a_missing_directory_above_is_a_conflict_not_a_new_directory(ground: Ground) -> None:
    report = ground.apply(ground.op(b"no/such/file", ground.file(b"1")))
    assert "missing" in report.conflicts[0].reason
    assert ground.listing() == {}


def test_a_link_above_is_never_followed(ground: Ground) -> None:
    ground.put(b"real", ground.directory())
    ground.put(b"real/x", ground.file(b"old"))
    ground.put(b"way", ground.link(b"real"))
    before = ground.listing()
    report = ground.apply(
        _expecting(ground, b"way/y", ABSENT, ground.file(b"1")),
        _expecting(ground, b"way/x", ground.file(b"old"), ground.file(b"new")),
    )
    assert {c.path for c in report.conflicts} == {b"way/x", b"way/y"}
    assert ground.listing() == before


def test_a_child_of_a_directory_that_could_not_be_made_is_a_conflict_too(ground: Ground) -> None:
    mine = ground.put(b"d", ground.file(b"mine"))
    report = ground.apply(
        _expecting(ground, b"d", ABSENT, ground.directory()),
        _expecting(ground, b"d/in", ABSENT, ground.file(b"1")),
        _expecting(ground, b"d/sub", ABSENT, ground.directory()),
        _expecting(ground, b"d/sub/in", ABSENT, ground.file(b"1")),
    )
    assert {c.path for c in report.conflicts} == {b"d", b"d/in", b"d/sub", b"d/sub/in"}
    assert ground.at(b"d") == mine


def test_a_directory_that_still_holds_something_stays(ground: Ground) -> None:
    ground.put(b"d", ground.directory())
    ground.put(b"d/known", ground.file(b"1"))
    ground.put(b"d/mine", ground.file(b"2"))
    report = ground.apply(ground.op(b"d", ABSENT), ground.op(b"d/known", ABSENT))
    assert report.done == (b"d/known",) and report.conflicts == ()
    (kept,) = report.kept_directories
    assert kept.path == b"d" and "d/mine" in kept.reason
    assert ground.at(b"d/mine") == ground.file(b"2") and ground.at(b"d/known") == ABSENT


@pytest.mark.parametrize("become", ["file", "symlink", "fifo"])
def test_a_directory_that_still_holds_something_is_not_replaced(
    ground: Ground, become: str
) -> None:
    ground.put(b"d", ground.directory())
    ground.put(b"d/mine", ground.file(b"2"))
    new = {"file": ground.file(b"f"), "symlink": ground.link(b"l"), "fifo": ground.fifo()}[become]
    report = ground.apply(ground.op(b"d", new))
    assert "d/mine" in report.conflicts[0].reason
    assert ground.at(b"d/mine") == ground.file(b"2")


def test_a_file_expected_without_content_is_kept_whole(ground: Ground) -> None:
    """History never read it (too large): any content is accepted, and none is dropped."""
    ground.put(b"big", ground.file(b"never recorded"))
    report = ground.apply(_expecting(ground, b"big", Node(Kind.FILE), ground.file(b"small")))
    assert report.done == report.trashed == (b"big",)
    assert ground.trash.list()[0].location.read_bytes() == b"never recorded"


def test_breaking_a_hard_link_is_reported(ground: Ground) -> None:
    ground.put(b"x", ground.file(b"old"))
    os.link(ground.where(b"x"), ground.where(b"other"))
    report = ground.apply(ground.op(b"x", ground.file(b"new")))
    assert report.done == report.broken_links == (b"x",)
    assert ground.at(b"other") == ground.file(b"old")
