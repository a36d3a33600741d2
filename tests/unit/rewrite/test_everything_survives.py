"""A working copy with every kind of work in it moves, and everything is there afterwards."""

from __future__ import annotations

import os
import shutil

import pytest

from substrate.model.paths import RelPath
from substrate.objects.store.object_store import ObjectStore
from substrate.rewrite.execute.working_copy import open_working_copy
from substrate.rewrite.snapshots.list_snapshots import all_kept
from substrate.rewrite.snapshots.restore_snapshot import RestoreChoice, bring_back
from tests.unit.rewrite.scene import Scene, lines

NAME = b"caf\xe9"  # not UTF-8


def full_of_work(scene: Scene) -> None:
    """Staged and unstaged on one file, untracked, ignored, a byte name, an executable bit, a link,
    empty directories, an intended file; the target changes other lines of the same files."""
    for name in (b"mm", b"staged", b"unstaged", b"run.sh", b"clean", b"going", NAME):
        scene.write(name, lines())
    scene.write(".gitignore", "*.log\nbuild/\n")
    scene.link("link", "clean")
    scene.write("deep/down/file", lines())
    scene.base()
    for name in (b"mm", b"staged", b"unstaged", b"run.sh", b"clean", NAME, b"deep/down/file"):
        scene.write(name, lines("1=target"))
    scene.remove("going")
    scene.write("coming/soon", "new in the target\n")
    scene.target()

    scene.write("mm", lines("10=staged"))
    scene.write("staged", lines("10=staged"))
    scene.git("add", "mm", "staged")
    scene.write("mm", lines("10=staged", "20=unstaged"))
    scene.write("unstaged", lines("20=unstaged"))
    scene.write(NAME, lines("20=unstaged"))
    os.chmod(scene.path("run.sh"), 0o755)
    scene.link("link", "mm")
    scene.write("untracked", b"\0binary\xff")
    scene.write(b"untr\xff", "also untracked\n")
    scene.write("secret", "private\n", mode=0o600)
    scene.write("x.log", "ignored\n")
    scene.write("build/out", "ignored too\n")
    scene.write("intended", "soon\n")
    scene.git("add", "-N", "intended")
    os.makedirs(scene.path("empty/inside"))
    os.makedirs(scene.path("deep/empty"))


def status_codes(status: bytes) -> list[bytes]:
    """Everything `git status` says but the object ids, which the merged files have new."""
    out = []
    for record in status.split(b"\0"):
        fields = record.split(b" ")
        out.append(b" ".join(fields[:6] + fields[8:]) if fields[0] == b"1" else record)
    return out


@pytest.mark.needs("byte-names")
def test_dirty_default_with_staged_unstaged_untracked_survives_rewrite(scene: Scene) -> None:
    """The seed's first required test."""
    full_of_work(scene)
    before, tree, refs = scene.status(), scene.tree(), scene.refs()
    outcome = scene.rewrite()
    assert outcome.result == "done"
    assert status_codes(scene.status()) == status_codes(before)
    assert scene.refs() == refs, "no branch ever moves"
    assert scene.head() == "ref: refs/heads/target"
    assert scene.staged("mm").decode() == lines("1=target", "10=staged")
    assert scene.read("mm").decode() == lines("1=target", "10=staged", "20=unstaged")
    assert scene.read("staged").decode() == lines("1=target", "10=staged")
    assert scene.read(NAME).decode() == lines("1=target", "20=unstaged")
    assert scene.read("clean").decode() == lines("1=target")
    after = scene.tree()
    assert after[b"run.sh"] == ("file", 0o755, lines("1=target").encode())
    touched = {b"mm", b"staged", b"unstaged", b"run.sh", b"clean", NAME, b"deep/down/file"}
    touched |= {b"going", b"coming", b"coming/soon"}
    assert {p: v for p, v in after.items() if p not in touched} == {
        p: v for p, v in tree.items() if p not in touched
    }


@pytest.mark.needs("byte-names")
def test_the_snapshot_is_the_working_copy_byte_for_byte(scene: Scene) -> None:
    full_of_work(scene)
    before = scene.tree()
    outcome = scene.rewrite()
    assert outcome.snapshot is not None
    ref = outcome.snapshot.ref
    assert scene.snapshots() == [ref]
    listed = scene.git("ls-tree", "-r", "-z", "--name-only", ref).split(b"\0")[:-1]
    ignored = {b"x.log", b"build/out"}
    files = {p for p, (kind, _, _) in before.items() if kind != "directory"} - ignored
    assert set(listed) == files
    for path in files:
        assert scene.in_snapshot(ref, path) == before[path][2], path
    # The staged state, too: it differs from the file.
    assert scene.git("show", f"{ref}^2:index/mm").decode() == lines("10=staged")
    assert b"bad" not in scene.git("fsck", "--strict")


@pytest.mark.needs("byte-names")
def test_a_failing_replay_in_strict_leaves_index_and_tree_byte_equal(scene: Scene) -> None:
    full_of_work(scene)
    scene.write("clean", lines("1=mine"))
    scene.git("status")  # let git note the stat of its files first
    before, index, status = scene.tree(), scene.index(), scene.status()
    outcome = scene.rewrite(policy="strict")
    assert outcome.result == "conflict" and not outcome.changed
    assert set(outcome.conflicts) == {b"clean"}
    assert scene.index() == index
    assert scene.tree() == before
    assert scene.status() == status
    assert scene.head() == "ref: refs/heads/main"
    assert outcome.snapshot is not None and outcome.artifacts is not None


