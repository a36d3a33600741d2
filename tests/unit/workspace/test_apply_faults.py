"""Full disks, missing objects, immutable files: a clear error, and everything as it was."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from substrate.errors import (
    DamagedStoreError,
    DiskFullError,
    HalfAppliedError,
    SubstrateError,
    WorkspaceError,
)
from substrate.model.nodes import ABSENT
from substrate.workspace.apply import apply_context as site_module
from substrate.workspace.apply import apply_steps
from substrate.workspace.apply.plan import How, Op, Plan
from tests.mounts import mounted, tmpfs_words
from tests.unit.workspace.applying import Ground, Leaving
from tests.unit.workspace.applying import any_ground as ground

__all__ = ["ground"]

pytestmark = pytest.mark.needs("posix")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Ground]:
    """A ground on a file system of one megabyte."""
    place = tmp_path / "small"
    place.mkdir()
    with mounted(place, *tmpfs_words(size="1m")):
        yield Ground(place)


@pytest.mark.needs("root", "linux")
def test_a_full_disk_shows_before_anything_changed(small_disk: Ground) -> None:
    ground = small_disk
    ground.put(b"a", ground.file(b"a" * 1000))
    ground.put(b"gone", ground.file(b"g"))
    before = ground.listing()
    ops = [
        ground.op(b"a", ground.file(b"small")),
        ground.op(b"gone", ABSENT),
        ground.op(b"big", ground.file(b"x" * (2 << 20))),
    ]
    with pytest.raises(DiskFullError) as caught:
        ground.applier().stage(Plan.of(ops))
    assert caught.value.kind == "disk-full" and "nothing was changed" in caught.value.message
    assert caught.value.hint
    assert ground.listing() == before
    ground.assert_swept()


@pytest.mark.needs("root", "linux")
def test_a_disk_that_fills_up_under_a_rewrite_in_place(small_disk: Ground) -> None:
    ground = small_disk
    ground.put(b"first", ground.file(b"1"))
    ground.put(b"grows", ground.file(b"old"))
    before = ground.listing()
    ops = [
        ground.op(b"first", ground.file(b"2")),
        ground.op(b"grows", ground.file(b"n" * (3 << 20)), How.IN_PLACE),
    ]
    applier = ground.applier()
    staged = applier.stage(Plan.of(ops))
    with pytest.raises(DiskFullError):
        applier.carry_out(staged)
    assert ground.listing() == before
    ground.assert_swept()


def test_a_missing_object_shows_before_anything_changed(ground: Ground) -> None:
    ground.put(b"a", ground.file(b"a"))
    before = ground.listing()
    missing = ground.file(b"missing")
    ops = [ground.op(b"a", ABSENT), ground.op(b"b", ground.file(b"b")), ground.op(b"c", missing)]
    del ground.blobs.data[missing.oid]
    with pytest.raises(KeyError):
        ground.applier().stage(Plan.of(ops))
    assert ground.listing() == before
    ground.assert_swept()


def test_a_damaged_object_shows_before_anything_changed(ground: Ground) -> None:
    bad = ground.file(b"good")
    ground.blobs.data[bad.oid] = b"rotten"
    with pytest.raises(DamagedStoreError) as caught:
        ground.applier().stage(Plan.of([ground.op(b"x", bad)]))
    assert bad.oid.hex() in caught.value.message
    assert ground.listing() == {}
    ground.assert_swept()


def _everything(ground: Ground) -> list[Op]:
    """One of each way to change something, and one last that the test makes fail."""
    ground.put(b"content", ground.file(b"1"))
    ground.put(b"mode", ground.file(b"2", 0o600))
    ground.put(b"gone", ground.file(b"3"))
    ground.put(b"inplace", ground.file(b"4" * 5000))
    ground.put(b"link", ground.link(b"one"))
    ground.put(b"dir", ground.directory(0o750))
    ground.put(b"emptied", ground.directory(0o711))
    ground.put(b"emptied/in", ground.file(b"5"))
    ground.put(b"todir", ground.file(b"6"))
    ground.put(b"tofile", ground.directory(0o701))
    ground.put(b"tofile/in", ground.file(b"7"))
    ground.put(b"bulk", ground.directory())
    ground.put(b"bulk/in", ground.file(b"8"))
    ground.put(b"zz-last", ground.file(b"9"))
    return [
        ground.op(b"content", ground.file(b"one", 0o755)),
        ground.op(b"mode", ground.file(b"2", 0o644)),
        ground.op(b"gone", ABSENT),
        ground.op(b"inplace", ground.file(b"four"), How.IN_PLACE),
        ground.op(b"link", ground.link(b"two")),
        ground.op(b"dir", ground.directory(0o755)),
        ground.op(b"emptied", ABSENT),
        ground.op(b"emptied/in", ABSENT),
        ground.op(b"todir", ground.directory()),
        ground.op(b"todir/in", ground.file(b"six")),
        ground.op(b"tofile", ground.file(b"seven")),
        ground.op(b"tofile/in", ABSENT),
        ground.op(b"bulk", ABSENT),
        ground.op(b"new", ground.directory(0o700)),
        ground.op(b"new/fifo", ground.fifo()),
        ground.op(b"zz-last", ground.file(b"nine")),
    ]


def _fail_at(path: bytes, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk gives an error when it comes to `path`."""
    real = site_module.Site.recheck

    def recheck(self: site_module.Site, item: site_module.Item, *rest: object) -> None:
        if item.path == path:
            raise OSError(code, os.strerror(code))
        real(self, item, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(site_module.Site, "recheck", recheck)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EPERM, errno.EROFS])
