"""A world's change arrives while an attacker swaps directories for links that lead outside.

Nothing outside is ever written, whatever becomes of the change: applied, merged, in conflict or
held. The layers are made by hand, so that thousands of arrivals take minutes and not hours.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from substrate.errors import SubstrateError
from substrate.recorder.arrival import held_worlds
from substrate.recorder.command.command_request import CommandRequest
from substrate.recorder.command.pipeline import record_command
from substrate.recorder.session_context import Place
from substrate.system import environment
from substrate.system.files.files import remove_tree
from substrate.world.interface import Isolation, Layer, RunOutcome, RunRequest
from substrate.world.layer import layer_dirs
from tests.security.test_apply_races import meanwhile_in_a_process

pytestmark = [pytest.mark.needs("linux", "fork", "root"), pytest.mark.timeout(0)]

_SAMPLE_ROUNDS, _LONG_ROUNDS = 60, 10_000
ISOLATION = Isolation("overlay", "workspace", "open", "a test")


class HandMade:
    """A world in which `fill` did what a command would have done."""

    def __init__(self, root: Path, fill: Callable[[Path], None]) -> None:
        self.root = root
        self.fill = fill

    @property
    def isolation(self) -> Isolation:
        return ISOLATION

    def run(self, request: RunRequest) -> RunOutcome:
        worlds = self.root / ".substrate-git" / "worlds"
        layer = layer_dirs.create(
            worlds, request.world_id, self.root, "overlay", b"trusted.overlay."
        )
        self.fill(layer.upper)
        return RunOutcome(0, None, False, 1, ISOLATION, layer=layer)

    def discard(self, layer: Layer) -> None:
        layer_dirs.remove(layer)


def fill(n: int) -> Callable[[Path], None]:
    """What round `n` does below ``d``: new and changed files, removals, whole directories."""

    def act(upper: Path) -> None:
        d = upper / "d"
        d.mkdir()
        if n % 7 == 3:
            os.setxattr(d, "trusted.overlay.opaque", b"y")
        (d / "x").write_text(f"x {n}\n")
        (d / "run").write_text(f"run {n}\n")
        os.chmod(d / "run", 0o755 if n % 2 else 0o700)
        if n % 2:
            (d / "deep" / "er").mkdir(parents=True)
            (d / "deep" / "er" / "y").write_text(f"y {n}\n")
            os.symlink(f"x{n}", d / "link")
        else:
            for name in ("deep", "link"):
                os.mknod(d / name, stat.S_IFCHR, 0)
        (d / "node_modules").mkdir()
        (d / "node_modules" / "m").write_text(f"m {n}\n")

    return act


def state(directory: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Names, inodes, modes, times and bytes of everything in it."""
    out = {}
    for path in (directory, *directory.rglob("*")):
        at = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        out[str(path)] = at.st_ino, at.st_mode, at.st_mtime_ns, data
    return out


def swapper(root: Path, victim: Path) -> Callable[[], None]:
    inside, aside, link = root / "d", root / "aside", root / "way-out"

    def swap() -> None:
        with suppress(OSError):  # apply had one of them in hand just then
            os.rename(inside, aside)
            os.rename(link, inside)
            os.rename(inside, link)
            os.rename(aside, inside)
        with suppress(OSError):
            if inside.is_symlink():
                os.rename(inside, link)
        with suppress(OSError):
            if aside.is_dir() and not inside.exists():
                os.rename(aside, inside)
            elif aside.is_dir() and not aside.is_symlink():
                shutil.rmtree(aside)
        with suppress(OSError):
            inside.mkdir()
        with suppress(OSError):
            link.symlink_to(victim)

    return swap


def race(tmp_path: Path, rounds: int) -> Counter[str]:
    root, victim = tmp_path / "project", tmp_path / "victim"
    (root / "d" / "deep" / "er").mkdir(parents=True)
    (root / "d" / "node_modules").mkdir()
    for name in ("x", "run", "keep", "deep/er/y", "node_modules/m"):
        (root / "d" / name).write_text("same\n")
    # It looks like what is inside, so that no comparison can tell them apart.
    shutil.copytree(root / "d", victim)
    before = state(victim)
    place = Place.at(root, environment.current(), None, "ada")
    ended: Counter[str] = Counter()
    record_command(place, HandMade(root, lambda _: None), CommandRequest(root, shell="true"))
    with meanwhile_in_a_process(swapper(root, victim)):
        for n in range(rounds):
            world = HandMade(root, fill(n))
            try:
                done = record_command(place, world, CommandRequest(root, shell=f"round {n}"))
            except SubstrateError as error:
                ended[type(error).__name__] += 1
            else:
                ended["held" if done.held else "arrived"] += 1
                if done.held:
                    held_worlds.discard_world(place, done.world_id)
            if n % 50 == 49:
                assert state(victim) == before, f"after round {n}"
                remove_tree(root / ".substrate-git" / "trash")
                (root / ".substrate-git" / "trash").mkdir(mode=0o700)
    assert state(victim) == before
    return ended


def test_nothing_outside_is_written(tmp_path: Path) -> None:
    ended = race(tmp_path, _SAMPLE_ROUNDS)
    print(f"\n{dict(ended)}")
    assert ended["arrived"]


@pytest.mark.long
def test_nothing_outside_is_written_in_ten_thousand_rounds(tmp_path: Path) -> None:
    ended = race(tmp_path, _LONG_ROUNDS)
    print(f"\n{dict(ended)}")
    assert ended["arrived"] and len(ended) > 1
