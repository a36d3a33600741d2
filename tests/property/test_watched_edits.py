"""Whatever others do to the tree, what the watch suspects is all that a scan would find."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from substrate.history.record import watched_edits
from substrate.workspace.exclude import Exclusions
from substrate.workspace.watch.inotify_watch import TreeWatch
from tests.unit.history.workbench import Bench

pytestmark = pytest.mark.needs("linux")

NAMES = ("a", "b", "c", "sub", "node_modules", "odd\nname", "\udcff")


class Editor:
    """Random edits. No hard links: the watch reports only one of their names."""

    def __init__(self, root: Path, chance: random.Random, elsewhere: Path) -> None:
        self.root = root
        self.chance = chance
        self.elsewhere = elsewhere

    def some(self, *, directories: bool) -> list[Path]:
        found = []
        for here, below, names in os.walk(self.root):
            if ".substrate-git" in below:
                below.remove(".substrate-git")
            found += [Path(here, name) for name in (below if directories else names)]
        return sorted(found)

    def place(self) -> Path:
        """A name in some directory, taken or not."""
        above = self.chance.choice([self.root, *self.some(directories=True)])
        return above / self.chance.choice(NAMES)

    def act(self) -> None:
        deed = self.chance.choice(
            [self.write, self.write, self.append, self.make, self.move, self.move_out, self.back,
             self.remove, self.mode, self.link, self.fill]
        )  # fmt: skip
        try:
            deed()
        except (FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError):
            pass  # not everything can be done everywhere
        except OSError as error:
            if error.errno not in (22, 39, 40):  # into itself, over a full one, links in a ring
                raise

    def write(self) -> None:
        self.place().write_bytes(self.chance.randbytes(3))

    def append(self) -> None:
        with self.chance.choice(self.some(directories=False) or [self.place()]).open("ab") as file:
            file.write(b"more")

    def make(self) -> None:
        self.place().mkdir()

    def fill(self) -> None:
        deep = self.place() / "x" / "y"
        deep.mkdir(parents=True)
        (deep / "f").write_bytes(b"early")

    def move(self) -> None:
        things = self.some(directories=self.chance.random() < 0.5)
        if things:
            self.chance.choice(things).rename(self.place())

    def move_out(self) -> None:
        things = self.some(directories=True)
        if things:
            self.chance.choice(things).rename(self.elsewhere / str(self.chance.random()))

    def back(self) -> None:
        things = sorted(self.elsewhere.iterdir())
        if things:
            self.chance.choice(things).rename(self.place())

    def remove(self) -> None:
        path = self.place()
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()

    def mode(self) -> None:
        things = self.some(directories=self.chance.random() < 0.5)
        if things:
            path = self.chance.choice(things)
            if not path.is_symlink():
                path.chmod(self.chance.choice((0o700, 0o755, 0o600 | path.stat().st_mode)))

    def link(self) -> None:
        self.place().symlink_to(self.chance.choice(NAMES[:3]))


def _check(bench: Bench, tree: TreeWatch) -> None:
    tree.read()
    assert not tree.lost
    suspects = {path: one.deep for path, one in tree.suspects.items()}
    with bench.writing() as store:
        assert watched_edits.record_suspects(store, suspects)
        assert watched_edits.differing_anywhere(store) == {}, suspects
    tree.settled(tree.generation)


@pytest.mark.parametrize("seed", [*range(4), pytest.param(range(4, 44), marks=pytest.mark.long)])
def test_nothing_is_missed(seed: int | range, tmp_path: Path) -> None:
    for number in [seed] if isinstance(seed, int) else seed:
        base = tmp_path / str(number)
        (base / "elsewhere").mkdir(parents=True)
        bench = Bench(base / "project")
        bench.run({"a": b"1", "sub/b": b"1", "sub/sub/c": b"1", "node_modules/x": b"1"})
        tree = TreeWatch(bench.root, Exclusions.load(bench.root))
        tree.set_up()
        editor = Editor(bench.root, random.Random(number), base / "elsewhere")
        try:
            for _ in range(40):
                for _ in range(editor.chance.randint(1, 8)):
                    editor.act()
                    if editor.chance.random() < 0.2:
                        tree.read()
                _check(bench, tree)
        finally:
            tree.close()