def test_an_error_in_the_middle_takes_everything_back(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    ground.exclusions = Leaving(b"bulk")
    ops = _everything(ground)
    before = ground.listing()
    applier = ground.applier()
    staged = applier.stage(Plan.of(ops))
    assert staged.items[-1].path == b"todir/in"  # the order of execution: zz-last is before it
    _fail_at(b"zz-last", code, monkeypatch)
    with pytest.raises(WorkspaceError) as caught:
        applier.carry_out(staged)
    assert isinstance(caught.value, DiskFullError) == (code == errno.ENOSPC)
    assert "zz-last" in caught.value.message and caught.value.hint
    assert ground.listing() == before
    assert ground.trash.list() == ()
    ground.assert_swept()


@pytest.mark.parametrize("become", ["replace", "remove"])
def test_what_came_out_cannot_be_read_and_goes_back(
    ground: Ground, monkeypatch: pytest.MonkeyPatch, become: str
) -> None:
    """The disk fails just when the displaced file is verified."""
    ground.put(b"a", ground.file(b"old"))
    before = ground.listing()
    op = ground.op(b"a", ground.file(b"new") if become == "replace" else ABSENT)

    def unreadable(*_: object) -> bool:
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(apply_steps, "_is_as_expected", unreadable)
    applier = ground.applier()
    staged = applier.stage(Plan.of([op]))
    with pytest.raises(WorkspaceError):
        applier.carry_out(staged)
    assert ground.listing() == before and ground.trash.list() == ()
    ground.assert_swept()


def test_a_scratch_directory_that_cannot_be_made_is_a_clear_error(ground: Ground) -> None:
    ground.scratch.parent.write_bytes(b"a file in its way")
    with pytest.raises(WorkspaceError) as caught:
        ground.applier().stage(Plan.of([ground.op(b"x", ground.file(b"1"))]))
    assert caught.value.hint


def test_taking_back_leaves_newer_work_of_others_alone(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = [ground.op(b"a", ground.file(b"ours")), ground.op(b"d", ground.directory())]
    ground.put(b"c", ground.file(b"old"))
    ground.put(b"gone", ground.file(b"was here"))
    ground.put(b"z", ground.file(b"z"))
    ops += [
        ground.op(b"c", ground.file(b"new")),
        ground.op(b"gone", ABSENT),
        ground.op(b"z", ABSENT),
    ]
    real = site_module.Site.sync

    def somebody_works_then_the_disk_fails(self: site_module.Site) -> None:
        monkeypatch.setattr(site_module.Site, "sync", real)
        ground.where(b"a").write_bytes(b"theirs a")
        ground.where(b"c").write_bytes(b"theirs c")
        ground.where(b"d/in").write_bytes(b"theirs d")
        ground.where(b"gone").write_bytes(b"theirs gone")
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(site_module.Site, "sync", somebody_works_then_the_disk_fails)
    applier = ground.applier()
    staged = applier.stage(Plan.of(ops))
    with pytest.raises(WorkspaceError):
        applier.carry_out(staged)
    found = {path: data for path, (_, _, data) in ground.listing().items()}
    assert found == {
        b"a": b"theirs a",
        b"c": b"theirs c",
        b"d": b"",
        b"d/in": b"theirs d",
        b"gone": b"theirs gone",
        b"z": b"z",
    }
    kept = {entry.path: entry.location.read_bytes() for entry in ground.trash.list()}
    assert kept[b"gone"] == b"was here"  # type: ignore[index]


def test_if_even_taking_back_fails_the_error_says_where_the_bytes_are(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    ground.put(b"a", ground.file(b"old a"))
    ground.put(b"b", ground.file(b"old b"))
    ops = [ground.op(b"a", ABSENT), ground.op(b"b", ABSENT)]
    _fail_at(b"b", errno.EIO, monkeypatch)

    def broken(self: apply_steps.TakenOut, site: site_module.Site) -> None:
        raise OSError(errno.EIO, "I/O error")

    monkeypatch.setattr(apply_steps.TakenOut, "undo", broken)
    applier = ground.applier()
    staged = applier.stage(Plan.of(ops))
    with pytest.raises(HalfAppliedError) as caught:
        applier.carry_out(staged)
    assert str(ground.scratch) in caught.value.hint
    assert {p.read_bytes() for p in ground.scratch.iterdir()} == {b"old a"}
    # The disk is well again: the next command finishes it.
    monkeypatch.undo()
    report = ground.applier().resume(Plan.of(ops))
    assert ground.listing() == {} and report.conflicts == ()
    ground.assert_swept()


def test_an_interrupt_takes_everything_back_too(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    ops = _everything(ground)
    ground.exclusions = Leaving(b"bulk")
    before = ground.listing()

    def interrupted(self: site_module.Site) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(site_module.Site, "sync", interrupted)
    applier = ground.applier()
    staged = applier.stage(Plan.of(ops))
    with pytest.raises(KeyboardInterrupt):
        applier.carry_out(staged)
    assert ground.listing() == before
    ground.assert_swept()


def test_everything_goes_through_when_nothing_fails(ground: Ground) -> None:
    ground.exclusions = Leaving(b"bulk")
    ops = _everything(ground)
    report = ground.apply(*ops)
    assert report.complete and len(report.done) == len(ops)
    for op in ops:
        assert ground.at(op.path) == op.become


@pytest.fixture
def immutable() -> Iterator[Callable[[Path], None]]:
    made: list[Path] = []

    def make(path: Path) -> None:
        subprocess.run(["chattr", "+i", str(path)], check=True)
        made.append(path)

    yield make
    for path in made:
        subprocess.run(["chattr", "-i", str(path)], check=True)


@pytest.mark.needs("immutable-files")
@pytest.mark.parametrize("become", ["content", "absent", "mode", "in place", "link"])
def test_an_immutable_file_stops_it_all_with_nothing_half_done(
    ground: Ground, immutable: Callable[[Path], None], become: str
) -> None:
    ground.put(b"a", ground.file(b"a"))
    ground.put(b"x", ground.file(b"x"))
    before = ground.listing()
    how = How.IN_PLACE if become == "in place" else How.REPLACE
    new = {
        "content": ground.file(b"y"),
        "in place": ground.file(b"y"),
        "absent": ABSENT,
        "mode": ground.file(b"x", 0o600),
        "link": ground.link(b"y"),
    }[become]
    ops = [ground.op(b"a", ground.file(b"b")), ground.op(b"x", new, how)]
    immutable(ground.where(b"x"))
    applier = ground.applier()
    staged = applier.stage(Plan.of(ops))
    with pytest.raises(SubstrateError) as caught:
        applier.carry_out(staged)
    assert "x cannot be changed" in caught.value.message and "immutable" in caught.value.hint
    assert ground.listing() == before
    ground.assert_swept()
