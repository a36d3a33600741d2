"""Compaction: what is squashed, what moves with it, and what must still be there afterwards."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from substrate.errors import RefusedError
from substrate.history.maintenance import disk_cap, metrics
from substrate.history.query.resolve_id import resolve
from substrate.history.record import checkpoints
from substrate.history.reversal import rollback
from substrate.history.reversal.undo import Choice
from substrate.recorder import checkpoints_sessions
from tests.unit.history.workbench import Bench, Dir, Mode


def git(bench: Bench, *args: str) -> str:
    git_dir = bench.root / ".substrate-git/.git"
    done = subprocess.run(
        ["git", f"--git-dir={git_dir}", f"--work-tree={bench.root}", *args],
        capture_output=True, check=True, cwd=bench.root,
    )  # fmt: skip
    return done.stdout.decode()


def old_session(bench: Bench, commands: int = 4) -> list[str]:
    """A session that is over, followed by another one."""
    bench.outside({"keep": Mode(0o600, b"k"), "empty": Dir(0o700)})
    ids = [
        bench.run({"a": b"%d" % n, f"f{n}": b"x" * n}, session="old").command_id
        for n in range(commands)
    ]
    bench.close("old")
    bench.run({"new": b"1"}, session="new")
    return ids


def test_an_old_session_becomes_one_commit(bench: Bench) -> None:
    old_session(bench)
    before = bench.tree()
    report = bench.compact(sessions=1)
    assert bench.tree() == before, "the workspace is not compaction's business"
    assert bench.kinds() == ["baseline", "squash", "command"]
    assert (report.commits_before, report.commits_after) == (6, 3)
    subjects = git(bench, "log", "--format=%s").splitlines()
    assert subjects[1] == "cp: session old squashed"
    tags = git(bench, "tag", "--list").split()
    assert tags == ["cp/session/old/closed", "cp/session/old/squashed"]
    assert git(bench, "rev-parse", "cp/session/old/closed") == git(bench, "rev-parse", "main~1")
    assert bench.fsck() == []


def test_checkpoint_ranges(bench: Bench) -> None:
    first = bench.run({"a": b"1"}, session="s")
    last = bench.run({"a": b"2"}, session="s")
    bench.checkpoint("s")
    bench.run({"a": b"3"}, session="s")
    bench.run({"a": b"4"}, session="s")
    bench.checkpoint("s")
    bench.compact(checkpoints=1)
    assert bench.kinds() == ["baseline", "squash", "command", "command"]
    wanted = f"cp: session s [{first.command_id}..{last.command_id}] squashed"
    assert wanted in git(bench, "log", "--format=%s")
    with bench.store() as store:
        marks = {c.tag: c.commit.hex() for c in checkpoints.of_session(store.ledger)}
    assert {tag: git(bench, "rev-parse", tag).strip() for tag in marks} == marks
    bench.roll_back(checkpoint="s/1")
    assert bench.read("a") == b"2", "the checkpoint is still the place it was"


def test_every_id_still_resolves(bench: Bench) -> None:
    ids = old_session(bench)
    commits = [e.commit.hex() for e in bench.log() if e.commit]
    spans = [e.span_id for e in bench.log() if e.span_id]
    bench.compact(sessions=1)
    with bench.store() as store:
        for name in (*ids, *commits, *spans, "cp/session/old/closed", "old"):
            assert resolve(store, name) is not None


def test_a_swallowed_command_says_what_holds_it(bench: Bench) -> None:
    ids = old_session(bench)
    bench.compact(sessions=1)
    [squash] = [e.command_id for e in bench.log() if e.kind == "squash"]
    with pytest.raises(RefusedError) as caught:
        bench.undo(ids[1])
    assert squash in caught.value.hint
    with pytest.raises(RefusedError) as caught:
        bench.roll_back(to=ids[1])
    assert squash in caught.value.hint
    bench.undo(squash)
    assert not (bench.root / "a").exists()
    bench.redo(session="old")
    assert bench.read("a") == b"3"


def test_a_checkpoint_inside_a_squashed_session_is_not_a_place_any_more(bench: Bench) -> None:
    """Going "back to it" must not silently take back what came before it."""
    bench.run({"a": b"1"}, session="old")
    bench.checkpoint("old")
    bench.run({"a": b"2"}, session="old")
    bench.close("old")
    bench.run({"z": b"1"}, session="new")
    bench.compact(sessions=1)
    before = bench.tree()
    with pytest.raises(RefusedError) as caught:
        bench.roll_back(checkpoint="old/1")
    assert "no longer kept" in caught.value.message
    assert bench.tree() == before


def with_outside_edits(bench: Bench) -> None:
    """An old session with an outside edit in the middle of it."""
    bench.run({"a": b"1"}, session="old")
    bench.run({"a": b"2"}, session="old")
    bench.outside({"mine": b"m"})
    bench.run({"a": b"3"}, session="old")
    bench.run({"a": b"4"}, session="old")
    bench.close("old")
    bench.run({"z": b"1"}, session="new")


def test_within_retention_squashes_do_not_cross_outside_edits(bench: Bench) -> None:
    with_outside_edits(bench)
    bench.compact(sessions=2)
    assert bench.kinds() == ["baseline", *["command"] * 2, "external", *["command"] * 3]
    bench.undo("old")
    assert sorted(bench.tree()) == [b"mine", b"z"]


def test_older_outside_edits_are_squashed_and_named(bench: Bench) -> None:
    with_outside_edits(bench)
    bench.compact(sessions=1)
    assert bench.kinds() == ["baseline", "squash", "command"]
    squash = bench.log()[1]
    assert squash.session_id is None
    assert squash.detail["kinds"] == {"command": 4, "external": 1}
    assert squash.detail["sessions"] == ["old"]
    subject = git(bench, "log", "--format=%s").splitlines()[1]
    assert subject.endswith("squashed: 4 command, 1 external; sessions old")
    assert git(bench, "rev-parse", "cp/session/old/squashed") == git(bench, "rev-parse", "main~1")
    assert bench.fsck() == []


def test_a_squash_with_outside_edits_is_never_taken_back_as_one(bench: Bench) -> None:
    """The outside edits in it are not the session's to take back."""
    baseline = bench.settle() or bench.log()[-1]
    with_outside_edits(bench)
    bench.compact(sessions=1)
    before = bench.tree()
    for target in (bench.log()[1].command_id, "old"):
        with pytest.raises(RefusedError):
            bench.undo(target)
    assert baseline.commit is not None
    point = rollback.Point("the baseline", baseline.commit, baseline.pos, "old", "--to c-1")
    with bench.writing() as store, pytest.raises(RefusedError, match="together with outside edits"):
        rollback.roll_back(store, point, Choice(), exact=False, agent=None)
    assert bench.tree() == before
    bench.roll_back(to=baseline.command_id, exact=True)
    assert bench.tree() == {}


