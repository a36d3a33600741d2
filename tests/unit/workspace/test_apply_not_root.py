"""As an ordinary user modes are in the way: shut directories, read-only files, other owners."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from substrate.errors import WorkspaceError
from substrate.model.nodes import ABSENT
from substrate.model.paths import rel_path
from substrate.system.files import renames
from substrate.workspace.apply import apply_context as site_module
from substrate.workspace.apply.plan import How, Plan
from substrate.workspace.apply.trash_reasons import Kept, TrashReason
from tests.unit.workspace.applying import Ground, Leaving, as_nobody

pytestmark = pytest.mark.needs("linux", "fork")

InChild = Callable[[Callable[[Ground], None]], None]


@pytest.fixture(params=["native", "no-exchange"])
def not_root(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> InChild:
    """Runs a test's body in a child process that is not root, on a ground of its own."""
    if request.param == "no-exchange":
        monkeypatch.setattr(renames, "_system_call", lambda: None)
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o777)

    def run(body: Callable[[Ground], None]) -> None:
        as_nobody(place, lambda: body(Ground(place)))

    return run


def test_a_read_only_file_is_replaced_and_removed(not_root: InChild) -> None:
    def body(ground: Ground) -> None:
        ground.put(b"a", ground.file(b"old", 0o444))
        ground.put(b"b", ground.file(b"old", 0o400))
        ground.put(b"c", ground.file(b"old", 0o444))
        report = ground.apply(
            ground.op(b"a", ground.file(b"new", 0o444)),
            ground.op(b"b", ABSENT),
            ground.op(b"c", ground.file(b"new", 0o444), How.IN_PLACE),
        )
        assert report.complete and len(report.done) == 3
        assert ground.at(b"a") == ground.at(b"c") == ground.file(b"new", 0o444)

    not_root(body)


@pytest.mark.parametrize("mode", [0o555, 0o311, 0o000])
def test_a_shut_directory_is_opened_for_the_moment(not_root: InChild, mode: int) -> None:
    def body(ground: Ground) -> None:
        ground.put(b"d", ground.directory())
        ground.put(b"d/sub", ground.directory())
        ground.put(b"d/sub/x", ground.file(b"old"))
        ground.put(b"d/sub/gone", ground.file(b"gone"))
        ops = [
            ground.op(b"d/sub/x", ground.file(b"new")),
            ground.op(b"d/sub/gone", ABSENT),
            ground.op(b"d/sub/new", ground.file(b"fresh")),
            # Its own operation makes phase one wait where it cannot look.
            ground.op(b"d/sub", ground.directory(mode)),
            ground.op(b"d", ground.directory(mode)),
        ]
        ground.where(b"d/sub").chmod(mode)
        ground.where(b"d").chmod(mode)
        ops = [
            op._replace(expect=ground.directory(mode), become=ground.directory(mode ^ 0o004))
            if op.path in (b"d", b"d/sub")
            else op
            for op in ops
        ]
        report = ground.apply(*ops)
        assert report.complete, report
        assert stat.S_IMODE(ground.where(b"d").stat().st_mode) == mode ^ 0o004
        ground.where(b"d").chmod(0o700)
        assert stat.S_IMODE(ground.where(b"d/sub").stat().st_mode) == mode ^ 0o004
        ground.where(b"d/sub").chmod(0o700)
        assert ground.at(b"d/sub/x") == ground.file(b"new")
        assert ground.at(b"d/sub/new") == ground.file(b"fresh")
        assert ground.at(b"d/sub/gone") == ABSENT

    not_root(body)


def test_a_read_only_directory_that_is_in_no_operation_gets_its_mode_back(
    not_root: InChild,
) -> None:
    def body(ground: Ground) -> None:
        ground.put(b"d", ground.directory())
        ground.put(b"d/x", ground.file(b"old"))
        ground.where(b"d").chmod(0o555)
        report = ground.apply(
            ground.op(b"d/x", ground.file(b"new")), ground.op(b"d/y", ground.file(b"new"))
        )
        assert report.complete
        assert ground.at(b"d") == ground.directory(0o555)
        assert ground.at(b"d/x") == ground.at(b"d/y") == ground.file(b"new")

    not_root(body)


