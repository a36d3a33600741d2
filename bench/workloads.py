"""Real work to run bare and in a world, and a check that both leave the same tree."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench.trees import make_tree

REPOSITORY = Path(__file__).resolve().parents[1]
#: What says when it was made, or where: two bare runs differ there as well.
_TIMED = (".git/index", ".git/logs", ".git/FETCH_HEAD", ".git/COMMIT_EDITMSG")
_OURS = (".substrate-git", ".ctx")
GIT = ["git", "-c", "gc.auto=0", "-c", "user.name=bench", "-c", "user.email=bench@example.invalid"]


class Work(NamedTuple):
    """One workload: `make` prepares a directory, `command` is run in it."""

    name: str
    make: Callable[[Path], None]
    command: str
    #: ``build``: at most 1.15 × bare; ``new-files``: mostly new files, at most 2.2 ×.
    kind: str


def quiet(argv: list[str], cwd: Path) -> None:
    subprocess.run(argv, cwd=cwd, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def all_work(scale: int) -> list[Work]:
    """What can be done on this machine without a network; `scale` 1 is a short pass."""
    work = [
        Work("C build", lambda root: _c_project(root, 20 * scale), "make -s -j2", "build"),
        Work(
            "git clone from a path",
            lambda root: _origin(root, 500 * scale),
            "git clone -q --no-hardlinks origin copy",
            "new-files",
        ),
        Work("tar x", lambda root: _archive(root, 500 * scale), "tar xf files.tar", "new-files"),
    ]
    if _has_module("pytest, hypothesis, xdist"):
        work.append(Work("a package's tests", _own_tests, _TEST_COMMAND, "build"))
    if _has_module("pip") and _has_module("hatchling"):
        work.append(Work("pip install of a wheel", _wheel, _PIP_COMMAND, "new-files"))
    if shutil.which("npm"):
        work.append(Work("npm ci (local packages)", _npm_project, _NPM_COMMAND, "new-files"))
    return work


_PYTHON = sys.executable
_TEST_COMMAND = f"{_PYTHON} -B -m pytest -q -p no:cacheprovider tests/unit/world/network"
_PIP_COMMAND = (
    f"{_PYTHON} -m pip install -q --disable-pip-version-check --no-index --no-deps --no-compile "
    "--target site dist/*.whl"
)
_NPM_COMMAND = "npm ci --offline --ignore-scripts --no-audit --no-fund --silent --cache .npm-cache"


def _has_module(names: str) -> bool:
    tried = subprocess.run([_PYTHON, "-c", f"import {names}"], capture_output=True, check=False)
    return tried.returncode == 0


def _c_project(root: Path, files: int) -> None:
    for number in range(files):
        body = "".join(
            f"int f{number}_{step}(int x) {{ int s = 0; for (int i = 0; i < x; i++) "
            f"s += i * {step} ^ (s << 1); return s; }}\n"
            for step in range(60)
        )
        (root / f"part{number}.c").write_text(f"#include <stdio.h>\n#include <stdlib.h>\n{body}")
    (root / "main.c").write_text("int f0_0(int); int main(void) { return f0_0(0); }\n")
    objects = " ".join(f"part{number}.o" for number in range(files))
    (root / "Makefile").write_text(
        f"CFLAGS = -O1\nprogram: main.o {objects}\n\t$(CC) -o $@ $^\n"
        "%.o: %.c\n\t$(CC) $(CFLAGS) -c -o $@ $<\n"
    )


def _origin(root: Path, files: int) -> None:
    origin = root / "origin"
    origin.mkdir()
    make_tree(origin, files)
    quiet([*GIT, "init", "-q", "-b", "main"], origin)
    quiet([*GIT, "add", "-A"], origin)
    quiet([*GIT, "commit", "-q", "-m", "tree"], origin)


def _archive(root: Path, files: int) -> None:
    make_tree(root / "tree", files)
    with tarfile.open(root / "files.tar", "w") as archive:
        archive.add(root / "tree", "out")
    shutil.rmtree(root / "tree")


def _own_tests(root: Path) -> None:
    for name in ("src", "tests"):
        shutil.copytree(
            REPOSITORY / name, root / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(REPOSITORY / "pyproject.toml", root)


def _wheel(root: Path) -> None:
    quiet(
        [_PYTHON, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index",
         "-w", str(root / "dist"), str(REPOSITORY)],
        root,
    )  # fmt: skip


def _npm_project(root: Path) -> None:
    names = [f"bench-part-{number}" for number in range(10)]
    for name in names:
        package = root / "packages" / name
        package.mkdir(parents=True)
        make_tree(package, 40)
        (package / "package.json").write_text(f'{{"name": "{name}", "version": "1.0.0"}}')
        quiet(["npm", "pack", "--silent", "--pack-destination", str(root / "packages")], package)
        shutil.rmtree(package)
    wanted = ", ".join(f'"{name}": "file:packages/{name}-1.0.0.tgz"' for name in names)
    (root / "package.json").write_text(
        f'{{"name": "bench", "version": "1.0.0", "dependencies": {{{wanted}}}}}'
    )
    quiet(
        ["npm", "install", "--package-lock-only", "--offline", "--no-audit", "--no-fund",
         "--cache", ".npm-cache"],
        root,
    )  # fmt: skip
    shutil.rmtree(root / ".npm-cache", ignore_errors=True)


def fingerprint(root: Path) -> dict[str, tuple[int, str]]:
    """Every path with its mode and its content; times are left out, and what tells times."""
    found: dict[str, tuple[int, str]] = {}
    for above, directories, files in os.walk(root):
        directories[:] = [
            name for name in directories if name not in (*_OURS, ".npm-cache", ".hypothesis")
        ]
        for name in (*directories, *files):
            path = os.path.join(above, name)
            inside = os.path.relpath(path, root)
            if any(f"/{timed}" in f"/{inside}" for timed in _TIMED):
                continue
            status = os.lstat(path)
            found[inside] = (status.st_mode, _content(path, status.st_mode))
    return found


def _content(path: str, mode: int) -> str:
    if stat.S_ISLNK(mode):
        return os.readlink(path)
    if not stat.S_ISREG(mode):
        return ""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def difference(one: dict[str, tuple[int, str]], other: dict[str, tuple[int, str]]) -> str:
    """A few paths that differ, or nothing."""
    paths = [path for path in sorted({*one, *other}) if one.get(path) != other.get(path)]
    return f"{len(paths)} paths differ: {', '.join(paths[:3])}" if paths else ""
