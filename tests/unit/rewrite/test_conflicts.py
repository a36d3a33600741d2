"""Where the user's work and the target collide: explicit, complete, never at the user's cost."""

from __future__ import annotations

import os

import pytest

from tests.unit.rewrite.scene import Scene, lines


def both_change(scene: Scene, name: str, base: bytes, target: bytes, mine: bytes) -> None:
    scene.write("other", "same\n")
    scene.write(name, base)
    scene.base()
    scene.write(name, target)
    scene.target()
    scene.write(name, mine)


def test_text_gets_marks_and_three_stages(scene: Scene) -> None:
    both_change(scene, "a", b"1\n2\n3\n", b"1\nT\n3\n", b"1\nU\n3\n")
    outcome = scene.rewrite()
    assert outcome.result == "conflict" and outcome.changed
    assert scene.stages("a") == {1: b"1\n2\n3\n", 2: b"1\nT\n3\n", 3: b"1\nU\n3\n"}
    assert scene.short() == {"a": "UU"}
    assert scene.read("a") == (b"1\n<<<<<<< target\nT\n=======\nU\n>>>>>>> your work\n3\n")
    assert outcome.snapshot is not None
    assert scene.in_snapshot(outcome.snapshot.ref, "a") == b"1\nU\n3\n"


def test_staged_text_collides_in_the_index_and_unstaged_work_stays(scene: Scene) -> None:
    scene.write("a", lines())
    scene.base()
    scene.write("a", lines("1=target"))
    scene.target()
    scene.write("a", lines("1=staged"))
    scene.git("add", "a")
    scene.write("a", lines("1=staged", "20=unstaged"))
    outcome = scene.rewrite()
    assert set(outcome.conflicts) == {b"a"}
    assert scene.stages("a") == {
        1: lines().encode(), 2: lines("1=target").encode(), 3: lines("1=staged").encode(),
    }  # fmt: skip
    text = scene.read("a").decode()
    assert "staged\n" in text and "target\n" in text and text.endswith("20=unstaged\n"[3:])


def test_binary_keeps_the_users_bytes(scene: Scene) -> None:
    both_change(scene, "b", b"\0base", b"\0target", b"\0mine")
    outcome = scene.rewrite()
    assert set(outcome.conflicts) == {b"b"}
    assert scene.read("b") == b"\0mine"
    assert scene.stages("b") == {1: b"\0base", 2: b"\0target", 3: b"\0mine"}


def test_a_link_keeps_its_kind(scene: Scene) -> None:
    scene.link("l", "base")
    scene.base()
    scene.link("l", "target")
    scene.target()
    scene.link("l", "mine")
    scene.rewrite()
    assert os.readlink(scene.path("l")) == b"mine"
    assert scene.stages("l") == {1: b"base", 2: b"target", 3: b"mine"}


def test_a_link_that_became_a_file_here(scene: Scene) -> None:
    scene.link("l", "base")
    scene.base()
    scene.link("l", "target")
    scene.target()
    scene.remove("l")
    scene.write("l", "a file now\n")
    outcome = scene.rewrite()
    assert set(outcome.conflicts) == {b"l"}
    assert scene.read("l") == b"a file now\n" and not os.path.islink(scene.path("l"))


@pytest.mark.parametrize("staged", [False, True])
def test_removed_here_changed_there(scene: Scene, staged: bool) -> None:
    scene.write("a", "1\n")
    scene.write("b", "b\n")
    scene.base()
    scene.write("a", "2\n")
    scene.target()
    scene.git("rm", "-q", "a") if staged else scene.remove("a")
    outcome = scene.rewrite()
    assert set(outcome.conflicts) == {b"a"}
    assert not scene.exists("a")
    assert scene.stages("a") == {1: b"1\n", 2: b"2\n"}


@pytest.mark.parametrize("staged", [False, True])
def test_changed_here_removed_there(scene: Scene, staged: bool) -> None:
    scene.write("a", "1\n")
    scene.write("b", "b\n")
    scene.base()
    scene.remove("a")
    scene.target()
    scene.write("a", "mine\n")
    if staged:
        scene.git("add", "a")
    outcome = scene.rewrite()
    assert set(outcome.conflicts) == {b"a"}
    assert scene.read("a") == b"mine\n"
    assert scene.stages("a") == {1: b"1\n", 3: b"mine\n"}


