"""Random edits of a tree between two commands."""

from __future__ import annotations

import mmap
import os
import random
import shutil
from pathlib import Path


class Edits:
    """What an editor, a build or git does to a tree, at random."""

    def __init__(self, root: Path, seed: int) -> None:
        self._root = root
        self._chance = random.Random(seed)

    def __call__(self) -> None:
        for _ in range(self._chance.choice([1, 1, self._chance.randint(2, 12)])):
            self._chance.choice(
                [self._write, self._save, self._remove, self._move, self._replace, self._link,
                 self._mode, self._swap, self._cut, self._name_outside, self._write_outside,
                 self._map, self._attribute, self._pass_by, self._time, self._away_and_back]
            )()  # fmt: skip

    def _directory(self) -> Path:
        found = [p for p in self._root.rglob("*") if p.is_dir() and not p.is_symlink()]
        found = [p for p in found if ".substrate-git" not in p.parts and len(p.parts) < 12]
        return self._chance.choice([self._root, *found])

    def _name(self) -> Path:
        return self._directory() / f"n{self._chance.randint(0, 5)}"

    def _clear(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def _write(self) -> None:
        path = self._name()
        if not path.is_dir() and not path.is_symlink():
            with path.open("a") as file:
                file.write(f"{self._chance.random()}\n")

    def _save(self) -> None:
        """As an editor saves: a new file, renamed over the old one."""
        path = self._name()
        if not path.is_dir():
            aside = path.with_name("aside")
            self._clear(aside)
            aside.write_text(f"{self._chance.random()}\n")
            aside.replace(path)

    def _remove(self) -> None:
        self._clear(self._name())

    def _move(self) -> None:
        source, target = self._name(), self._name()
        if source.exists() and not target.is_relative_to(source) and source != target:
            self._clear(target)
            if source.exists() and target.parent.exists():
                source.rename(target)

    def _replace(self) -> None:
        """A directory gives way to another one with some of the same names."""
        path = self._name()
        self._clear(path)
        path.mkdir()
        for number in range(3):
            (path / f"n{number}").write_text(f"{self._chance.random()}\n")

    def _link(self) -> None:
        path = self._name()
        self._clear(path)
        path.symlink_to(f"n{self._chance.randint(0, 5)}")

    def _mode(self) -> None:
        path = self._name()
        if path.exists() and not path.is_symlink():
            path.chmod(self._chance.choice([0o700, 0o755, 0o775]))

    def _swap(self) -> None:
        """Two directories change places, as `git checkout` or an atomic deploy may have it."""
        one, other = self._name(), self._name()
        if one.is_dir() and other.is_dir() and one.parent == other.parent and one != other:
            aside = one.with_name("swap")
            one.rename(aside)
            other.rename(one)
            aside.rename(other)

    def _file(self) -> Path | None:
        path = self._name()
        return path if path.is_file() and not path.is_symlink() else None

    def _cut(self) -> None:
        if path := self._file():
            os.truncate(path, self._chance.randint(0, 30))

    def _name_outside(self) -> None:
        """Another name of the file, in a directory without a watch."""
        if path := self._file():
            outside = self._root.parent / f"outside{self._chance.randint(0, 3)}"
            outside.unlink(missing_ok=True)
            os.link(path, outside)

    def _write_outside(self) -> None:
        outside = self._root.parent / f"outside{self._chance.randint(0, 3)}"
        if outside.exists():
            if self._chance.random() < 0.5:
                outside.chmod(self._chance.choice([0o600, 0o644, 0o755]))
            with outside.open("a") as file:
                file.write(f"{self._chance.random()}\n")

    def _map(self) -> None:
        path = self._file()
        if path and path.stat().st_size:
            with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
                memory[0:1] = b"%d" % self._chance.randint(0, 9)

    def _attribute(self) -> None:
        if path := self._file():
            os.setxattr(path, "user.test", b"%d" % self._chance.randint(0, 9))

    def _pass_by(self) -> None:
        """A lock, or what an editor tries out: it comes and goes."""
        path = self._directory() / "passing.lock"
        path.write_text("x")
        path.unlink()

    def _time(self) -> None:
        if path := self._file():
            os.utime(path, ns=(1, self._chance.randint(1, 10**18)))

    def _away_and_back(self) -> None:
        """The whole workspace."""
        aside = self._root.with_name("away")
        self._root.rename(aside)
        aside.rename(self._root)