def test_attrs_survive(bench: Bench) -> None:
    old_session(bench)
    bench.run({"keep": Mode(0o640), "empty": Dir(0o711)}, session="new")
    bench.compact(checkpoints=0, sessions=0)
    bench.undo(session="new")
    state = bench.tree()
    assert state[b"keep"][1] == 0o600
    assert state[b"empty"][1] == 0o700
    bench.roll_back(to=bench.log()[-1].command_id, exact=True)
    assert sorted(bench.tree()) == [b"empty", b"keep"]


def test_one_pack_and_no_leftovers(bench: Bench) -> None:
    old_session(bench)
    bench.undo(session="new")
    bench.compact(sessions=1)
    objects = bench.root / ".substrate-git/.git/objects"
    names = sorted(p.name for p in (objects / "pack").iterdir())
    assert [n.rsplit(".", 1)[1] for n in names] == ["idx", "pack"]
    loose = [p for d in objects.iterdir() if len(d.name) == 2 for p in d.iterdir()]
    assert loose == []
    assert os.listdir(bench.root / ".substrate-git/journal") == []
    git(bench, "fsck", "--strict", "--full")


def test_again_and_again(bench: Bench) -> None:
    old_session(bench)
    for n in range(4):
        bench.run({"a": b"round %d" % n}, session=f"s{n}")
        bench.run({"b": b"round %d" % n}, session=f"s{n}")
        bench.close(f"s{n}")
        bench.compact(sessions=1)
        assert bench.fsck() == []
    sessions = [e.session_id for e in bench.log() if e.kind == "squash"]
    assert sessions == ["s2", "s1", "s0", "old"]


