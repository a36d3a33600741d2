"""Remove a directory with all of its contents: by one rename, and never with a user's work."""

from __future__ import annotations

import os
import time

import pytest

from substrate.model.nodes import ABSENT
from substrate.workspace.apply.apply import Staged
from substrate.workspace.apply.plan import Plan
from tests.unit.workspace.applying import Ground, Leaving, as_nobody
from tests.unit.workspace.applying import any_ground as ground

__all__ = ["ground"]

pytestmark = pytest.mark.needs("fork")

_FILES = tuple(b"d/%d" % number for number in range(6)) + tuple(b"d/e/%d" % n for n in range(6))


def _made(ground: Ground, *, old: bool = False) -> Plan:
    for directory in (b"d", b"d/e"):
        ground.put(directory, ground.directory())
    for name in _FILES[:-1]:
        ground.put(name, ground.file(b"content of " + name))
    ground.put(_FILES[-1], ground.link(b"nowhere"))
    if old:
        time.sleep(0.15)  # so that the stat alone tells that nothing was changed since
    return Plan.of(ground.op(name, ABSENT) for name in (b"d", b"d/e", *_FILES))


def _staged(ground: Ground, *, old: bool = False) -> Staged:
    return ground.applier().stage(_made(ground, old=old))


@pytest.mark.parametrize("old", [True, False])
def test_it_goes_and_nothing_is_left(ground: Ground, old: bool) -> None:
    report = ground.applier().carry_out(_staged(ground, old=old))
    assert report.complete and set(report.done) == {b"d", b"d/e", *_FILES}
    assert ground.listing() == {} and report.trash_entries == ()
    ground.assert_swept()


def _stopped_before_the_end(ground: Ground, plan: Plan) -> None:
    """Ends when all is done but for letting go of what was displaced."""
    from substrate.workspace.apply.apply_context import Site

    pid = os.fork()
    if pid == 0:
        Site.sync = lambda self: os._exit(0)  # type: ignore[method-assign]
        try:
            applier = ground.applier()
            applier.carry_out(applier.stage(plan))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_it_is_one_rename(ground: Ground) -> None:
    plan = _made(ground)
    _stopped_before_the_end(ground, plan)
    (moved,) = ground.scratch.iterdir()
    assert sorted(os.listdir(moved)) == ["0", "1", "2", "3", "4", "5", "e"]
    assert ground.listing() == {}
    assert ground.applier().resume(plan).complete
    assert ground.listing() == {} and ground.trash.list() == ()
    ground.assert_swept()


@pytest.mark.parametrize("old", [True, False])
def test_an_edit_after_the_look_stays(ground: Ground, old: bool) -> None:
    staged = _staged(ground, old=old)
    ground.where(b"d/e/3").write_bytes(b"somebody's words")
    report = ground.applier().carry_out(staged)
    assert [c.path for c in report.conflicts] == [b"d/e/3"]
    assert [one.path for one in report.kept_directories] == [b"d/e", b"d"]
    assert {p for p, (kind, _, _) in ground.listing().items() if kind != "d"} == {b"d/e/3"}
    assert ground.where(b"d/e/3").read_bytes() == b"somebody's words"
    ground.assert_swept()


def test_a_new_file_after_the_look_stays(ground: Ground) -> None:
    staged = _staged(ground)
    ground.where(b"d/mine").write_bytes(b"mine")
    report = ground.applier().carry_out(staged)
    assert report.conflicts == () and [one.path for one in report.kept_directories] == [b"d"]
    assert set(ground.listing()) == {b"d", b"d/mine"}
    ground.assert_swept()


def test_excluded_things_in_it_go_to_the_trash(ground: Ground) -> None:
    ground.exclusions = Leaving(b"bulk")
    plan = _made(ground)
    ground.put(b"d/e/bulk", ground.directory())
    ground.put(b"d/e/bulk/in", ground.file(b"kept"))
    report = ground.apply(*plan.ops, ground.op(b"d/e/bulk", ABSENT))
    assert report.complete and report.trashed == (b"d/e/bulk",)
    assert (ground.trash.list()[0].location / "in").read_bytes() == b"kept"
    assert ground.listing() == {}


@pytest.mark.needs("linux")
@pytest.mark.parametrize("old", [True, False])
def test_a_file_that_is_open_for_writing_is_kept(ground: Ground, old: bool) -> None:
    staged = _staged(ground, old=old)
    with ground.where(b"d/e/2").open("ab") as held:
        report = ground.applier().carry_out(staged)
        held.write(b", and more")
    assert report.complete and report.trashed == (b"d/e/2",)
    assert ground.trash.list()[0].location.read_bytes() == b"content of d/e/2, and more"


def test_a_process_inside_it_loses_nothing(ground: Ground) -> None:
    """A process with this working directory writes there after it was moved."""
    plan = _made(ground)
    _stopped_before_the_end(ground, plan)
    (moved,) = ground.scratch.iterdir()
    (moved / "e" / "new").write_bytes(b"new")
    (moved / "3").write_bytes(b"changed")
    report = ground.applier().resume(plan)
    assert [c.path for c in report.conflicts] == [b"d/3"]
    assert ground.where(b"d/e/new").read_bytes() == b"new"
    assert ground.where(b"d/3").read_bytes() == b"changed"
    assert set(ground.listing()) == {b"d", b"d/e", b"d/e/new", b"d/3"}
    ground.assert_swept()


def test_a_user_that_makes_it_again_has_the_old_one_in_the_trash(ground: Ground) -> None:
    plan = _made(ground)
    _stopped_before_the_end(ground, plan)
    (moved,) = ground.scratch.iterdir()
    (moved / "3").write_bytes(b"changed")
    ground.put(b"d", ground.directory())
    ground.put(b"d/3", ground.file(b"another"))
    report = ground.applier().resume(plan)
    assert ground.where(b"d/3").read_bytes() == b"another"
    assert report.trashed == (b"d",)
    assert (ground.trash.list()[0].location / "3").read_bytes() == b"changed"
    ground.assert_swept()


def test_an_error_later_on_brings_it_back(ground: Ground) -> None:
    plan = _made(ground)
    ground.put(b"last", ground.file(b"old"))
    become = ground.file(b"never stored")
    staged = ground.applier().stage(Plan.of([*plan.ops, ground.op(b"last", become)]))
    before = ground.listing()
    for path in ground.scratch.iterdir():
        path.unlink()  # what was to come is gone: the exchange fails
    report = ground.applier().carry_out(staged)
    assert [c.path for c in report.conflicts] == [b"last"]
    assert set(before) - set(ground.listing()) == {b"d", b"d/e", *_FILES}


@pytest.mark.needs("root")
def test_a_shut_directory_in_it_goes_path_by_path(ground: Ground) -> None:
    def work() -> None:
        plan = _made(ground)
        for name in (b"d/e", b"d"):
            ground.where(name).chmod(0o555)
        plan = Plan.of(ground.op(op.path, ABSENT) for op in plan.ops)
        assert ground.apply(*plan.ops).complete
        assert ground.listing() == {}

    os.chown(ground.root, 65534, 65534)
    os.chown(ground.store, 65534, 65534)
    as_nobody(ground.root, work)
