"""Once a command is answered nothing comes up in the project any more, and nothing goes: its caller
may be removing it, or moving it away."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from substrate.daemon.server import idle_work
from substrate.errors import SubstrateError
from substrate.model import RelPath
from substrate.recorder import session_context as places
from substrate.recorder.command.command_request import CommandRequest
from substrate.recorder.command.pipeline import record_command
from substrate.recorder.command.world_choice import Asked, world_for
from substrate.recorder.session_context import Place
from substrate.system import environment
from substrate.system.process import deferred_work
from substrate.workspace import Exclusions
from substrate.workspace.watch import TreeWatch
from substrate.world.capabilities import machine_probe
from substrate.world.network.choose_network import network_for
from tests.contract.as_user import as_user
from tests.contract.prewarmed import ahead

pytestmark = [pytest.mark.needs("linux", "world-overlay"), pytest.mark.usefixtures("ahead")]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / "d").mkdir(parents=True)
    (made / "d" / "file").write_text("0\n")
    machine_probe.probe()  # or each child would
    return made


def _names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def _do(root: Path, line: str) -> None:
    place = Place.at(root, environment.current(), None, "ada")
    request = CommandRequest(root, shell=line, network=network_for("open"))
    record_command(place, world_for(place, Asked()), request)


def _after_the_answer() -> None:
    """As the daemon's process does, and then the one that waits for the next call."""
    recipe = ahead().news.recipe
    ahead().settle()
    deferred_work.run()
    assert recipe is not None
    ahead().prepare(recipe)
    places.history_ahead.open(Path(os.fsdecode(recipe.root)))
    ahead().see_off()
    deferred_work.run_clearing()
    _idle_work(Path(os.fsdecode(recipe.root)))


def _idle_work(root: Path) -> None:
    """What the watcher's children do: they report that the history is gone, and create nothing."""
    works: tuple[idle_work.Work, ...] = (
        lambda place: idle_work.set_up(place, TreeWatch(root, Exclusions.load(root))),
        lambda place: idle_work.record(place, {RelPath(b"d/file"): False}),
        lambda place: idle_work.tidy_up(place, True),
    )
    for work in works:
        with suppress(SubstrateError, OSError):
            work(Place.at(root, environment.current()))


def _names_after(
    root: Path, lines: tuple[str, ...], between: Callable[[], object]
) -> tuple[list[str], list[str]]:
    """What there was after `between`, right after the answer, and what there is in the end."""
    deferred_work.postpone()
    for line in lines[:-1]:
        _do(root, line)
        _after_the_answer()
    _do(root, lines[-1])
    between()
    before = _names(root)
    _after_the_answer()
    after = _names(root)
    ahead().drop()
    deferred_work.run()
    deferred_work.run_clearing()
    places.history_ahead.drop()
    return before, after


_LINES = {
    "the first": ("echo 1 > d/file",),
    "one in a world made ahead": ("true", "echo 1 > d/file; echo 2 > new"),
    "one that changes nothing": ("echo 1 > d/file", "true"),
    "many": ("mkdir e; echo 1 > e/new", "rm -r e", "cat d/file", "echo 2 >> d/file"),
}


@pytest.mark.parametrize("lines", _LINES.values(), ids=_LINES)
def test_no_name_comes_or_goes(root: Path, lines: tuple[str, ...]) -> None:
    before, after = as_user(os.geteuid(), lambda: _names_after(root, lines, lambda: None))
    assert after == before


_PARTS = (".substrate-git", ".substrate-git/lock", ".substrate-git/index", ".substrate-git/worlds",
          ".substrate-git/index/history.db", ".substrate-git/.git", ".substrate-git/.git/HEAD",
          ".substrate-git/.git/refs", ".substrate-git/.git/objects",
          ".substrate-git/{worlds,running}")  # fmt: skip


@pytest.mark.parametrize("part", _PARTS)
def test_what_is_removed_so_far_is_not_made_again(root: Path, part: str) -> None:
    def remove() -> None:
        (root / "d" / "file").unlink()
        subprocess.run(["bash", "-c", f"rm -r {root}/{part}"], check=True)

    lines = _LINES["one in a world made ahead"]
    before, after = as_user(os.geteuid(), lambda: _names_after(root, lines, remove))
    assert set(after) <= set(before)


def test_nothing_is_recorded_where_only_the_store_is_left(root: Path) -> None:
    def remove_the_rest() -> None:
        subprocess.run(["rm", "-r", root / "d", root / "new"], check=True)

    lines = _LINES["one in a world made ahead"]
    before, after = as_user(os.geteuid(), lambda: _names_after(root, lines, remove_the_rest))
    assert after == before


def test_a_project_that_was_moved_is_left_alone(root: Path) -> None:
    lines = _LINES["one in a world made ahead"]
    moved = root.with_name("moved")

    def move() -> list[str]:
        _names_after(root, lines, lambda: root.rename(moved))
        return _names(root.parent)

    assert not [name for name in as_user(os.geteuid(), move) if name.startswith("project")]
    assert (moved / ".substrate-git" / "lock").exists()