def test_what_is_unreachable_goes(bench: Bench) -> None:
    """Contents that only a squashed command held leave the store."""
    noise = os.urandom(300_000)
    bench.run({"big": noise}, session="old")
    bench.run({"big": None, "a": b"1"}, session="old")
    bench.close("old")
    bench.run({"z": b"1"}, session="new")
    with bench.store() as store:
        assert metrics.git_bytes(store) > 300_000
    report = bench.compact(sessions=1)
    with bench.store() as store:
        assert metrics.git_bytes(store) < 100_000
    assert report.size_after < report.size_before


def test_the_preview_shows_what_would_happen_and_changes_nothing(bench: Bench) -> None:
    ids = old_session(bench)
    log = bench.log()
    decision = checkpoints_sessions.preview_compaction(bench.place(), None, 1)
    assert [r.command_ids for r in decision.ranges] == [tuple(ids)]
    assert bench.log() == log


class TestCap:
    def capped(self, bench: Bench, mib: int, *, auto: bool = False) -> None:
        bench.settle()
        text = f"[retention]\ndisk_cap_mib = {mib}\n[compact]\nauto = {str(auto).lower()}\n"
        (bench.root / ".substrate-git/config.toml").write_text(text)

    def test_incompressible_files_are_squashed_until_they_fit(self, bench: Bench) -> None:
        self.capped(bench, 3)
        for n in range(8):
            bench.run({"big": os.urandom(1 << 20)}, session=f"s{n // 4}")
        bench.run({"small": b"1"}, session="s")
        report = bench.compact()
        with bench.store() as store:
            assert metrics.git_bytes(store) <= 3 << 20
        assert any("over the disk cap" in note for note in report.notes)
        assert bench.fsck() == []
        bench.undo(session="s")

    def test_the_newest_session_is_the_floor(self, bench: Bench) -> None:
        self.capped(bench, 2)
        for _ in range(4):
            bench.run({"big": os.urandom(1 << 20)}, session="s")
        report = bench.compact()
        assert bench.kinds() == ["baseline", *["command"] * 4]
        assert any("still over its disk cap" in note for note in report.notes)
        with bench.store() as store:
            floor = disk_cap.state(store).floor_bytes
            assert floor is not None
            assert floor > 4 << 20
            assert not disk_cap.is_due(store), "nothing more can go: not at every command"

    def test_the_baseline_goes_last(self, bench: Bench) -> None:
        bench.outside({"big": os.urandom(2 << 20)})
        self.capped(bench, 1)
        bench.run({"big": os.urandom(1 << 10)}, session="a")
        bench.run({"b": b"1"}, session="b")
        first = bench.log()[-1]
        assert first.kind == "baseline"
        bench.compact()
        with bench.store() as store:
            assert metrics.capped_bytes(store) < 1 << 20
            assert resolve(store, first.command_id).holder is not None
            assert disk_cap.state(store).given_up.baseline
        assert bench.fsck() == []
        bench.undo(session="b")
        assert not (bench.root / "b").exists()

    def test_what_cannot_be_removed_is_reported(self, bench: Bench) -> None:
        self.capped(bench, 1)
        for n in range(3):
            bench.outside({f"big{n}": os.urandom(1 << 20)})
            bench.settle()
        before = bench.kinds()
        report = bench.compact()
        assert any("still over its disk cap" in note for note in report.notes)
        assert bench.kinds() == before

    def test_the_present_state_is_never_lost(self, bench: Bench) -> None:
        self.capped(bench, 1)
        for n in range(4):
            bench.run({"big": os.urandom(1 << 20), "n": b"%d" % n}, session="s")
        before = bench.tree()
        bench.compact()
        bench.run({"big": None, "n": None}, session="s")
        bench.undo(session="s")
        assert bench.tree() == before

    def test_a_session_end_inside_a_squash_is_no_place_to_go_back_to(self, bench: Bench) -> None:
        self.capped(bench, 1)
        for n in range(6):
            bench.run({"big": os.urandom(1 << 20), "n": b"%d" % n}, session=f"s{n}")
            bench.close(f"s{n}")
        bench.compact()
        squash = next(e for e in bench.log() if e.kind == "squash")
        with bench.store() as store, pytest.raises(RefusedError, match="no longer kept"):
            rollback.to_session(store, "s0")
        assert squash.commit is not None
        with bench.store() as store:
            assert rollback.to_entry(store, squash.command_id, None).commit == squash.commit


