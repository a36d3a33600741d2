"""Mending: what is readable is kept, the rest is marked lost, the workspace is never touched."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from substrate.errors import MissingDependencyError, RefusedError, SubstrateError, UsageError
from substrate.history.maintenance.repair import Repaired
from substrate.history.query.resolve_id import resolve
from substrate.history.record import checkpoints, sessions
from substrate.objects.snapshots import snapshot as snapshots
from substrate.recorder import maintenance
from tests.unit.history import damage
from tests.unit.history.maintenance.test_fsck import grow, problems
from tests.unit.history.workbench import Bench, tree


def mend(bench: Bench) -> Repaired:
    """Repair, and make sure of what must always hold afterwards."""
    before = bench.tree()
    done = maintenance.repair_store(bench.place())
    assert bench.tree() == before, "the workspace is never touched"
    assert problems(bench) == []
    assert bench.settle() is None, "the present state of the workspace is recorded"
    bench.run({"after": b"1"}, session="after")
    bench.undo(session="after")
    assert bench.tree() == before, "and history goes on"
    return done


def test_nothing_to_mend(bench: Bench) -> None:
    grow(bench)
    assert mend(bench).extent == "nothing"


@pytest.mark.parametrize("name", damage.REF_DAMAGE)
def test_refs_are_written_again_and_nothing_is_lost(bench: Bench, name: str) -> None:
    grow(bench)
    log = bench.log()
    damage.REF_DAMAGE[name](bench)
    assert mend(bench).extent == "refs"
    assert bench.log()[-len(log) :] == log


def test_a_flipped_bit_that_the_ledger_still_has_whole(bench: Bench) -> None:
    """Small objects stay in the ledger until they are packed: they can be written again."""
    grow(bench)
    log = bench.log()
    for path in damage.loose_objects(bench)[::3]:
        damage.flip_bit(path)
    done = mend(bench)
    assert done.extent == "refs"
    assert bench.log()[-len(log) :] == log


class TestRebuilt:
    def broken(self, bench: Bench, broken: int = 2) -> tuple[list[str], Repaired]:
        """The content that only command number `broken` wrote is gone."""
        ids = grow(bench)
        bench.compact()
        _lose(bench, ids[broken])
        assert problems(bench) != []
        return ids, mend(bench)

    def test_entries_that_can_be_read_are_kept_the_others_lost(self, bench: Bench) -> None:
        ids, done = self.broken(bench)
        assert done.extent == "rebuilt"
        assert done.carried is not None
        assert ids[2] in done.carried.lost
        assert {ids[0], ids[1]} <= set(done.carried.kept)
        lost = bench.entry(ids[2])
        assert lost.detail["lost"] is True
        assert lost.commit is None

    def test_the_damaged_store_is_kept_aside(self, bench: Bench) -> None:
        _, done = self.broken(bench)
        assert done.quarantine is not None
        assert (done.quarantine / ".git").is_dir()
        assert (done.quarantine / "index/history.db").is_file()
        assert damage.store_dir(bench).stat().st_mode & 0o077 == 0

    def test_the_order_of_entries_stays(self, bench: Bench) -> None:
        ids, _ = self.broken(bench)
        listed = [e.command_id for e in reversed(bench.log()) if e.command_id in ids]
        assert listed == ids

    def test_relative_names_stay(self, bench: Bench) -> None:
        ids, _ = self.broken(bench)
        with bench.store() as store:
            for n, command_id in enumerate(reversed(ids)):
                entry = resolve(store, f"@~{n}", "s").entry
                assert entry is not None
                assert entry.command_id == command_id

    def test_sessions_checkpoints_and_undone_marks_stay(self, bench: Bench) -> None:
        ids, _ = self.broken(bench, broken=0)
        with bench.store() as store:
            assert sessions.find(store.ledger, "s") is not None
            assert [c.seq for c in checkpoints.of_session(store.ledger, "s")] == [1]
            undone = store.ledger.by_command_id(ids[3])
            assert undone is not None
            assert store.ledger.reversed_paths(undone.seq) == {b""}

    def test_recovery_refs_that_can_be_read_stay(self, bench: Bench) -> None:
        ids = grow(bench)
        outcome = bench.undo(session="s")
        assert outcome.recovery_ref is not None
        bench.compact()
        _lose(bench, ids[0])
        mend(bench)
        bench.restore(outcome.recovery_ref)
        assert (bench.root / "f2").exists()

    def test_what_was_squashed_before_still_resolves(self, bench: Bench) -> None:
        old = [bench.run({"o": b"%d" % n}, session="old") for n in range(3)]
        bench.close("old")
        ids = grow(bench)
        bench.compact(sessions=1)
        _lose(bench, ids[0])
        mend(bench)
        with bench.store() as store:
            for entry in old:
                assert entry.commit is not None
                assert resolve(store, entry.command_id).present.kind == "squash"
                assert resolve(store, entry.commit.hex()).present.kind == "squash"

    def test_old_commit_ids_still_resolve(self, bench: Bench) -> None:
        ids = grow(bench)
        bench.compact()
        commits = {e.command_id: e.commit for e in bench.log() if e.commit}
        _lose(bench, ids[0])
        mend(bench)
        with bench.store() as store:
            for command_id in ids[1:]:
                commit = commits[command_id]
                assert commit is not None
                assert resolve(store, commit.hex()).present.command_id == command_id


@pytest.mark.parametrize("name", damage.PACK_DAMAGE)
def test_packs(bench: Bench, name: str) -> None:
    ids = grow(bench)
    bench.compact()
    damage.PACK_DAMAGE[name](bench)
    mend(bench)
    with bench.store() as store:
        for command_id in ids:
            assert resolve(store, command_id).entry is not None, "lost or kept, the id resolves"


@pytest.mark.parametrize("name", damage.LEDGER_DAMAGE)
def test_the_ledger_is_rebuilt_from_the_commits(bench: Bench, name: str) -> None:
    ids = grow(bench)
    damage.LEDGER_DAMAGE[name](bench)
    done = mend(bench)
    assert done.extent == "rebuilt"
    assert done.carried is not None
    assert set(ids) <= set(done.carried.kept)
    entry = bench.entry(ids[0])
    assert (entry.kind, entry.session_id, entry.agent_id) == ("command", "s", "human")
    assert entry.command == "edit"
    with bench.store() as store:
        assert sessions.find(store.ledger, "s") is not None, "sessions are in the commits"
        assert [c.seq for c in checkpoints.of_session(store.ledger, "s")] == [1], "and tags"
    bench.undo(ids[0], "f0")
    assert not (bench.root / "f0").exists()


def test_the_ledger_and_the_branch_both_gone(bench: Bench) -> None:
    ids = grow(bench)
    damage.delete_ledger(bench)
    damage.empty_branch(bench)
    done = mend(bench)
    assert done.carried is not None
    assert set(ids) <= set(done.carried.kept)


def test_everything_gone(bench: Bench) -> None:
    grow(bench)
    damage.delete_ledger(bench)
    for path in damage.loose_objects(bench):
        os.truncate(path, 0)
    done = mend(bench)
    assert done.carried is not None
    assert done.carried.kept == []


def _lose(bench: Bench, command_id: str) -> None:
    """Make the content that one command gave to file `a` unreadable, in a store with one pack."""
    entry = bench.entry(command_id)
    assert entry.commit is not None
    with bench.store() as store:
        node = snapshots.lookup(store.objects, store.snapshot_of(entry.commit), b"a")  # type: ignore[arg-type]
        whole = store.objects.read_blob(node.oid)
        assert whole
        offset = _pack_offset(bench, node.oid)
    damage.flip_bit(damage.packs(bench)[0], offset + 40)
    with bench.store() as store, pytest.raises(Exception, match=node.oid.hex()[:8]):
        store.objects.read_blob(node.oid)


def _pack_offset(bench: Bench, oid: bytes) -> int:
    index = damage.packs(bench)[0].with_suffix(".idx").read_bytes()
    listed = subprocess.run(
        ["git", "show-index"], input=index, capture_output=True, check=True
    ).stdout.decode()
    [line] = [line for line in listed.splitlines() if oid.hex() in line]
    return int(line.split()[0])


class TestNoDamage:
    """What keeps us from looking is no reason to put a sound history aside."""

    def untouched(self, bench: Bench, error: type[SubstrateError]) -> None:
        before = tree(damage.store_dir(bench), leave_out=(b"lock",))
        for act in (maintenance.check_store, maintenance.repair_store):
            with pytest.raises(error):
                act(bench.place())
        after = tree(damage.store_dir(bench), leave_out=(b"lock",))
        assert {k: v for k, v in after.items() if not k.startswith(b"index")} == {
            k: v for k, v in before.items() if not k.startswith(b"index")
        }

    def test_no_git(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        grow(bench)
        monkeypatch.setenv("PATH", str(bench.root))
        self.untouched(bench, MissingDependencyError)

    def test_a_typing_error_in_the_settings(self, bench: Bench) -> None:
        grow(bench)
        (damage.store_dir(bench) / "config.toml").write_text("[retention\n")
        self.untouched(bench, UsageError)

    def test_a_ledger_of_a_newer_version(self, bench: Bench) -> None:
        grow(bench)
        with closing(sqlite3.connect(damage.store_dir(bench) / "index/history.db")) as db:
            db.execute("PRAGMA user_version=99")
        self.untouched(bench, RefusedError)


@pytest.mark.needs("posix")
def test_a_repair_that_is_killed_is_finished_by_the_next(bench: Bench) -> None:
    ids = grow(bench)
    bench.compact()
    _lose(bench, ids[2])
    template = bench.root.parent / "template"
    shutil.copytree(bench.root, template, symlinks=True)
    interrupted = 0
    for number in range(1, 400, 23):
        shutil.rmtree(bench.root)
        shutil.copytree(template, bench.root, symlinks=True)
        if not _killed_at(bench, number):
            break
        if (damage.store_dir(bench) / "quarantine/unfinished").exists():
            interrupted += 1
            with pytest.raises(SubstrateError, match="interrupted"):
                bench.run({"x": b"1"})
            assert [str(problem) for problem in problems(bench)] != []
        done = mend(bench)
        assert done.extent == "rebuilt", number
        kept = {entry.command_id for entry in bench.log()}
        assert set(ids) <= kept, f"killed at {number}"
        assert bench.entry(ids[0]).commit is not None
    else:
        raise AssertionError("the repair never came to its end")
    assert interrupted > 2


def _killed_at(bench: Bench, number: int) -> bool:
    """Repair in a child that dies at its n-th step that could change a file."""
    child = os.fork()
    if child == 0:
        left = [number]

        def die(event: str, args: tuple[object, ...]) -> None:
            writes = event == "open" and isinstance(args[2], int) and args[2] & 3
            if writes or event in ("os.rename", "os.mkdir", "os.remove", "os.link"):
                left[0] -= 1
                if left[0] <= 0:
                    os._exit(9)

        sys.addaudithook(die)
        try:
            maintenance.repair_store(bench.place())
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
