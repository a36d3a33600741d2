"""Linked worktrees, detached and symbolic HEADs, converted files, odd settings."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.crash.oracle import Cli
from tests.unit.rewrite.scene import Scene, lines


def two_versions(scene: Scene) -> None:
    scene.write("a", lines())
    scene.base()
    scene.write("a", lines("1=target"))
    scene.target()


def test_a_linked_worktree(scene: Scene, tmp_path: Path) -> None:
    two_versions(scene)
    linked = Scene.__new__(Scene)
    linked.root = tmp_path / "linked"
    scene.git("worktree", "add", "-q", "--detach", str(linked.root), "base")
    linked.write("a", lines("20=mine"))
    linked.git("add", "a")
    linked.write("u", "u\n")
    main, main_index = scene.tree(), scene.index()
    outcome = linked.rewrite()
    assert outcome.result == "done"
    assert linked.read("a").decode() == lines("1=target", "20=mine")
    assert linked.short() == {"a": "M ", "u": "??"}
    assert outcome.snapshot is not None and "/linked/" in outcome.snapshot.ref
    assert scene.tree() == main and scene.index() == main_index
    assert linked.git("symbolic-ref", "HEAD") == b"refs/heads/target\n"


def test_a_detached_head_goes_to_a_commit_and_back_to_a_branch(scene: Scene) -> None:
    two_versions(scene)
    commit = scene.git("rev-parse", "target").decode().strip()
    scene.rewrite(target=commit)
    assert scene.head() == commit
    scene.write("a", lines("1=target", "9=mine"))
    scene.rewrite(base="target", target="main")
    assert scene.head() == "ref: refs/heads/main"
    assert scene.read("a").decode() == lines("9=mine")


def test_head_as_the_target_stays_what_it_is(scene: Scene) -> None:
    two_versions(scene)
    scene.git("update-ref", "refs/heads/main", "target")
    scene.rewrite(target="HEAD")
    assert scene.head() == "ref: refs/heads/main"
    assert scene.short() == {}


def test_a_base_that_is_not_head(scene: Scene) -> None:
    """Deltas come from the named base: a difference to HEAD is not user work."""
    two_versions(scene)
    scene.git("checkout", "-q", "-b", "third", "base")
    scene.write("other", "o\n")
    scene.commit("third")
    scene.git("checkout", "-q", "base")
    scene.git("symbolic-ref", "HEAD", "refs/heads/third")
    scene.write("a", lines("20=mine"))
    outcome = scene.rewrite("base", "target")
    assert outcome.result == "done"
    assert scene.read("a").decode() == lines("1=target", "20=mine")
    assert scene.short() == {"a": " M"}


@pytest.mark.parametrize("settings", [{"core.autocrlf": "true"}, {"core.eol": "crlf"}, {}])
def test_line_endings_are_converted_as_git_does(scene: Scene, settings: dict[str, str]) -> None:
    scene.write(".gitattributes", "*.txt text eol=crlf\n*.bin -text\n*.auto text=auto\n")
    for name in ("a.txt", "b.txt", "x.bin", "y.auto"):
        scene.write(name, lines())
    scene.base()
    for name in ("a.txt", "b.txt", "x.bin", "y.auto"):
        scene.write(name, lines("1=target"))
    scene.write("new.txt", "one\ntwo\n")
    scene.target()
    for key, value in settings.items():
        scene.git("config", key, value)
    scene.git("rm", "-q", "--cached", "-r", ".")
    scene.git("reset", "-q", "--hard")
    assert b"\r\n" in scene.read("a.txt")
    scene.write("b.txt", lines("20=mine").replace("\n", "\r\n"))
    outcome = scene.rewrite()
    assert outcome.result == "done"
    assert scene.short() == {"b.txt": " M"}
    assert scene.read("new.txt") == b"one\r\ntwo\r\n"
    assert scene.read("a.txt").decode() == lines("1=target").replace("\n", "\r\n")
    assert scene.read("b.txt").decode() == lines("1=target", "20=mine").replace("\n", "\r\n")
    assert scene.read("x.bin").decode() == lines("1=target")
    assert outcome.snapshot is not None
    ref = outcome.snapshot.ref
    assert scene.in_snapshot(ref, "a.txt").decode() == lines().replace("\n", "\r\n"), "raw bytes"


def test_the_targets_attributes_count(scene: Scene) -> None:
    scene.write("a.txt", "1\n2\n")
    scene.base()
    scene.write(".gitattributes", "*.txt text eol=crlf\n")
    scene.write("a.txt", "1\n2\n3\n")
    scene.target()
    scene.rewrite()
    assert scene.read("a.txt") == b"1\r\n2\r\n3\r\n"
    assert scene.short() == {}


def test_ident_and_encodings_are_git_s_own_work(scene: Scene) -> None:
    scene.write(".gitattributes", "i ident\nu working-tree-encoding=UTF-16LE text\n")
    scene.write("i", "$Id$\n1\n")
    scene.write("u", "1\n".encode("utf-16-le"))
    scene.base()
    scene.write("i", "$Id$\n2\n")
    scene.write("u", "2\n".encode("utf-16-le"))
    scene.target()
    assert scene.rewrite().result == "done"
    assert scene.read("u") == "2\n".encode("utf-16-le")
    assert scene.read("i").startswith(b"$Id: ")
    assert scene.short() == {}


def test_a_file_system_without_executable_bits(scene: Scene) -> None:
    two_versions(scene)
    scene.git("config", "core.fileMode", "false")
    os.chmod(scene.path("a"), 0o755)
    outcome = scene.rewrite()
    assert outcome.snapshot is None
    assert scene.short() == {}
    assert stat.S_IMODE(os.stat(scene.path("a")).st_mode) == 0o755


@pytest.mark.parametrize("version", ["2", "4"])
def test_index_versions(scene: Scene, version: str) -> None:
    two_versions(scene)
    scene.git("update-index", "--index-version", version)
    scene.write("a", lines("20=mine"))
    scene.git("add", "a")
    scene.rewrite()
    assert scene.short() == {"a": "M "}
    assert scene.read("a").decode() == lines("1=target", "20=mine")


def test_a_split_index(scene: Scene) -> None:
    two_versions(scene)
    scene.git("update-index", "--split-index")
    scene.write("u", "u\n")
    scene.rewrite()
    assert scene.short() == {"u": "??"}


def test_names_that_could_be_taken_for_something_else(scene: Scene) -> None:
    names = ["-n", ":(top)x", "*", "a b", "t\tt", "new\nline", '"q"', "%41", "ü"]
    for name in names:
        scene.write(name, lines())
    scene.base()
    for name in names:
        scene.write(name, lines("1=target"))
    scene.target()
    for name in names:
        scene.write(name, lines("20=mine"))
        scene.write(f"dir/{name}", "untracked\n")
    outcome = scene.rewrite()
    assert outcome.result == "done"
    for name in names:
        assert scene.read(name).decode() == lines("1=target", "20=mine")
    assert set(scene.short().values()) == {" M", "??"}


def test_nothing_of_ours_shows_in_git_status(scene: Scene) -> None:
    two_versions(scene)
    scene.write("u", "u\n")
    scene.rewrite()
    assert scene.short() == {"u": "??"}
    own = scene.root / ".manifold"
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert list((own / "journal").iterdir()) == []
    assert not (scene.root / ".git/index.lock").exists()


def test_two_rewrites_in_the_same_instant_have_their_own_refs(scene: Scene) -> None:
    from substrate.system import clock

    two_versions(scene)
    scene.write("u", "first\n")
    clock.set_clock(lambda: 1_700_000_000_000_000_000)
    try:
        scene.rewrite()
        scene.write("u", "second\n")
        scene.rewrite(base="target", target="main")
    finally:
        clock.set_clock(None)
    refs = scene.snapshots()
    assert len(refs) == 2
    assert {scene.in_snapshot(ref, "u") for ref in refs} == {b"first\n", b"second\n"}


@pytest.mark.needs("strace")
def test_where_there_are_no_links(scene: Scene, tmp_path: Path) -> None:
    """Some file systems have none; the index is still locked, and exclusively."""
    scene.write("a", "base\n")
    scene.base()
    scene.write("a", "target\n")
    scene.target()
    scene.write("mine", "untracked\n")
    (tmp_path / "home").mkdir()
    cli = Cli(scene.root, tmp_path / "home")
    none = ["strace", "-f", "-o", os.devnull, "-e", "trace=link,linkat,symlink,symlinkat"]
    none += ["-e", "inject=link,linkat,symlink,symlinkat:error=EPERM"]
    words = ("rewrite", "--base", "base", "--target", "target")
    lock = scene.root / ".git" / "index.lock"
    lock.touch()
    done = cli.spawn([*none, *cli.argv(*words)])
    assert done.returncode != 0 and b"the index is locked" in done.stderr
    assert scene.read("a") == b"base\n"
    lock.unlink()
    done = cli.spawn([*none, *cli.argv(*words)])
    assert done.returncode == 0, done.stderr
    assert scene.read("a") == b"target\n"
    assert scene.short() == {"mine": "??"}
    assert not lock.exists()


def test_a_head_that_is_a_link(scene: Scene) -> None:
    """The old setting core.preferSymlinkRefs: HEAD is still on a branch."""
    scene.write("a", "base\n")
    scene.base()
    scene.write("a", "target\n")
    scene.target()
    head = scene.root / ".git" / "HEAD"
    head.unlink()
    head.symlink_to("refs/heads/main")
    assert scene.rewrite().head == "refs/heads/target"
    assert scene.git("symbolic-ref", "HEAD") == b"refs/heads/target\n"
    assert scene.short() == {}
