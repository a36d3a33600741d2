"""Directories that move, by the command or under it, and files with several names."""

from __future__ import annotations

import os

import pytest

from substrate.history.record import record_entry
from tests.unit.history.workbench import Bench
from tests.unit.recorder.arrival.test_bring_in import bench, do, settle_clock, span

__all__ = ["bench"]

pytestmark = pytest.mark.needs("overlay", "root", "mounts")


def _same(bench: Bench, one: str, other: str) -> bool:
    return (bench.root / one).samefile(bench.root / other)


def test_new_files_with_several_names_arrive_with_them(bench: Bench) -> None:
    done = do(bench, "echo n > n1; ln n1 n2; mkdir new; ln n1 new/n3; ln new/n3 d/n4")
    assert all(_same(bench, "n1", other) for other in ("n2", "new/n3", "d/n4"))
    assert done.notes == ()


def test_a_new_name_of_an_old_file_is_a_file_of_its_own_and_says_so(bench: Bench) -> None:
    done = do(bench, "ln a new; ln b d/other; echo more >> d/other")
    assert not _same(bench, "a", "new") and not _same(bench, "b", "d/other")
    assert (bench.root / "new").read_text() == "a\n"
    assert (bench.root / "b").read_text() == (bench.root / "d/other").read_text() == "b\nmore\n"
    why = "arrives as a file of its own: in the world it was"
    assert done.notes == (f"d/other: {why} b, linked", f"new: {why} a, linked")
    assert span()["left_out"] == ["d/other", "new"]


def test_a_directory_that_a_user_renames_while_the_command_edits_in_it(bench: Bench) -> None:
    def rename() -> None:
        os.rename(bench.root / "d", bench.root / "moved")

    done = do(bench, "echo its >> d/c; echo its > d/n", rename)
    assert (bench.root / "moved/c").read_text() == "c\n"
    assert not (bench.root / "d/c").exists()
    assert (bench.root / "d/n").read_text() == "its\n"
    assert span()["conflicts"] == ["d/c"]
    said = "conflict: d/c: was removed or moved away while the command ran; nothing was put there"
    assert said in done.notes
    with bench.writing() as store:
        found = record_entry.record_outside(store)
    assert found is not None and all(c.path.startswith(b"moved") for c in found.changes)
    bench.restore(done.command_id, "d/c")
    assert (bench.root / "d/c").read_text() == "c\nits\n"


def _with_bulk(bench: Bench) -> None:
    (bench.root / "d/node_modules/m").mkdir(parents=True)
    (bench.root / "d/node_modules/m/x").write_text("x\n")
    settle_clock()


def test_a_renamed_directory_goes_back_with_what_history_leaves_out(bench: Bench) -> None:
    _with_bulk(bench)
    before = bench.tree()
    do(bench, "mv d e")
    after = bench.tree()
    assert (bench.root / "e/node_modules/m/x").read_text() == "x\n"
    bench.undo()
    assert bench.tree() == before
    bench.redo()
    assert bench.tree() == after


def test_what_a_user_put_there_since_stays(bench: Bench) -> None:
    _with_bulk(bench)
    do(bench, "mv d e")
    settle_clock()
    (bench.root / "e/node_modules/mine").write_text("mine\n")
    outcome = bench.undo()
    assert (bench.root / "e/node_modules/mine").read_text() == "mine\n"
    assert any("kept directory e" in note for note in outcome.notes)
    assert (bench.root / "d/node_modules/m/x").read_text() == "x\n"


def test_a_repository_that_a_command_made_goes_with_its_directory(bench: Bench) -> None:
    before = bench.tree()
    do(bench, "mkdir clone; git init -q clone; echo w > clone/w")
    bench.undo()
    assert bench.tree() == before
    bench.redo()
    assert (bench.root / "clone/.git/HEAD").exists()
