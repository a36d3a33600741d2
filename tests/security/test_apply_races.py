"""Apply against somebody who works, or attacks, in the same tree at the same time.

Real threads, bounded by count. What must hold is checked after every round.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from substrate.model.nodes import ABSENT
from substrate.model.paths import rel_path
from substrate.workspace.plan import How, Op, Plan
from tests.unit.workspace.applying import Ground

pytestmark = pytest.mark.needs("posix", "symlinks")


@contextmanager
def meanwhile(work: Callable[[], None]) -> Iterator[None]:
    """Run `work` over and over in a thread until the block ends."""
    stop = threading.Event()

    def loop() -> None:
        while not stop.is_set():
            work()

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def _victim(tmp_path: Path) -> Path:
    victim = tmp_path / "victim"
    victim.mkdir()
    for name in ("x", "y", "sub"):
        (victim / name).write_bytes(b"precious " + name.encode())
    return victim


def _state(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        p.name: (p.stat().st_mode, p.stat().st_mtime_ns, p.read_bytes())
        for p in directory.iterdir()
    }


def test_a_directory_swapped_for_a_link_never_leads_outside(ground: Ground, tmp_path: Path) -> None:
    victim = _victim(tmp_path)
    before = _state(victim)
    inside = ground.where(b"d")
    aside = ground.where(b"aside")
    inside.mkdir()
    x = ground.put(b"d/x", ground.file(b"inside"))
    other = ground.file(b"applied")

    def swap() -> None:
        os.rename(inside, aside)
        os.symlink(victim, inside)
        os.unlink(inside)
        os.rename(aside, inside)

    ops = [
        [Op(rel_path(b"d/x"), x, other), Op(rel_path(b"d/y"), ABSENT, other)],
        [Op(rel_path(b"d/x"), other, ABSENT), Op(rel_path(b"d/sub"), ABSENT, ground.directory())],
        [Op(rel_path(b"d/x"), ABSENT, x), Op(rel_path(b"d/x2"), ABSENT, ground.link(b"x"))],
        [Op(rel_path(b"d/x"), x, x._replace(mode=0o777))],
        [Op(rel_path(b"d/x"), x._replace(mode=0o777), other, How.IN_PLACE)],
        [Op(rel_path(b"d/x"), other, x, How.IN_PLACE)],
        [Op(rel_path(b"d/y"), other, ABSENT), Op(rel_path(b"d/x2"), ground.link(b"x"), ABSENT)],
        [Op(rel_path(b"d/sub"), ground.directory(), ABSENT)],
    ]
    conflicts = done = 0
    with meanwhile(swap):
        for number in range(2000):
            applier = ground.applier()
            staged = applier.stage(Plan.of(ops[number % len(ops)]))
            report = applier.carry_out(staged)
            conflicts += len(report.conflicts)
            done += len(report.done)
    assert _state(victim) == before
    assert done and conflicts  # the race was on: some rounds met the link, some did not


def test_the_last_component_swapped_for_a_link_is_not_followed(
    ground: Ground, tmp_path: Path
) -> None:
    victim = _victim(tmp_path)
    before = _state(victim)
    x = ground.put(b"x", ground.file(b"inside"))
    spare = ground.where(b"spare")

    def swap() -> None:
        try:
            os.rename(ground.where(b"x"), spare)
            os.symlink(victim / "x", ground.where(b"x"))
            os.unlink(ground.where(b"x"))
            os.rename(spare, ground.where(b"x"))
        except (FileNotFoundError, FileExistsError):
            # Apply had it in hand just then; begin anew from whatever is there.
            if spare.exists() and not ground.where(b"x").is_symlink():
                os.replace(spare, ground.where(b"x"))

    ops = [
        Op(rel_path(b"x"), x, x._replace(mode=0o777)),
        Op(rel_path(b"x"), x._replace(mode=0o777), ground.file(b"rewritten"), How.IN_PLACE),
        Op(rel_path(b"x"), ground.file(b"rewritten"), x),
    ]
    with meanwhile(swap):
        for number in range(2000):
            applier = ground.applier()
            applier.carry_out(applier.stage(Plan.of([ops[number % 3]])))
    assert _state(victim) == before


class Editor:
    """Saves the same file again and again, each time with new bytes, and remembers the last."""

    def __init__(self, path: Path, in_place: bool) -> None:
        self._path = path
        self._in_place = in_place
        self.count = 0

    def save(self) -> None:
        self.count += 1
        data = b"saved %d\n" % self.count
        if self._in_place:
            with open(self._path, "wb", buffering=0) as file:
                file.write(data)
        else:
            temporary = self._path.with_name("editor.tmp")
            temporary.write_bytes(data)
            os.replace(temporary, self._path)


def _texts(ground: Ground) -> set[bytes]:
    """Every content that can still be found: in the tree and in the trash."""
    found = {entry.location.read_bytes() for entry in ground.trash.list()}
    if ground.where(b"x").exists():
        found.add(ground.where(b"x").read_bytes())
    return found


@pytest.mark.parametrize("in_place", [False, True], ids=["by rename", "in place"])
@pytest.mark.parametrize("become", ["replace", "remove"])
def test_what_an_editor_saves_is_never_lost(ground: Ground, in_place: bool, become: str) -> None:
    """The editor saves once, at any moment of an apply that expects the state before."""
    done = conflicts = 0
    for number in range(400):
        x = ground.file(b"base %d" % number)
        ground.where(b"x").unlink(missing_ok=True)
        ground.put(b"x", x)
        new = ground.file(b"new %d" % number) if become == "replace" else ABSENT
        editor = Editor(ground.where(b"x"), in_place)
        editor.count = number * 10
        go = threading.Barrier(2)

        def save(go: threading.Barrier = go, editor: Editor = editor, number: int = number) -> None:
            go.wait()
            for _ in range((number % 40) * 25):
                pass  # a moment later each time
            editor.save()

        applier = ground.applier()
        staged = applier.stage(Plan.of([Op(rel_path(b"x"), x, new)]))
        thread = threading.Thread(target=save)
        thread.start()
        go.wait()
        report = applier.carry_out(staged)
        thread.join()
        done += len(report.done)
        conflicts += len(report.conflicts)
        saved = b"saved %d\n" % editor.count
        assert saved in _texts(ground), (number, report, _texts(ground))
        # Whatever happened is said: the tree holds ours, or a conflict or trash was reported.
        tree = ground.where(b"x").read_bytes() if ground.where(b"x").exists() else None
        if report.conflicts:
            assert tree == saved
        assert not ground.scratch.exists()
        shutil.rmtree(ground.trash.directory, ignore_errors=True)
    assert done + conflicts == 400


@pytest.mark.parametrize("how", list(How), ids=lambda how: how.value)
@pytest.mark.parametrize("in_place", [False, True], ids=["by rename", "in place"])
def test_an_editor_that_never_stops(ground: Ground, in_place: bool, how: How) -> None:
    """Each apply expects what it last saw; the editor's newest bytes always remain."""
    ground.put(b"x", ground.file(b"begin"))
    editor = Editor(ground.where(b"x"), in_place)
    done = 0
    with meanwhile(editor.save):
        for number in range(400):
            try:
                op = ground.op(b"x", ground.file(b"applied %d" % number), how)
            except FileNotFoundError:
                continue
            applier = ground.applier()
            report = applier.carry_out(applier.stage(Plan.of([op])))
            done += len(report.done)
    last = b"saved %d\n" % editor.count
    assert last in _texts(ground) or (
        done and ground.where(b"x").read_bytes().startswith(b"applied")
    )
    if not _texts(ground) & {last}:
        # Ours came after the editor's last word: then that word was what we expected and read.
        assert last in ground.blobs.data.values()


def test_names_cannot_be_forged_into_scratch(ground: Ground) -> None:
    """A command leaves files named like our scratch names in the tree: they stay."""
    for name in (b"0", b"0.old", b"0.part", b".substrate-0123456789ab-0", b"openings"):
        ground.put(name, ground.file(b"mine " + name))
    before = ground.listing()
    ground.apply(ground.op(b"x", ground.file(b"1")))
    ground.apply(ground.op(b"x", ABSENT))
    ground.applier().resume(Plan.of([ground.op(b"x", ABSENT)]))
    assert ground.listing() == before
