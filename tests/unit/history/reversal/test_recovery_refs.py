"""Every snapshot taken before something was replaced can be found and brought back."""

from __future__ import annotations

import subprocess

import pytest

from substrate.errors import NotFoundError
from substrate.history.reversal import recovery_refs
from tests.unit.history.workbench import Bench, Dir, Link, Mode


def test_what_an_undo_replaced_comes_back_exactly(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    bench.run({"a": Mode(0o600, b"1"), "l": Link("a"), "d/e": b"x", "empty": Dir(0o700)})
    before = bench.tree()
    outcome = bench.undo()
    assert bench.tree() != before
    assert outcome.recovery_ref is not None
    done = bench.restore(outcome.recovery_ref)
    assert bench.tree() == before
    assert done.entry is not None
    assert done.entry.kind == "restore"


def test_some_paths_of_it(bench: Bench) -> None:
    bench.outside({"a": b"0", "b": b"0"})
    bench.run({"a": b"1", "b": b"1"})
    ref = bench.undo().recovery_ref
    assert ref is not None
    bench.restore(ref, "b")
    assert (bench.read("a"), bench.read("b")) == (b"0", b"1")


def test_what_was_not_touched_is_left_alone(bench: Bench) -> None:
    bench.outside({"a": b"0", "b": b"0"})
    bench.run({"a": b"1"})
    ref = bench.undo().recovery_ref
    assert ref is not None
    bench.outside({"b": b"mine"})
    bench.restore(ref)
    assert (bench.read("a"), bench.read("b")) == (b"1", b"mine")


def test_a_restore_can_be_taken_back_too(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    bench.run({"a": b"1"})
    first = bench.undo()
    assert first.recovery_ref is not None
    second = bench.restore(first.recovery_ref)
    assert second.recovery_ref is not None
    bench.restore(second.recovery_ref)
    assert bench.read("a") == b"0"


def test_edits_made_since_are_kept_before_they_are_replaced(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    bench.run({"a": b"1"})
    ref = bench.undo().recovery_ref
    assert ref is not None
    bench.outside({"a": b"typed since"})
    back = bench.restore(ref)
    assert bench.read("a") == b"1"
    assert back.recovery_ref is not None
    bench.restore(back.recovery_ref)
    assert bench.read("a") == b"typed since"


def test_it_survives_compaction(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    for n in range(4):
        bench.run({"a": Mode(0o640, b"%d" % n)}, session="s")
    outcome = bench.undo(session="s")
    assert outcome.recovery_ref is not None
    bench.close("s")
    bench.run({"z": b"1"}, session="later")
    bench.compact(checkpoints=0, sessions=0)
    bench.restore(outcome.recovery_ref)
    assert bench.read("a") == b"3"
    assert bench.fsck() == []


def test_it_does_not_keep_all_of_history_alive(bench: Bench) -> None:
    bench.run({"a": b"1"})
    ref = bench.undo().recovery_ref
    assert ref is not None
    git_dir = bench.root / ".substrate-git/.git"
    count = subprocess.run(
        ["git", f"--git-dir={git_dir}", "rev-list", "--count", ref],
        capture_output=True, check=True,
    )  # fmt: skip
    assert int(count.stdout) <= 2


def test_names(bench: Bench) -> None:
    bench.run({"a": b"1"})
    bench.run({"a": b"2"})
    first, second = bench.undo(), bench.undo()
    with bench.store() as store:
        listed = [one.ref for one in recovery_refs.all_recoveries(store.ledger)]
        assert listed == [second.recovery_ref, first.recovery_ref]
        one = recovery_refs.resolve(store, listed[0])
        assert recovery_refs.resolve(store, one.name) == one
        assert one.paths == (b"a",)
        with pytest.raises(NotFoundError):
            recovery_refs.resolve(store, "c-nobody")


def test_a_dry_run(bench: Bench) -> None:
    bench.outside({"a": b"0"})
    bench.run({"a": b"1"})
    ref = bench.undo().recovery_ref
    assert ref is not None
    assert bench.restore(ref, dry_run=True).restored == [b"a"]
    assert bench.read("a") == b"0"