class TestExpiry:
    def test_recovery_refs_expire_with_age(self, bench: Bench, hand_clock) -> None:  # type: ignore[no-untyped-def]
        bench.run({"a": b"1"})
        old = bench.undo().recovery_ref
        hand_clock.move(hours=24 * 31)
        bench.redo()
        report = bench.compact()
        assert report.expired_recoveries == (old,)
        git_refs = git(bench, "for-each-ref", "refs/substrate/recovery").splitlines()
        assert len(git_refs) == 1


class TestSessionClose:
    def test_compacts_when_there_is_something_to_squash(self, bench: Bench) -> None:
        for n in range(7):
            bench.run({"a": b"%d" % n}, session=f"s{n}")
            bench.run({"b": b"%d" % n}, session=f"s{n}")
            bench.close(f"s{n}")
        squashed = [e.session_id for e in bench.log() if e.kind == "squash"]
        assert squashed == ["s1", "s0"]

    def test_not_when_switched_off(self, bench: Bench) -> None:
        bench.settle()
        (bench.root / ".substrate-git/config.toml").write_text("[compact]\nauto = false\n")
        for n in range(7):
            bench.run({"a": b"%d" % n}, session=f"s{n}")
            bench.run({"b": b"%d" % n}, session=f"s{n}")
            bench.close(f"s{n}")
        assert "squash" not in bench.kinds()


class TestKilled:
    """What a kill leaves behind is gone after the next pass."""

    @pytest.mark.parametrize(
        "leftover",
        [
            ".git/objects/pack/tmp-substrate-1234.pack",
            ".git/objects/pack/tmp_pack_abc",
            "journal/compact/objects/pack/tmp_pack_abc",
        ],
    )
    def test_leftovers(self, bench: Bench, leftover: str) -> None:
        old_session(bench)
        path = bench.root / ".substrate-git" / leftover
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"half a pack")
        assert bench.fsck() != []
        bench.compact(sessions=1)
        assert not path.exists()
        assert bench.fsck() == []

    def test_between_its_commit_point_and_the_prune(self, bench: Bench) -> None:
        swallowed = bench.entry(old_session(bench)[0]).commit
        assert swallowed is not None
        _killed_at(bench, "substrate.history.maintenance.compact", "finish_prune")
        objects = bench.root / ".substrate-git/.git/objects"
        assert len(list((objects / "pack").glob("*.pack"))) >= 1
        bench.run({"more": b"1"}, session="new")
        assert bench.kinds() == ["baseline", "squash", "command", "command"]
        assert bench.fsck() == []
        with bench.store() as store:
            assert not store.objects.has(swallowed), "the prune was finished"

    def test_before_its_commit_point(self, bench: Bench) -> None:
        old_session(bench)
        _killed_at(bench, "substrate.history.store.pack_small_objects", "adopt_pack")
        bench.run({"more": b"1"}, session="new")
        assert "squash" not in bench.kinds()
        bench.compact(sessions=1)
        assert bench.fsck() == []


def _killed_at(bench: Bench, module: str, function: str) -> None:
    """Compact in a process that dies by SIGKILL as it enters `function`."""
    script = (
        "import os, signal, importlib\n"
        f"importlib.import_module({module!r}).{function} = "
        "lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from substrate.recorder import checkpoints_sessions as keep\n"
        "from substrate.recorder.session_context import Place\n"
        "from substrate.system import environment\n"
        "from pathlib import Path\n"
        f"place = Place.at(Path({str(bench.root)!r}), environment.current())\n"
        "keep.compact_history(place, 5, 1)\n"
    )
    import sys

    done = subprocess.run([sys.executable, "-c", script], cwd=Path("/"), check=False)
    assert done.returncode == -9