@pytest.mark.parametrize("staged", [False, True])
def test_added_on_both_sides(scene: Scene, staged: bool) -> None:
    scene.write("b", "b\n")
    scene.base()
    scene.write("a", "theirs\n")
    scene.target()
    scene.write("a", "mine\n")
    if staged:
        scene.git("add", "a")
    outcome = scene.rewrite()
    assert set(outcome.conflicts) == {b"a"}
    assert scene.stages("a") == {2: b"theirs\n", 3: b"mine\n"}
    assert b"mine\n" in scene.read("a")
    if not staged:
        assert scene.read("a") == b"mine\n", "an untracked file is not marked up"


def test_an_untracked_file_that_is_the_targets_becomes_clean(scene: Scene) -> None:
    scene.write("b", "b\n")
    scene.base()
    scene.write("a", "same\n")
    scene.target()
    scene.write("a", "same\n", mode=0o600)
    outcome = scene.rewrite()
    assert outcome.result == "done"
    assert scene.short() == {}
    assert scene.tree()[b"a"] == ("file", 0o600, b"same\n")


def test_an_intended_file_that_the_target_also_has(scene: Scene) -> None:
    scene.write("b", "b\n")
    scene.base()
    scene.write("a", "theirs\n")
    scene.target()
    scene.write("a", "mine\n")
    scene.git("add", "-N", "a")
    outcome = scene.rewrite()
    assert set(outcome.conflicts) == {b"a"}
    assert scene.read("a") == b"mine\n"
    assert scene.stages("a") == {2: b"theirs\n", 3: b"mine\n"}


def test_an_ignored_file_that_the_target_tracks_gives_way_and_is_kept(scene: Scene) -> None:
    scene.write(".gitignore", "*.log\n")
    scene.base()
    scene.write("x.log", "the target's\n")
    scene.git("add", "-f", "x.log")
    scene.target()
    scene.write("x.log", "mine, ignored\n")
    outcome = scene.rewrite()
    assert outcome.result == "done" and outcome.overwritten == (b"x.log",)
    assert scene.read("x.log") == b"the target's\n"
    assert outcome.snapshot is not None
    assert scene.in_snapshot(outcome.snapshot.ref, "x.log") == b"mine, ignored\n"


def test_a_file_taken_out_of_the_index_stays_on_disk(scene: Scene) -> None:
    scene.write("a", "1\n")
    scene.write("b", "1\n")
    scene.base()
    scene.write("a", "2\n")
    scene.remove("b")
    scene.target()
    scene.git("rm", "-q", "--cached", "a", "b")
    outcome = scene.rewrite()
    assert set(outcome.conflicts) == {b"a"}
    assert scene.read("a") == b"1\n" and scene.read("b") == b"1\n"


def test_modes_merge_as_values(scene: Scene) -> None:
    scene.write("a", lines(), mode=0o644)
    scene.write("b", lines(), mode=0o755)
    scene.base()
    scene.write("a", lines("1=target"), mode=0o755)
    scene.write("b", lines("1=target"), mode=0o644)
    scene.target()
    scene.write("a", lines("20=mine"), mode=0o640)
    scene.write("b", lines(), mode=0o700)
    outcome = scene.rewrite()
    assert outcome.result == "done"
    assert scene.tree()[b"a"] == ("file", 0o750, lines("1=target", "20=mine").encode())
    assert scene.tree()[b"b"] == ("file", 0o600, lines("1=target").encode())


def test_entries_that_were_in_conflict_before_stay_so(scene: Scene) -> None:
    scene.write("a", "1\n")
    scene.write("b", "1\n")
    scene.write("c", "1\n")
    scene.base()
    scene.write("b", "target\n")
    scene.write("c", "target\n")
    scene.target()
    for name in ("a", "b"):
        oid = scene.git("hash-object", "-w", "--stdin", stdin=b"side\n").decode().strip()
        info = f"0 {'0' * 40}\t{name}\n" + "".join(f"100644 {oid} {n}\t{name}\n" for n in (1, 2, 3))
        scene.git("update-index", "--index-info", stdin=info.encode())
        scene.write(name, "half resolved\n")
    before = {name: scene.stages(name) for name in ("a", "b")}
    outcome = scene.rewrite()
    assert set(outcome.conflicts) == {b"b"}
    assert {name: scene.stages(name) for name in ("a", "b")} == before
    assert scene.read("a") == scene.read("b") == b"half resolved\n"
    assert scene.read("c") == b"target\n"
    assert outcome.snapshot is not None
    assert scene.in_snapshot(outcome.snapshot.ref, "a") == b"half resolved\n"


# -- a file here, a directory there -------------------------------------------------------------