def test_artifacts_are_what_the_seed_lists(scene: Scene, tmp_path_factory: object) -> None:
    import json

    scene.write("a", lines())
    scene.base()
    scene.write("b", "b\n")
    scene.target()
    scene.write("a", lines("3=staged"))
    scene.git("add", "a")
    scene.write("a", lines("3=staged", "9=unstaged"))
    scene.write("bin", b"\0\1\2")
    scene.git("add", "bin")
    scene.write("untracked", "u\n")
    outcome = scene.rewrite()
    place = outcome.artifacts
    assert place is not None and outcome.snapshot is not None
    assert {p.name for p in place.iterdir()} == {
        "meta.json", "index.patch", "worktree.patch", "untracked.json",
    }  # fmt: skip
    meta = json.loads((place / "meta.json").read_text())
    assert meta["snapshot_ref"] == outcome.snapshot.ref
    assert meta["snapshot_oid"] == outcome.snapshot.commit.hex()
    assert meta["target_ref"] == "target" and meta["workspace"] == "default"
    assert meta["operation_id"] and meta["base_epoch"] and meta["recovery_commands"]
    assert json.loads((place / "untracked.json").read_text()) == {"untracked": ["untracked"]}
    # The patches bring the work back onto a fresh checkout of the base.
    other = scene.root.parent / "fresh"
    scene.git("worktree", "add", "-q", "--detach", str(other), "base")
    fresh = Scene.__new__(Scene)
    fresh.root = other
    fresh.git("apply", "--index", str(place / "index.patch"))
    fresh.git("apply", str(place / "worktree.patch"))
    assert fresh.staged("a").decode() == lines("3=staged")
    assert fresh.read("a").decode() == lines("3=staged", "9=unstaged")
    assert fresh.read("bin") == b"\0\1\2"


def test_no_user_work_fast_path_materializes_target_cleanly(scene: Scene) -> None:
    """The seed's third required test."""
    scene.write("a", "old\n")
    scene.write("dir/only", "x\n")
    scene.base()
    scene.write("a", "new\n")
    scene.remove("dir/only")
    scene.write("added", "y\n", mode=0o755)
    scene.target()
    os.utime(scene.path("a"))  # touched, not changed: no work
    outcome = scene.rewrite()
    assert outcome.snapshot is None and outcome.artifacts is None
    assert scene.snapshots() == []
    assert scene.short() == {}
    assert scene.tree().keys() == {b"a", b"added"}
    assert scene.read("a") == b"new\n"
    assert outcome.recover_with.startswith("substrate rewrite --base ")


def test_a_branch_that_moved_while_the_files_did_not(scene: Scene) -> None:
    """The seed's section 1: HEAD resolves to the new commit, the files are the old one's."""
    scene.write("a", lines())
    scene.base()
    scene.write("a", lines("1=target"))
    scene.target()
    scene.write("a", lines("20=mine"))
    scene.write("new", "untracked\n")
    scene.git("update-ref", "refs/heads/main", "target")
    assert scene.short()["a"] == "MM", "plain git takes the old commit's files for user work"
    outcome = scene.rewrite("base", "main")
    assert outcome.result == "done" and outcome.was_at_target
    assert scene.read("a").decode() == lines("1=target", "20=mine")
    assert scene.short() == {"a": " M", "new": "??"}
    assert scene.head() == "ref: refs/heads/main"


def test_untracked_files_can_be_left_in_the_snapshot(scene: Scene) -> None:
    scene.write("a", "a\n")
    scene.base()
    scene.write("a", "b\n")
    scene.target()
    scene.write("loose/u", "mine\n")
    scene.write("top", "mine too\n", mode=0o640)
    outcome = scene.rewrite(defer_untracked=True)
    assert outcome.snapshot is not None
    assert scene.tree().keys() == {b"a"}
    assert scene.in_snapshot(outcome.snapshot.ref, "loose/u") == b"mine\n"
    assert set(outcome.deferred) == {b"loose/u", b"top"}
    assert outcome.snapshot.name in outcome.recover_with


def test_a_dry_run_changes_nothing_and_prints_the_plan(scene: Scene) -> None:
    scene.write("a", "a\n")
    scene.base()
    scene.write("a", "b\n")
    scene.write("c", "c\n")
    scene.target()
    scene.write("mine", "m\n")
    before, index = scene.tree(), scene.index()
    outcome = scene.rewrite(dry_run=True)
    assert outcome.plan.describe() == ["restore a", "restore c"]
    assert scene.tree() == before and scene.index() == index and scene.snapshots() == []


def test_a_directory_where_a_file_was_tracked_is_in_the_snapshot(scene: Scene) -> None:
    """Git calls nothing in it untracked when asked for directories."""
    scene.write("a", "1\n")
    scene.write("b", "1\n")
    scene.base()
    scene.write("b", "2\n")
    scene.target()
    scene.remove("a")
    scene.write("a/deep/x", "precious\n")
    os.makedirs(scene.path("a/empty"))
    before = scene.tree()
    outcome = scene.rewrite()
    assert outcome.snapshot is not None
    assert scene.in_snapshot(outcome.snapshot.ref, "a/deep/x") == b"precious\n"
    assert {p: s for p, s in scene.tree().items() if p != b"b"} == {
        p: s for p, s in before.items() if p != b"b"
    }
    shutil.rmtree(scene.path("a"))
    copy = open_working_copy(scene.root)
    [kept] = all_kept(copy, ObjectStore(copy.common_dir))
    bring_back(copy, kept, RestoreChoice((RelPath(b"a"),)))
    assert scene.tree()[b"a/empty"][0] == "directory"
    assert scene.read("a/deep/x") == b"precious\n"
