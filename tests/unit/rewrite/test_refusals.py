"""What a rewrite refuses, each time before anything is changed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from substrate.errors import LockedError, NotFoundError, RefusedError, SubstrateError, UsageError
from substrate.objects.git import worktree_git
from substrate.rewrite.execute.working_copy import open_working_copy
from tests.unit.rewrite.scene import Scene


def simple(scene: Scene) -> None:
    scene.write("a", "1\n")
    scene.write("b", "1\n")
    scene.base()
    scene.write("a", "2\n")
    scene.target()
    scene.write("mine", "mine\n")


def refused(
    scene: Scene,
    error: type[SubstrateError] = RefusedError,
    *,
    base: str = "base",
    target: str = "target",
) -> SubstrateError:
    before, index = scene.tree(), scene.index()
    with pytest.raises(error) as caught:
        scene.rewrite(base, target)
    assert scene.tree() == before and scene.index() == index
    assert scene.snapshots() == []
    assert caught.value.hint
    return caught.value


def merging(scene: Scene) -> None:
    scene.git("checkout", "-q", "-b", "side", "base")
    scene.write("a", "side\n")
    scene.git("commit", "-qam", "side")
    scene.git("merge", "-q", "target", check=False)


def rebasing(scene: Scene) -> None:
    scene.git("checkout", "-q", "-b", "side", "base")
    scene.write("a", "side\n")
    scene.git("commit", "-qam", "side")
    scene.git("rebase", "-q", "target", check=False)


def picking(scene: Scene) -> None:
    scene.write("a", "side\n")
    scene.git("commit", "-qam", "side")
    scene.git("cherry-pick", "target", check=False)


def reverting(scene: Scene) -> None:
    scene.write("a", "side\n")
    scene.git("commit", "-qam", "side")
    scene.write("a", "more\n")
    scene.git("commit", "-qam", "more")
    scene.git("revert", "--no-edit", "HEAD~1", check=False)


def applying(scene: Scene) -> None:
    patch = scene.git("format-patch", "-1", "--stdout", "target")
    scene.write("a", "side\n")
    scene.git("commit", "-qam", "side")
    scene.git("am", "-q", stdin=patch, check=False)


@pytest.mark.parametrize("start", [merging, rebasing, picking, reverting, applying])
def test_something_is_in_progress(scene: Scene, start: Callable[[Scene], None]) -> None:
    simple(scene)
    start(scene)
    assert "in progress" in refused(scene).message


def test_a_sparse_checkout(scene: Scene) -> None:
    simple(scene)
    scene.write("d/x", "x\n")
    scene.commit("more")
    scene.git("sparse-checkout", "set", "d")
    assert "sparse" in refused(scene).message


def test_an_entry_marked_skip_worktree(scene: Scene) -> None:
    simple(scene)
    scene.git("update-index", "--skip-worktree", "b")
    assert "b is marked skip-worktree" in refused(scene).message


def test_a_file_assumed_unchanged_is_looked_at_even_so(scene: Scene) -> None:
    simple(scene)
    scene.git("update-index", "--assume-unchanged", "a")
    scene.write("a", "mine, unseen by git\n")
    outcome = scene.rewrite()
    assert set(outcome.conflicts) == {b"a"}
    assert outcome.snapshot is not None
    assert scene.in_snapshot(outcome.snapshot.ref, "a") == b"mine, unseen by git\n"


def test_a_submodule_that_the_target_moves(scene: Scene, tmp_path: Path) -> None:
    other = Scene(tmp_path / "other")
    other.write("x", "1\n")
    first = other.commit("one")
    second = other.commit("two")
    scene.write("a", "1\n")
    scene.git("update-index", "--add", "--cacheinfo", f"160000,{first},sub")
    scene.git("commit", "-qm", "base")
    scene.git("tag", "base")
    scene.git("update-index", "--cacheinfo", f"160000,{second},sub")
    scene.git("commit", "-qm", "target")
    scene.git("branch", "target")
    scene.git("update-index", "--cacheinfo", f"160000,{first},sub")
    scene.git("symbolic-ref", "HEAD", "refs/heads/main")
    assert "submodule sub" in refused(scene).message


def test_a_submodule_that_stays_is_left_alone(scene: Scene, tmp_path: Path) -> None:
    other = Scene(tmp_path / "other")
    other.write("x", "1\n")
    other.commit("one")
    scene.write("a", "1\n")
    scene.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other.root), "sub")
    scene.base()
    scene.write("a", "2\n")
    scene.target()
    scene.write("sub/x", "dirty inside\n")
    scene.write("mine", "m\n")
    outcome = scene.rewrite()
    assert outcome.result == "done"
    assert scene.read("sub/x") == b"dirty inside\n" and scene.read("a") == b"2\n"


def test_a_file_that_only_a_filter_can_write(scene: Scene) -> None:
    simple(scene)
    proof = scene.root.parent / "ran"
    scene.write(".gitattributes", "a filter=planted\n")
    for step in ("clean", "smudge"):
        scene.git("config", f"filter.planted.{step}", f"touch {proof}; cat")
    assert "filter 'planted'" in refused(scene).message
    assert not proof.exists()


def test_filters_on_files_that_stay_never_run(scene: Scene) -> None:
    simple(scene)
    proof = scene.root.parent / "ran"
    scene.write(".gitattributes", "b filter=planted\n")
    scene.git("config", "filter.planted.clean", f"touch {proof}; cat")
    scene.git("config", "filter.planted.process", f"touch {proof}")
    scene.git("config", "filter.planted.required", "true")
    scene.write("b", "dirty\n")
    assert scene.rewrite().result == "done"
    assert scene.read("b") == b"dirty\n"
    assert not proof.exists()


def test_hooks_and_monitors_never_run(scene: Scene) -> None:
    simple(scene)
    proof = scene.root.parent / "ran"
    for hook in ("post-checkout", "post-index-change", "reference-transaction"):
        file = scene.root / ".git/hooks" / hook
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\ntouch {proof}\n")
        file.chmod(0o755)
    scene.git("config", "core.fsmonitor", str(scene.root / ".git/hooks/post-checkout"))
    assert scene.rewrite().result == "done"
    assert not proof.exists()


def test_a_repository_without_a_commit(scene: Scene) -> None:
    scene.write("a", "1\n")
    with pytest.raises((RefusedError, NotFoundError)):
        scene.rewrite(base="HEAD", target="HEAD")


def test_a_bare_repository_and_no_repository(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "b.git")], check=True)
    with pytest.raises(NotFoundError, match="bare repository"):
        open_working_copy(tmp_path / "b.git")
    with pytest.raises(NotFoundError, match="no git repository"):
        open_working_copy(tmp_path)


@pytest.mark.parametrize("text", ["--output=x", "-n", "nosuch", "base^{tree}:x", "HEAD~9"])
def test_revisions_cannot_be_options(scene: Scene, text: str) -> None:
    simple(scene)
    refused(scene, NotFoundError, base=text)
    refused(scene, NotFoundError, target=text)
    assert not (scene.root / "x").exists()


@pytest.mark.parametrize("text", ["", "a\nb"])
def test_revisions_that_are_none(scene: Scene, text: str) -> None:
    simple(scene)
    refused(scene, UsageError, base=text)


@pytest.mark.parametrize("name", ["a/b", "-x", "a..b", "x.lock", "a b"])
def test_names_that_cannot_be_part_of_a_ref(scene: Scene, name: str) -> None:
    with pytest.raises(UsageError):
        open_working_copy(scene.root, name)


def test_another_git_at_work(scene: Scene) -> None:
    simple(scene)
    lock = scene.root / ".git/index.lock"
    lock.write_bytes(b"")
    refused(scene, LockedError)
    assert lock.exists()


def test_a_target_inside_our_own_directory(scene: Scene) -> None:
    scene.write("a", "1\n")
    scene.base()
    scene.write(".manifold/x", "planted\n")
    scene.git("add", "-f", ".manifold/x")
    scene.git("commit", "-qm", "target")
    scene.git("branch", "target")
    scene.git("checkout", "-q", "-B", "main", "base")
    assert "Substrate's own place" in refused(scene).message


def test_a_branch_that_another_working_copy_has(scene: Scene, tmp_path: Path) -> None:
    simple(scene)
    scene.git("worktree", "add", "-q", str(tmp_path / "linked"), "target")
    assert "checked out in another working copy" in refused(scene).message
    assert scene.rewrite(target="target~0").result == "done"
    assert scene.head() == scene.git("rev-parse", "target").decode().strip()


@pytest.mark.needs("symlinks")
def test_our_directory_must_not_be_a_link(scene: Scene, tmp_path: Path) -> None:
    simple(scene)
    os.symlink(tmp_path, scene.path(".manifold"))
    with pytest.raises(RefusedError, match="in the way"):
        scene.rewrite()


def test_refs_in_a_reftable(scene: Scene) -> None:
    simple(scene)
    # A git that knows no reftable does not mind the setting in a repository of version 0.
    scene.git("config", "extensions.refStorage", "reftable")
    assert "reftable" in refused(scene).message


@pytest.mark.needs("linux")
def test_settings_that_never_end(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """An included FIFO would be waited for, for ever."""
    simple(scene)
    monkeypatch.setattr(worktree_git, "CONFIG_TIMEOUT_S", 0.3)
    os.mkfifo(scene.root / ".git" / "more")
    with (scene.root / ".git" / "config").open("a") as config:
        config.write("[include]\n\tpath = more\n")
    with pytest.raises(SubstrateError, match="did not finish"):
        scene.rewrite()
