"""Killed anywhere, and again while resuming: in the end all-new, and no byte is missing.

The child is ended (`os._exit`, as by SIGKILL) before the N-th line of apply's own code, for
every N: that is finer than every system call it makes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from substrate.model.nodes import ABSENT, Kind
from substrate.system.files import renames
from substrate.workspace.apply.apply import Report
from substrate.workspace.apply.plan import How, Op, Plan
from tests.unit.workspace.applying import Ground, Leaving, ground

__all__ = ["ground"]

pytestmark = pytest.mark.needs("fork")

_OURS = frozenset({"workspace", "system"})
_KILLED = 99


def _trace(kill_at: int) -> Callable[[FrameType, str, Any], Any]:
    left = [kill_at]

    def on_line(frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            left[0] -= 1
            if left[0] < 0:
                os._exit(_KILLED)
        return on_line

    def on_call(frame: FrameType, event: str, arg: object) -> Any:
        parts = Path(frame.f_code.co_filename).parts
        return on_line if "substrate" in parts and not _OURS.isdisjoint(parts) else None

    return on_call


def killed_at(line: int, work: Callable[[], object]) -> bool:
    """Run `work` in a child that dies before its `line`-th line; False: it ended before that."""
    pid = os.fork()
    if pid == 0:
        try:
            sys.settrace(_trace(line))
            work()
            sys.settrace(None)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the parent shows the status
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, _KILLED), code
    return code == _KILLED


def _scene(ground: Ground) -> Plan:
    _kept(ground)
    ground.put(b"content", ground.file(b"1"))
    ground.put(b"mode", ground.file(b"2", 0o600))
    ground.put(b"gone", ground.file(b"3"))
    ground.put(b"inplace", ground.file(b"4" * 9000))
    ground.put(b"emptied", ground.directory(0o711))
    ground.put(b"emptied/in", ground.file(b"5"))
    ground.put(b"todir", ground.file(b"6"))
    ground.put(b"tofile", ground.directory(0o701))
    ground.put(b"whole", ground.directory())
    ground.put(b"whole/deep", ground.directory(0o750))
    names = [b"whole", b"whole/deep", *(b"whole/deep/%d" % n for n in range(8))]
    for name in names[2:]:
        ground.put(name, ground.file(name))
    return Plan.of(
        [
            ground.op(b"content", ground.file(b"one", 0o755)),
            ground.op(b"mode", ground.file(b"2", 0o644)),
            ground.op(b"gone", ABSENT),
            ground.op(b"inplace", ground.file(b"four" * 3000), How.IN_PLACE),
            ground.op(b"emptied", ABSENT),
            ground.op(b"emptied/in", ABSENT),
            ground.op(b"todir", ground.directory()),
            ground.op(b"todir/in", ground.file(b"six")),
            ground.op(b"tofile", ground.link(b"seven")),
            ground.op(b"bulk", ABSENT),
            *(ground.op(name, ABSENT) for name in names),
        ]
    )


def _many_rewrites(ground: Ground) -> Plan:
    """So many that their marks are made, and they are synced, together."""
    _kept(ground)
    names = [b"%d" % number for number in range(20)]
    for name in names:
        ground.put(name, ground.file(name * 5000))
    ops = [ground.op(name, ground.file(b"new" + name * 3000), How.IN_PLACE) for name in names]
    return Plan.of([*ops, ground.op(b"bulk", ABSENT)])


def _kept(ground: Ground) -> None:
    ground.exclusions = Leaving(b"bulk")
    ground.put(b"bulk", ground.directory())
    ground.put(b"bulk/in", ground.file(b"excluded"))


def _forward(ground: Ground, plan: Plan) -> None:
    applier = ground.applier()
    applier.carry_out(applier.stage(plan))


def _assert_all_new(ground: Ground, plan: Plan) -> None:
    for op in plan.ops:
        assert ground.at(op.path) == op.become, op
    assert set(ground.listing()) == {op.path for op in plan.ops if op.become != ABSENT}
    kept = [entry for entry in ground.trash.list() if entry.path == b"bulk"]
    assert [(entry.location / "in").read_bytes() for entry in kept] == [b"excluded"]
    assert not ground.scratch.exists()


def _grounds(base: Path) -> Iterator[Ground]:
    number = 0
    while True:
        number += 1
        place = base / str(number)
        place.mkdir()
        yield Ground(place)


@pytest.fixture(params=["exchange", "no-exchange"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    renames._system_call()
    if request.param == "no-exchange":
        monkeypatch.setattr(renames, "_system_call", lambda: None)
    return str(request.param)


def _sweep(tmp_path: Path, step: int, scene: Callable[[Ground], Plan]) -> int:
    """Kill at every `step`-th line, then kill the resumption too, then let it finish."""
    for rounds, place in enumerate(_grounds(tmp_path)):
        if not _survives(place, rounds * step, scene):
            return rounds
    raise AssertionError("never came to its end")


def _survives(ground: Ground, line: int, scene: Callable[[Ground], Plan]) -> bool:
    """One round; False when the operation ended before `line`."""
    plan = scene(ground)
    if not killed_at(line, lambda: _forward(ground, plan)):
        _assert_all_new(ground, plan)
        return False
    # The second life is shorter or longer than the first, so that all pairs get a chance.
    again = (line * 7919) % 2500
    killed_at(again, lambda: ground.applier().resume(plan))
    report = ground.applier().resume(plan)
    assert report.conflicts == (), (line, again, report.conflicts)
    assert report.kept_directories == (), (line, again)
    assert set(report.trashed) <= {b"bulk"}, (line, again, report.trash_entries)
    _assert_all_new(ground, plan)
    return True


def test_killed_here_and_there(tmp_path: Path, way: str) -> None:
    assert _sweep(tmp_path, 97, _scene) > 10


def test_killed_among_many_rewrites(tmp_path: Path) -> None:
    assert _sweep(tmp_path, 151, _many_rewrites) > 10


@pytest.mark.long
def test_killed_at_every_line(tmp_path: Path, way: str) -> None:
    assert _sweep(tmp_path, 1, _scene) > 500


@pytest.mark.long
def test_killed_more_often_among_many_rewrites(tmp_path: Path) -> None:
    assert _sweep(tmp_path, 13, _many_rewrites) > 100


# ------------------------------------------------------------------------ what resume finds


def _crash_after(ground: Ground, plan: Plan, point: str) -> None:
    """A child that carries out `plan` and dies when it is about to call `Site.<point>`."""
    from substrate.workspace.apply.apply_context import Site

    pid = os.fork()
    if pid == 0:
        setattr(Site, point, lambda *a, **k: os._exit(0))
        try:
            _forward(ground, plan)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_resume_with_nothing_done(ground: Ground) -> None:
    plan = _scene(ground)
    report = ground.applier().resume(plan)
    assert report.complete and len(report.done) == len(plan.ops)
    _assert_all_new(ground, plan)


def test_resume_of_what_is_finished(ground: Ground) -> None:
    plan = _scene(ground)
    _forward(ground, plan)
    report = ground.applier().resume(plan)
    assert report.done == () and len(report.already) == len(plan.ops) and report.complete


def test_displaced_files_are_dropped_only_if_known(ground: Ground) -> None:
    ground.put(b"a", ground.file(b"old a"))
    ground.put(b"b", ground.file(b"old b"))
    plan = Plan.of([ground.op(b"a", ground.file(b"new a")), ground.op(b"b", ABSENT)])
    _crash_after(ground, plan, "shut")
    displaced = {p.read_bytes(): p for p in ground.scratch.iterdir()}
    assert set(displaced) == {b"old a", b"old b"}
    # An editor had the file open and wrote to it after the exchange.
    displaced[b"old a"].write_bytes(b"somebody's last words")
    report = ground.applier().resume(plan)
    assert report.already == (b"b", b"a") and report.conflicts == ()
    assert report.trashed == (b"a",)
    assert ground.trash.list()[0].location.read_bytes() == b"somebody's last words"
    assert not ground.scratch.exists()


def test_unknown_bytes_go_back_to_a_free_place(ground: Ground) -> None:
    """Removed in the moment an editor saved; the crash came before that was noticed."""
    ground.put(b"b", ground.file(b"old b"))
    plan = Plan.of([ground.op(b"b", ABSENT)])
    _crash_after(ground, plan, "shut")
    (displaced,) = ground.scratch.iterdir()
    displaced.write_bytes(b"saved in the last moment")
    report = ground.applier().resume(plan)
    assert [c.path for c in report.conflicts] == [b"b"]
    assert ground.where(b"b").read_bytes() == b"saved in the last moment"


def test_what_others_changed_after_the_crash_is_left_alone(ground: Ground) -> None:
    plan = _scene(ground)
    _crash_after(ground, plan, "shut")
    ground.where(b"content").write_bytes(b"edited after the crash")
    ground.where(b"todir/mine").write_bytes(b"mine")
    ground.where(b"gone").write_bytes(b"made anew")
    report = ground.applier().resume(plan)
    assert {c.path for c in report.conflicts} == {b"content", b"gone"}
    assert ground.where(b"content").read_bytes() == b"edited after the crash"
    assert ground.where(b"todir/mine").read_bytes() == b"mine"
    assert ground.where(b"gone").read_bytes() == b"made anew"
    assert not ground.scratch.exists()


def _torn(ground: Ground, found: bytes) -> tuple[Report, Op]:
    ground.put(b"x", ground.file(b"o" * 10_000))
    op = ground.op(b"x", ground.file(b"n" * 14_000), How.IN_PLACE)
    ground.scratch.mkdir(parents=True)
    (ground.scratch / "0.inplace").touch()
    ground.where(b"x").write_bytes(found)
    return ground.applier().resume(Plan.of([op])), op


@pytest.mark.parametrize(
    "found",
    [
        b"n" * 4096 + b"o" * 5904,
        b"o" * 4096 + b"n" * 4096 + b"o" * 1808 + b"\0" * 4000,
        b"\0" * 14_000,
        b"o" * 10_000 + b"\0" * 4000,
    ],
)
def test_a_torn_rewrite_is_finished(ground: Ground, found: bytes) -> None:
    report, op = _torn(ground, found)
    assert report.done == (b"x",) and ground.at(b"x") == op.become
    assert not ground.scratch.exists()


def test_a_torn_rewrite_stays_known_as_torn_when_resume_fails(ground: Ground) -> None:
    ground.put(b"x", ground.file(b"o" * 5000))
    missing = ground.file(b"missing")
    ops = [ground.op(b"x", ground.file(b"n" * 5000), How.IN_PLACE), ground.op(b"y", missing)]
    del ground.blobs.data[missing.oid]
    ground.scratch.mkdir(parents=True)
    (ground.scratch / "0.inplace").touch()
    ground.where(b"x").write_bytes(b"n" * 4096 + b"o" * 904)
    with pytest.raises(KeyError):
        ground.applier().resume(Plan.of(ops))
    ground.file(b"missing")
    report = ground.applier().resume(Plan.of(ops))
    assert report.complete and ground.where(b"x").read_bytes() == b"n" * 5000
    assert not ground.scratch.exists()


def test_an_excluded_file_found_in_scratch_is_not_dropped_even_if_it_is_as_expected(
    ground: Ground,
) -> None:
    """Its hash is in the plan, but its bytes need not be in the store."""
    ground.exclusions = Leaving(b"secret.log")
    ground.put(b"secret.log", ground.file(b"lines"))
    plan = Plan.of([ground.op(b"secret.log", ground.file(b"new"))])
    _crash_after(ground, plan, "shut")
    report = ground.applier().resume(plan)
    assert report.already == report.trashed == (b"secret.log",)
    assert ground.trash.list()[0].location.read_bytes() == b"lines"


@pytest.mark.parametrize(
    "found",
    [b"n" * 4096 + b"mine" + b"o" * 5900, b"n" * 4096, b"short", b"o" * 12_000],
)
def test_a_torn_rewrite_that_a_user_edited_is_left_alone(ground: Ground, found: bytes) -> None:
    report, _ = _torn(ground, found)
    assert [c.path for c in report.conflicts] == [b"x"]
    assert ground.where(b"x").read_bytes() == found


def test_without_the_mark_a_mixture_belongs_to_another(ground: Ground) -> None:
    ground.put(b"x", ground.file(b"o" * 5000))
    op = ground.op(b"x", ground.file(b"n" * 5000), How.IN_PLACE)
    ground.where(b"x").write_bytes(b"n" * 4096 + b"o" * 904)
    report = ground.applier().resume(Plan.of([op]))
    assert [c.path for c in report.conflicts] == [b"x"]


def test_half_written_staging_is_ours_to_remove(ground: Ground) -> None:
    plan = Plan.of([ground.op(b"x", ground.file(b"new content"))])
    ground.scratch.mkdir(parents=True)
    (ground.scratch / "0.part").write_bytes(b"new c")
    report = ground.applier().resume(plan)
    assert report.done == (b"x",) and report.trashed == ()
    assert not ground.scratch.exists()


def test_a_strange_file_in_scratch_is_not_touched(ground: Ground) -> None:
    plan = Plan.of([ground.op(b"x", ground.file(b"new"))])
    ground.scratch.mkdir(parents=True)
    (ground.scratch / "99").write_bytes(b"no operation has this number")
    ground.applier().resume(plan)
    assert (ground.scratch / "99").read_bytes() == b"no operation has this number"


def test_a_displaced_directory_with_content_is_kept(ground: Ground) -> None:
    """Another process put a file into the directory while it was exchanged."""
    ground.put(b"d", ground.directory())
    plan = Plan.of([ground.op(b"d", ground.file(b"now a file"))])
    _crash_after(ground, plan, "shut")
    (displaced,) = ground.scratch.iterdir()
    (displaced / "late").write_bytes(b"late")
    report = ground.applier().resume(plan)
    (entry,) = report.trash_entries
    assert entry.kind is Kind.DIRECTORY and (entry.location / "late").read_bytes() == b"late"
    assert ground.at(b"d") == ground.file(b"now a file")