def test_its_mode_comes_back_after_a_failure_too(not_root: InChild) -> None:
    def body(ground: Ground) -> None:
        ground.put(b"d", ground.directory())
        ground.put(b"d/x", ground.file(b"old"))
        ground.put(b"d/z", ground.file(b"old"))
        ground.where(b"d").chmod(0o555)
        before = ground.listing()
        ops = [ground.op(b"d/x", ground.file(b"new")), ground.op(b"d/z", ABSENT)]
        applier = ground.applier()
        staged = applier.stage(Plan.of(ops))
        real = site_module.Site.recheck

        def recheck(self: site_module.Site, item: site_module.Item, *rest: object) -> None:
            if item.path == b"d/x":
                raise OSError(5, "I/O error")
            real(self, item, *rest)  # type: ignore[arg-type]

        site_module.Site.recheck = recheck  # type: ignore[method-assign,assignment]
        with pytest.raises(WorkspaceError):
            applier.carry_out(staged)
        assert ground.listing() == before
        ground.assert_swept()

    not_root(body)


def test_a_crash_leaves_a_note_and_resume_puts_the_mode_back(not_root: InChild) -> None:
    def body(ground: Ground) -> None:
        ground.put(b"d", ground.directory())
        ground.put(b"d/x", ground.file(b"old"))
        ground.where(b"d").chmod(0o555)
        plan = Plan.of([ground.op(b"d/x", ground.file(b"new"))])
        pid = os.fork()
        if pid == 0:
            site_module.Site.shut = lambda self: os._exit(9)  # type: ignore[method-assign]
            applier = ground.applier()
            applier.carry_out(applier.stage(plan))
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
        assert stat.S_IMODE(ground.where(b"d").stat().st_mode) == 0o755
        report = ground.applier().resume(plan)
        assert report.already == (b"d/x",) and report.conflicts == ()
        assert ground.at(b"d") == ground.directory(0o555)
        assert ground.at(b"d/x") == ground.file(b"new")
        ground.assert_swept()

    not_root(body)


def test_new_read_only_directories_get_their_content_first(not_root: InChild) -> None:
    def body(ground: Ground) -> None:
        new = {
            b"ro": ground.directory(0o555),
            b"ro/deep": ground.directory(0o500),
            b"ro/deep/x": ground.file(b"1", 0o444),
        }
        report = ground.apply(*[ground.op(path, node) for path, node in new.items()])
        assert report.complete
        assert {path: ground.at(path) for path in new} == new
        back = ground.apply(*[ground.op(path, ABSENT) for path in new])
        assert back.complete and ground.listing() == {}

    not_root(body)


def test_a_directory_becomes_read_only_while_its_content_changes(not_root: InChild) -> None:
    def body(ground: Ground) -> None:
        ground.put(b"d", ground.directory(0o755))
        ground.put(b"d/x", ground.file(b"old"))
        report = ground.apply(
            ground.op(b"d", ground.directory(0o555)), ground.op(b"d/x", ground.file(b"new"))
        )
        assert report.complete
        assert ground.at(b"d") == ground.directory(0o555)
        assert ground.at(b"d/x") == ground.file(b"new")

    not_root(body)


def test_a_read_only_directory_is_replaced_by_a_file(not_root: InChild) -> None:
    def body(ground: Ground) -> None:
        ground.exclusions = Leaving(b"bulk")
        ground.put(b"d", ground.directory())
        ground.put(b"d/bulk", ground.file(b"excluded"))
        ground.where(b"d").chmod(0o555)
        ground.put(b"empty", ground.directory(0o555))
        report = ground.apply(
            ground.op(b"d", ground.file(b"new")), ground.op(b"empty", ground.link(b"new"))
        )
        assert report.complete and report.trashed == (b"d",)
        (entry,) = ground.trash.list()
        # Its owner can remove it with the project; it comes back as it was.
        assert stat.S_IMODE(entry.location.stat().st_mode) == 0o755
        ground.where(b"d").unlink()
        ground.trash.restore(entry, ground.root)
        assert stat.S_IMODE(ground.where(b"d").stat().st_mode) == 0o555
        assert ground.where(b"d/bulk").read_bytes() == b"excluded"

    not_root(body)


