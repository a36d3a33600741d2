"""Apply while other processes work, or attack, in the same tree at the same time.

Real threads and processes, bounded by count. What must hold is checked after every round.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from substrate.model.nodes import ABSENT, Node
from substrate.model.paths import rel_path
from substrate.workspace.apply.plan import How, Op, Plan
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


@contextmanager
def meanwhile_in_a_process(work: Callable[[], None]) -> Iterator[None]:
    """The same in a process of its own, which no interpreter lock holds back."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
            while True:
                work()
        finally:
            os._exit(1)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def _state(directory: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Names, inodes, modes and bytes: whatever apply might have done to them."""
    out = {}
    for path in directory.iterdir():
        at = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        out[path.name] = at.st_ino, at.st_mode, at.st_mtime_ns, data
    return out


def _turns(path: bytes, states: list[Node], how: How = How.REPLACE) -> Generator[Op, bool, None]:
    """Operations that walk `path` through `states` and round again; the answer sent back says
    whether the last one was done, so that the next expects what is really there."""
    at = 0
    while True:
        become = (at + 1) % len(states)
        if (yield Op(rel_path(path), states[at], states[become], how)):
            at = become


@pytest.mark.needs("fork")
def test_a_directory_swapped_for_a_link_never_leads_outside(ground: Ground, tmp_path: Path) -> None:
    """What is outside looks exactly like what is inside, so that only the walk protects it."""
    victim = tmp_path / "victim"
    ground.where(b"d").mkdir()
    x, other, w = ground.file(b"inside"), ground.file(b"applied"), ground.file(b"in place")
    ground.put(b"d/x", x)
    ground.put(b"d/w", w)
    ground.put(b"d/keep", ground.file(b"k"))
    shutil.copytree(ground.where(b"d"), victim)
    before = _state(victim)
    inside, aside, link = ground.where(b"d"), ground.where(b"aside"), ground.where(b"link")
    link.symlink_to(victim)

    def swap() -> None:
        os.rename(inside, aside)
        os.rename(link, inside)
        os.rename(inside, link)
        os.rename(aside, inside)

    turns = [
        _turns(b"d/x", [x, other, ABSENT, x._replace(mode=0o777)]),
        _turns(b"d/w", [w, ground.file(b"rewritten")], How.IN_PLACE),
        _turns(b"d/new", [ABSENT, other, ground.link(b"x"), ground.directory()]),
    ]
    ops = [next(turn) for turn in turns]
    conflicts = done = 0
    with meanwhile_in_a_process(swap):
        for _ in range(1500):
            applier = ground.applier()
            report = applier.carry_out(applier.stage(Plan.of(ops)))
            conflicts += len(report.conflicts)
            done += len(report.done)
            ops = [
                turn.send(op.path in report.done + report.already)
                for turn, op in zip(turns, ops, strict=True)
            ]
    assert _state(victim) == before
    assert done and conflicts  # the race was on: some rounds met the link, some did not


@pytest.mark.needs("fork")
def test_the_last_component_swapped_for_a_link_is_not_followed(
    ground: Ground, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    x = ground.put(b"x", ground.file(b"inside"))
    shutil.copy(ground.where(b"x"), victim / "x")
    before = _state(victim)
    spare, link = ground.where(b"spare"), ground.where(b"link")
    link.symlink_to(victim / "x")

    def swap() -> None:
        try:
            os.rename(ground.where(b"x"), spare)
            os.rename(link, ground.where(b"x"))
            os.rename(ground.where(b"x"), link)
            os.rename(spare, ground.where(b"x"))
        except FileNotFoundError:
            pass  # apply had it in hand just then
        for path in (ground.where(b"x"), spare):
            if path.is_symlink():
                os.replace(path, link)
        if spare.exists() and not ground.where(b"x").exists():
            os.replace(spare, ground.where(b"x"))
        if not link.is_symlink():
            link.unlink(missing_ok=True)
            link.symlink_to(victim / "x")

    states = [x, x._replace(mode=0o777)]
    turns = [_turns(b"x", states), _turns(b"x", [x, ground.file(b"rewritten")], How.IN_PLACE)]
    for turn in turns:
        op = next(turn)
        with meanwhile_in_a_process(swap):
            for _ in range(500):
                applier = ground.applier()
                report = applier.carry_out(applier.stage(Plan.of([op])))
                op = turn.send(bool(report.done + report.already))
        for path in (b"x", b"spare", b"link"):
            ground.where(path).unlink(missing_ok=True)
        link.symlink_to(victim / "x")
        ground.put(b"x", x)
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
    for number in range(250):
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
    assert done + conflicts == 250


@pytest.mark.parametrize("how", [How.REPLACE, How.IN_PLACE], ids=lambda how: how.value)
@pytest.mark.parametrize("in_place", [False, True], ids=["by rename", "in place"])
def test_an_editor_that_never_stops(ground: Ground, in_place: bool, how: How) -> None:
    """Each apply expects what it last saw; the editor's newest bytes always remain."""
    ground.put(b"x", ground.file(b"begin"))
    editor = Editor(ground.where(b"x"), in_place)
    done = 0
    with meanwhile(editor.save):
        for number in range(250):
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
