"""A copy, reduced to what changed, is what an overlay's upper would have been."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

import pytest

from substrate.errors import RefusedError
from substrate.world.interface import Layer, RunRequest, Wanted
from substrate.world.strategies import copy_world
from substrate.world.strategies.copy_world import CopyWorld
from substrate.world.strategies.layer_strategy import LayeredWorld
from substrate.world.strategies.overlay import OverlayWorld

pytestmark = pytest.mark.needs("linux", "world-overlay", "world-copy-diff")

LINES = (
    "true",
    "echo new > new; mkdir -p a/b/c; echo deep > a/b/c/f",
    "echo more >> kept",
    "rm kept; rm -r dir",
    "rm -r dir; mkdir dir; echo other > dir/inner",
    "rm -r dir; echo file > dir",
    "rm kept; mkdir kept; echo x > kept/f",
    "mv dir moved",
    "mv kept dir/kept",
    "touch kept; chmod 600 dir/inner",
    "chmod 711 dir",
    "echo x > dir/tmp; rm dir/tmp",
    "ln -s nowhere link; rm linked; ln -s kept linked",
    "rm hard2",
    "mkfifo pipe",
    "sed -i s/kept/new/ kept",
    "rm -r dir/deep; mkdir dir/deep",
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / "dir" / "deep").mkdir(parents=True)
    (made / ".substrate-git").mkdir()
    (made / "kept").write_text("kept\n")
    (made / "dir" / "inner").write_text("inner\n")
    (made / "dir" / "deep" / "er").write_text("deep\n")
    (made / "linked").symlink_to("dir/inner")
    (made / "hard1").write_text("hard\n")
    os.link(made / "hard1", made / "hard2")
    return made


class Result(NamedTuple):
    #: The tree that comes out if the layer is laid over the workspace.
    tree: dict[str, object]
    #: The contents of the layer, except directories.
    touched: set[str]


def result_of(kind: type[LayeredWorld], root: Path, line: str) -> Result:
    world = kind(Wanted(root, root / ".substrate-git"), root / ".substrate-git" / "worlds")
    outcome = world.run(RunRequest(root, shell=line))
    assert (outcome.exit, outcome.isolation.strategy) == (0, kind.strategy)
    layer = outcome.layer
    assert layer is not None
    upper = listing(layer.upper, layer)
    upper.pop(".substrate-git", None)
    tree = {n: state for n, state in listing(root, layer).items() if ".substrate-git" not in n}
    for name, state in upper.items():
        hides = state == "gone" or not (isinstance(state, tuple) and state[0] == "dir")
        if hides or state[2]:  # type: ignore[index]
            for old in [old for old in tree if old.startswith(f"{name}/") or old == name]:
                del tree[old]
    tree |= {name: state for name, state in upper.items() if state != "gone"}
    tree = {name: _without_opacity(state) for name, state in tree.items()}
    world.discard(layer)
    touched = {n for n, s in upper.items() if not (isinstance(s, tuple) and s[0] == "dir")}
    return Result(tree, {name for name in touched if upper[name] != "gone"})


def _without_opacity(state: object) -> object:
    return state[:2] if isinstance(state, tuple) and state[0] == "dir" else state


def listing(top: Path, layer: Layer) -> dict[str, object]:
    found: dict[str, object] = {}
    for path in sorted(top.rglob("*")):
        status = path.lstat()
        name = str(path.relative_to(top))
        mode = stat.S_IMODE(status.st_mode)
        if stat.S_ISCHR(status.st_mode):
            found[name] = "gone"
        elif stat.S_ISLNK(status.st_mode):
            found[name] = ("link", os.readlink(path))
        elif stat.S_ISDIR(status.st_mode):
            opaque = (layer.xattr_prefix + b"opaque").decode() in os.listxattr(path)
            found[name] = ("dir", mode, opaque)
        elif stat.S_ISFIFO(status.st_mode):
            found[name] = "fifo"
        else:
            found[name] = ("file", mode, path.read_bytes())
    return found


@pytest.mark.parametrize("line", LINES)
def test_both_say_the_same(root: Path, line: str) -> None:
    copied, overlaid = result_of(CopyWorld, root, line), result_of(OverlayWorld, root, line)
    assert copied.tree == overlaid.tree
    # The copy keeps hard links: what happens to one name touches the other's inode.
    assert copied.touched | {"hard1"} == overlaid.touched | {"hard1"}


def test_a_hard_link_is_written_as_one_file(root: Path) -> None:
    tree = result_of(CopyWorld, root, "echo more >> hard1").tree
    assert tree["hard1"] == tree["hard2"] == ("file", 0o644, b"hard\nmore\n")


@pytest.mark.parametrize("line", ["true", "python3 -c 'import os; os.setxattr({})'"])
def test_a_mark_of_another_tool_hides_nothing(root: Path, line: str) -> None:
    """Rootless containers keep such marks in their stores, and a command can set one."""
    if line == "true":
        os.setxattr(root / "dir", "user.overlay.opaque", b"y")
    line = line.format('"dir", "user.overlay.opaque", b"y"')
    result = result_of(CopyWorld, root, f"{line}; echo more >> dir/inner")
    assert result.tree["dir/deep/er"] == ("file", 0o644, b"deep\n")
    assert result.tree["dir/inner"] == ("file", 0o644, b"inner\nmore\n")


def test_the_copy_looks_like_the_workspace(root: Path) -> None:
    os.chmod(root / "kept", 0o640)
    os.utime(root / "kept", ns=(10**18, 10**18))
    line = (
        "test $(stat -c '%a %Y' kept | tr ' ' -) = 640-1000000000 && test -L linked"
        " && test $(stat -c %h hard1) = 2 && ! test -e .substrate-git"
    )
    assert result_of(CopyWorld, root, line).touched == set()


def test_too_much_is_refused_before_anything_runs(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_world, "MOST_FILES", 3)
    with pytest.raises(RefusedError, match="too large"):
        result_of(CopyWorld, root, "echo ran > ran")
    assert os.listdir(root / ".substrate-git" / "worlds") == []
    assert not (root / "ran").exists()