def test_an_untracked_file_where_the_target_has_a_directory(scene: Scene) -> None:
    scene.write("b", "b\n")
    scene.base()
    scene.write("a/x", "x\n")
    scene.write("a/y", "y\n")
    scene.target()
    scene.write("a", "mine\n")
    outcome = scene.rewrite()
    assert set(outcome.conflicts) == {b"a/x", b"a/y"}
    assert scene.read("a") == b"mine\n"
    assert scene.stages("a/x") == {2: b"x\n"}


def test_untracked_files_in_a_directory_where_the_target_has_a_file(scene: Scene) -> None:
    scene.write("a/tracked", "t\n")
    scene.base()
    scene.remove("a/tracked")
    os.rmdir(scene.path("a"))
    scene.write("a", "a file\n")
    scene.target()
    scene.write("a/mine", "mine\n")
    outcome = scene.rewrite()
    assert set(outcome.conflicts) == {b"a"}
    assert scene.read("a/mine") == b"mine\n"
    assert not scene.exists("a/tracked")
    assert scene.stages("a") == {2: b"a file\n"}


def test_a_directory_becomes_a_file_and_a_file_a_directory(scene: Scene) -> None:
    scene.write("d/e/f", "f\n")
    scene.write("p", "p\n")
    scene.base()
    scene.remove("d/e/f")
    os.removedirs(scene.path("d/e"))
    scene.write("d", "d\n")
    scene.remove("p")
    scene.write("p/q", "q\n")
    scene.target()
    outcome = scene.rewrite()
    assert outcome.result == "done"
    assert scene.short() == {}
    assert {p: v[2] for p, v in scene.tree().items()} == {b"d": b"d\n", b"p": b"", b"p/q": b"q\n"}


def test_an_ignored_file_where_the_target_has_a_directory_gives_way(scene: Scene) -> None:
    scene.write(".gitignore", "out\n")
    scene.base()
    scene.write("out/x", "x\n")
    scene.git("add", "-f", "out/x")
    scene.target()
    scene.write("out", "mine\n")
    outcome = scene.rewrite()
    assert outcome.result == "done"
    assert scene.read("out/x") == b"x\n"
    assert outcome.snapshot is not None
    assert scene.in_snapshot(outcome.snapshot.ref, "out") == b"mine\n"


def test_a_staged_file_where_the_target_has_a_directory(scene: Scene) -> None:
    scene.write("b", "b\n")
    scene.base()
    scene.write("a/x", "x\n")
    scene.write("c", "c\n")
    scene.target()
    scene.write("a", "staged\n")
    scene.write("c/mine", "staged\n")
    scene.git("add", "a", "c/mine")
    outcome = scene.rewrite()
    assert set(outcome.conflicts) == {b"a/x", b"c"}
    assert scene.staged("a") == b"staged\n" and scene.staged("c/mine") == b"staged\n"
    assert scene.stages("a/x") == {2: b"x\n"} and scene.stages("c") == {2: b"c\n"}
    assert scene.read("a") == b"staged\n" and scene.read("c/mine") == b"staged\n"


def test_a_directory_the_user_emptied_or_filled_stays(scene: Scene) -> None:
    scene.write("d/x", "x\n")
    scene.write("e/x", "x\n")
    scene.write("keep", "k\n")
    scene.base()
    scene.remove("d/x")
    scene.remove("e/x")
    scene.target()
    scene.write("d/mine", "mine\n")
    scene.rewrite()
    assert scene.read("d/mine") == b"mine\n" and not scene.exists("d/x")
    assert not scene.exists("e"), "a directory that only held what the target removed goes"


# -- drivers ------------------------------------------------------------------------------------


def test_union_is_honoured_and_external_drivers_never_run(scene: Scene) -> None:
    scene.write(
        ".gitattributes", "u merge=union\nbin -merge\next merge=planted\nodd merge=nosuch\n"
    )
    for name in ("u", "bin", "ext", "odd"):
        scene.write(name, "1\n2\n3\n")
    scene.base()
    for name in ("u", "bin", "ext", "odd"):
        scene.write(name, "1\nT\n3\n")
    scene.target()
    proof = scene.root.parent / "ran"
    scene.git("config", "merge.planted.driver", f"touch {proof}; true")
    for name in ("u", "bin", "ext", "odd"):
        scene.write(name, "1\nU\n3\n")
    outcome = scene.rewrite()
    assert set(outcome.conflicts) == {b"bin", b"ext", b"odd"}
    assert scene.read("u") == b"1\nT\nU\n3\n"
    assert scene.read("bin") == scene.read("ext") == b"1\nU\n3\n"
    assert b"<<<<<<<" in scene.read("odd"), "a driver nobody configured is plain text to git"
    assert not proof.exists()
