"""What a command did in its world comes into the tree as if it had run there, and into history."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from substrate.history import record
from substrate.recorder.place import Place
from substrate.recorder.record_command import CommandRequest, Recording, record_command
from substrate.system import environment
from tests.unit.history.workbench import Bench
from tests.unit.recorder.overlay_world import ScriptWorld
from tests.unit.world.overlays import tree
from tests.unit.world.test_changes import CASES

pytestmark = pytest.mark.needs("overlay", "root", "mounts")

_MAKE = """
echo a > a; echo b > b; ln -s a link; mkdir -p d/e empty
echo c > d/c; echo f > d/e/f; chmod 640 d/c; ln d/c hard; printf '\\377' > $'raw\\377'
find . -exec touch -h -d '2020-01-01' {} +
"""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    root = tmp_path / "project"
    root.mkdir()
    subprocess.run(["bash", "-ec", _MAKE], cwd=root, check=True)
    made = Bench(root)
    do(made, "true")  # the baseline
    return made


def do(
    bench: Bench, script: str, meanwhile: Callable[[], None] = lambda: None, **options: object
) -> Recording:
    place = Place.at(bench.root, environment.current(), None, "ada")
    request = CommandRequest(bench.root, shell=script)._replace(**options)  # type: ignore[arg-type]
    return record_command(place, ScriptWorld(bench.root, script, meanwhile), request)


def span() -> dict[str, object]:
    trace = environment.current().trace_path
    answer: dict[str, object] = json.loads(trace.read_text().splitlines()[-1])
    return answer


def times(root: Path) -> dict[str, int]:
    """Of files and links; a directory's time is the last change in it."""
    return {
        str(path.relative_to(root)): path.lstat().st_mtime_ns // 10**9
        for path in root.rglob("*")
        if ".substrate-git" not in path.parts and not (path.is_dir() and not path.is_symlink())
    }


def marks(root: Path) -> list[str]:
    return [
        f"{path}: {name}"
        for path in [root, *root.rglob("*")]
        if ".substrate-git" not in path.parts
        for name in os.listxattr(path, follow_symlinks=False)
        if "overlay" in name
    ]


def is_settled(bench: Bench) -> bool:
    """History and tree agree, and nothing waits."""
    left = list((bench.root / ".substrate-git" / "worlds").iterdir())
    journal = list((bench.root / ".substrate-git" / "journal").iterdir())
    with bench.writing() as store:
        found = record.record_outside(store)
    assert found is None, found
    return not left and not journal


@pytest.mark.parametrize("name", CASES)
def test_the_tree_is_as_after_a_bare_run(bench: Bench, name: str) -> None:
    script, _ = CASES[name]
    bare = bench.root.with_name("bare")
    subprocess.run(["cp", "-a", str(bench.root), str(bare)], check=True)
    subprocess.run(["bash", "-ec", script], cwd=bare, check=True)
    before = tree(bench.root)
    done = do(bench, script)
    after = tree(bench.root)
    assert after == tree(bare)
    now, then = times(bench.root), times(bare)
    assert {p: abs(now[p] - then[p]) < 3 for p in then} == dict.fromkeys(then, True)
    assert marks(bench.root) == []
    assert (done.entry is not None and done.entry.commit is not None) == (after != before)
    assert is_settled(bench)