def test_a_read_only_directory_that_an_earlier_version_kept_is_opened(not_root: InChild) -> None:
    def body(ground: Ground) -> None:
        ground.put(b"d", ground.directory())
        ground.put(b"d/f", ground.file(b"1"))
        entry = ground.trash.keep(ground.root, rel_path(b"d"), "op-1", Kept(TrashReason.CHANGED))
        entry.location.chmod(0o555)
        assert ground.trash.expire(10**9, 1 << 40, lambda when: 0) == ()
        assert stat.S_IMODE(entry.location.stat().st_mode) == 0o755
        ground.trash.restore(entry, ground.root)
        assert stat.S_IMODE(ground.where(b"d").stat().st_mode) == 0o555

    not_root(body)


def test_a_file_that_is_unreadable_gets_its_mode_back(not_root: InChild) -> None:
    """After ``chmod 000 x``: the owner may still look, for the moment."""

    def body(ground: Ground) -> None:
        old = ground.put(b"x", ground.file(b"secret", 0o000))
        new = ground.file(b"secret", 0o644)
        report = ground.apply(ground.op(b"y", ABSENT), ground.op(b"x", new)._replace(expect=old))
        assert report.done == (b"x",)
        assert ground.at(b"x") == new

    not_root(body)


def test_a_file_that_is_unreadable_keeps_its_mode_when_it_is_looked_at(not_root: InChild) -> None:
    def body(ground: Ground) -> None:
        ground.put(b"x", ground.file(b"secret", 0o000))
        op = ground.op(b"x", ABSENT)._replace(expect=ground.file(b"other", 0o000))
        assert ground.applier().stage(Plan.of([op])).conflicts
        assert stat.S_IMODE(ground.where(b"x").stat().st_mode) == 0

    not_root(body)


@pytest.mark.needs("other-user")
def test_a_directory_of_another_user_is_a_clear_error(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o777)
    (place / "theirs").mkdir()
    (place / "theirs" / "x").write_bytes(b"old")

    def body() -> None:
        ground = Ground(place)
        (place / "tree" / "mine").write_bytes(b"1")
        ground.root = place
        before = {p: p.read_bytes() for p in place.rglob("x")}
        ops = [ground.op(b"tree/mine", ground.file(b"2")), ground.op(b"theirs/x", ABSENT)]
        applier = ground.applier()
        staged = applier.stage(Plan.of(ops))
        with pytest.raises(WorkspaceError) as caught:
            applier.carry_out(staged)
        assert "theirs/x" in caught.value.message and caught.value.hint
        assert {p: p.read_bytes() for p in place.rglob("x")} == before
        assert (place / "tree" / "mine").read_bytes() == b"1"

    as_nobody(place, body)


@pytest.mark.needs("root")
@pytest.mark.parametrize("before", ["nothing", "a directory"])
@pytest.mark.parametrize(("others_write", "mode"), [(0o020, 0o755), (0o002, 0o755), (0, 0o6755)])
def test_as_root_no_file_gets_rights_of_an_owner_it_may_not_have_had(
    tmp_path: Path, before: str, others_write: int, mode: int
) -> None:
    ground = Ground(tmp_path)
    ground.put(b"d", ground.directory(0o755 | others_write))
    if before == "a directory":
        ground.put(b"d/x", ground.directory())
    report = ground.apply(ground.op(b"d/x", ground.file(b"new", 0o6755)))
    assert ground.at(b"d/x") == ground.file(b"new", mode)
    assert [noted.path for noted in report.cannot_restore] == ([b"d/x"] if others_write else [])


@pytest.mark.needs("root")
def test_as_root_new_things_belong_to_the_right_user(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.put(b"theirs", ground.directory())
    ground.put(b"theirs/x", ground.file(b"old"))
    os.chown(ground.where(b"theirs"), 1001, 1002)
    os.chown(ground.where(b"theirs/x"), 1003, 1004)
    ground.apply(
        ground.op(b"theirs/x", ground.file(b"new", 0o4755)),
        ground.op(b"theirs/y", ground.file(b"new")),
        ground.op(b"theirs/sub", ground.directory()),
        ground.op(b"theirs/sub/link", ground.link(b"x")),
        ground.op(b"theirs/sub/fifo", ground.fifo()),
    )

    def owner(path: bytes) -> tuple[int, int]:
        at = ground.where(path).lstat()
        return at.st_uid, at.st_gid

    assert owner(b"theirs/x") == (1003, 1004)
    assert ground.at(b"theirs/x").mode == 0o4755
    for path in (b"theirs/y", b"theirs/sub", b"theirs/sub/link", b"theirs/sub/fifo"):
        assert owner(path) == (1001, 1002)
