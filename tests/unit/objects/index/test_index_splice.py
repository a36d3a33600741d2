"""The index that is changed in place is the one that git would have made."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from substrate.errors import RefusedError
from substrate.model.nodes import Kind, Node
from substrate.model.paths import RelPath
from substrate.objects.index import index_splice
from substrate.objects.index.index_splice import Change
from tests.unit.rewrite.scene import Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "project")


def forest(scene: Scene, seed: int) -> list[str]:
    """Files in directories whose names are prefixes of each other, some nested deep."""
    chooser = random.Random(seed)
    names = {"a", "a.b", "a-b", "b/a", "b/ac", "x" * 250}
    for _ in range(60):
        depth = chooser.randrange(5)
        parts = [chooser.choice(("d", "dd", "d.d", "e")) for _ in range(depth)]
        names.add("/".join([*parts, f"f{chooser.randrange(9)}"]))
    for name in names:
        scene.write(name, f"{name}\n")
    return sorted(names)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("primed", [True, False])
def test_git_agrees(scene: Scene, seed: int, primed: bool) -> None:
    names = forest(scene, seed)
    scene.base()
    changed = random.Random(seed).sample(names, 7)
    for name in changed:
        scene.write(name, f"{name}\nchanged\n", mode=random.Random(name).choice((0o644, 0o755)))
    scene.target()
    scene.git("read-tree", "base") if primed else scene.git("rm", "-q", "--cached", names[0])
    if not primed:
        scene.git("add", names[0])
    scene.git("update-index", "-q", "--refresh")
    data = scene.index()
    changes = {}
    for name in changed:
        old, new = (_node(scene, rev, name) for rev in ("base", "target"))
        changes[RelPath(os.fsencode(name))] = Change(old, new, None)
    out = index_splice.splice(data, changes)
    assert out is not None
    (scene.root / ".git" / "index").write_bytes(out)
    tree = scene.git("rev-parse", "target^{tree}")
    assert scene.git("write-tree") == tree, "the cached trees must not lie"
    assert scene.git("diff-index", "--cached", "target") == b""
    assert b"error" not in scene.git("fsck")


def _node(scene: Scene, rev: str, name: str) -> Node:
    mode, _, oid = scene.git("ls-tree", rev, "--", name).split(b"\t")[0].split(b" ")
    return Node(Kind.FILE, int(mode, 8) & 0o777, bytes.fromhex(oid.decode()))


def test_after_a_rewrite_status_needs_no_second_look(scene: Scene, tmp_path: Path) -> None:
    names = forest(scene, 9)
    scene.base()
    for name in names[::5]:
        scene.write(name, "other\n")
    scene.target()
    scene.git("status")
    outcome = scene.rewrite()
    assert outcome.result == "done"
    assert scene.git("diff-files", "--raw") == b"", "every stat is noted"
    assert scene.git("write-tree") == scene.git("rev-parse", "target^{tree}")
    assert scene.short() == {}


def test_what_is_unusual_is_left_to_git(scene: Scene) -> None:
    scene.write("a", "a\n")
    scene.write("b", "b\n")
    scene.base()
    node = _node(scene, "base", "a")
    other = node._replace(oid=b"\1" * 20)
    path = RelPath(b"a")
    data = scene.index()
    assert index_splice.splice(data, {path: Change(node, other, None)}) is not None
    assert index_splice.splice(data, {path: Change(other, node, None)}) is None, "not that entry"
    assert index_splice.splice(data[:-1] + b"\0", {path: Change(node, other, None)}) is None
    for flag in ("--assume-unchanged", "--skip-worktree"):
        scene.git("update-index", flag, "a")
        assert index_splice.splice(scene.index(), {path: Change(node, other, None)}) is None
        scene.git("update-index", flag.replace("--", "--no-"), "a")
    scene.git("update-index", "--split-index")
    assert index_splice.splice(scene.index(), {path: Change(node, other, None)}) is None


def test_a_glance_sees_what_git_noted(scene: Scene) -> None:
    scene.write("a/b/c", "a\n")
    scene.write("d", "TREE\n")
    scene.base()
    tree = bytes.fromhex(scene.git("rev-parse", "HEAD^{tree}").decode().strip())
    seen = index_splice.glance(scene.index())
    assert seen == (True, False, tree)
    scene.write("d", "staged\n")
    scene.git("add", "d")
    assert index_splice.glance(scene.index()).tree == b""
    scene.git("write-tree")
    staged = index_splice.glance(scene.index()).tree
    assert staged not in (b"", tree), "git notes the new tree, and that is what is seen"
    scene.write("new", "n\n")
    scene.git("add", "--intent-to-add", "new")
    assert index_splice.glance(scene.index()) == (False, False, b""), "entries of another kind"
    scene.write("x/.gitattributes", "")
    scene.git("add", "x")
    assert index_splice.glance(scene.index()).attributes


def test_a_split_index_hides_nothing(scene: Scene) -> None:
    """Its main file looks plain, and the entries that matter are in another."""
    scene.write("a", "a\n")
    scene.write(".gitattributes", "* text eol=crlf\n")
    scene.base()
    scene.write("a", "b\n")
    scene.target()
    scene.git("update-index", "--split-index")
    scene.write("later", "l\n")
    scene.git("add", "later")
    assert scene.rewrite().conflicts == {}
    assert scene.read("a") == b"b\r\n", "the attributes were seen"
    assert scene.short() == {"later": "A "}
    scene.git("update-index", "--skip-worktree", "a")
    scene.git("update-index", "--split-index")
    scene.write("last", "l\n")
    scene.git("add", "last")
    with pytest.raises(RefusedError, match="skip-worktree"):
        scene.rewrite("target", "base")
