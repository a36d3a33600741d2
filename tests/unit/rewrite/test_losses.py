"""What other tools lose when they move a working copy, each as a test: see docs/rewrite.md."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.rewrite.interference import (
    AFTER_CAPTURE,
    BEFORE_INDEX,
    DURING_SURVEY,
    acted,
    interfere,
)
from tests.unit.rewrite.scene import Scene, lines


def with_work(scene: Scene) -> None:
    scene.write("a", lines())
    scene.write("b", lines())
    scene.base()
    scene.write("a", lines("1=target"))
    scene.write("b", lines("1=target"))
    scene.write("late", "the target's\n")
    scene.target()
    scene.write("a", lines("10=mine"))


def test_staged_content_that_differs_from_the_work_tree_is_kept(scene: Scene) -> None:
    with_work(scene)
    scene.git("add", "a")
    scene.write("a", lines("10=otherwise"))
    outcome = scene.rewrite()
    assert scene.staged("a").decode() == lines("1=target", "10=mine")
    assert scene.read("a").decode() == lines("1=target", "10=otherwise")
    assert outcome.snapshot is not None
    ref = outcome.snapshot.ref
    assert scene.git("show", f"{ref}^2:index/a").decode() == lines("10=mine")
    assert scene.git("show", f"{ref}:a").decode() == lines("10=otherwise")


@pytest.mark.needs("byte-names")
def test_names_that_are_not_utf8_are_kept(scene: Scene) -> None:
    with_work(scene)
    scene.write(b"untracked-\xff\xfe", "mine\n")
    scene.write(b"d\xe9/staged-\xe9", "staged\n")
    scene.git("add", b"d\xe9")
    outcome = scene.rewrite()
    assert outcome.snapshot is not None
    for name in (b"untracked-\xff\xfe", b"d\xe9/staged-\xe9"):
        assert scene.exists(name)
        assert scene.in_snapshot(outcome.snapshot.ref, name) == scene.read(name)


def test_a_file_created_after_the_capture_is_left_alone_and_reported(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice: once beside the target's files, once where the target wants to write."""
    with_work(scene)
    script = f"echo late > {scene.root}/elsewhere; echo mine > {scene.root}/late"
    interfere(monkeypatch, tmp_path / "bin", AFTER_CAPTURE, script)
    outcome = scene.rewrite()
    assert acted(tmp_path / "bin")
    assert scene.read("elsewhere") == b"late\n"
    assert scene.read("late") == b"mine\n"
    assert set(outcome.conflicts) == {b"late"}
    assert scene.read("a").decode() == lines("1=target", "10=mine")


def test_a_file_changed_after_the_capture_is_left_alone(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_work(scene)
    interfere(
        monkeypatch, tmp_path / "bin", AFTER_CAPTURE, f"echo edited >> {scene.root}/b"
    )  # fmt: skip
    outcome = scene.rewrite()
    assert acted(tmp_path / "bin")
    assert outcome.result == "done", "seen in time: planned again"
    assert scene.read("b").decode() == lines("1=target") + "edited\n"


def test_a_file_saved_while_git_looks_is_not_lost(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_work(scene)
    interfere(monkeypatch, tmp_path / "bin", DURING_SURVEY, f"echo edited >> {scene.root}/b")
    scene.rewrite()
    assert acted(tmp_path / "bin")
    assert scene.read("b").decode() == lines("1=target") + "edited\n"
    assert scene.short()["b"] == " M"


def test_an_edit_after_the_files_were_written_is_just_an_edit(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_work(scene)
    interfere(monkeypatch, tmp_path / "bin", BEFORE_INDEX, f"echo edited >> {scene.root}/b")
    scene.rewrite()
    assert acted(tmp_path / "bin")
    assert scene.read("b").decode() == lines("1=target") + "edited\n"
    assert scene.short()["b"] == " M"


@pytest.mark.needs("symlinks")
def test_replay_never_writes_through_a_link(scene: Scene, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "f").write_text("1.6 MB of work\n")
    (precious / "file").write_text("more work\n")
    scene.write("d/f", lines())
    scene.write("f", lines())
    scene.base()
    scene.write("d/f", lines("1=target"))
    scene.write("d/g", "new\n")
    scene.write("f", lines("1=target"))
    scene.target()
    scene.remove("d/f")
    os.rmdir(scene.path("d"))
    scene.link("d", str(precious))
    scene.link("f", str(precious / "file"))
    outcome = scene.rewrite()
    assert (precious / "f").read_text() == "1.6 MB of work\n"
    assert (precious / "file").read_text() == "more work\n"
    assert not (precious / "g").exists()
    assert os.path.islink(scene.path("d")) and os.path.islink(scene.path("f"))
    assert {b"d/f", b"d/g", b"f"} == set(outcome.conflicts)


def test_an_uncommitted_ignore_rule_protects_its_files(scene: Scene) -> None:
    """A `reset --hard`, then `clean -fd`, deletes these."""
    with_work(scene)
    scene.write(".gitignore", "cache/\n")
    scene.write("cache/big", "hours of work\n")
    scene.rewrite()
    assert scene.read("cache/big") == b"hours of work\n"
    assert scene.read(".gitignore") == b"cache/\n"


def test_a_repository_inside_is_left_alone(scene: Scene) -> None:
    with_work(scene)
    inner = Scene(scene.root / "inner")
    inner.write("x", "x\n")
    inner.commit("inner")
    inner.write("x", "dirty\n")
    scene.rewrite()
    assert inner.read("x") == b"dirty\n" and inner.short() == {"x": " M"}
