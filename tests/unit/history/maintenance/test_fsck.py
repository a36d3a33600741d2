"""What a check finds, and that it changes nothing."""

from __future__ import annotations

import hashlib
import os

import pytest

from substrate.history.maintenance import repair
from substrate.objects.store import refs
from substrate.recorder import maintenance
from tests.unit.history import damage
from tests.unit.history.workbench import Bench, Dir, Link, Mode


def problems(bench: Bench) -> list[str]:
    return [p.what for p in maintenance.check_store(bench.place())]


def grow(bench: Bench) -> list[str]:
    """A small history with everything in it; ids of its commands, oldest first."""
    bench.outside({"a": b"0\n" * 50, "s": Mode(0o600, b"k"), "l": Link("a"), "e": Dir(0o700)})
    ids = []
    for n in range(3):
        # Unlike contents, so that no state is a delta of another.
        data = os.urandom(2000).hex().encode()
        ids.append(bench.run({"a": data, f"f{n}": b"%d" % n}, session="s").command_id)
    bench.checkpoint("s")
    ids.append(bench.run({"s": Mode(0o640, b"kk"), "e": None}, session="s").command_id)
    bench.undo(session="s")
    return ids


def test_a_sound_store(bench: Bench) -> None:
    grow(bench)
    assert problems(bench) == []
    bench.compact()
    assert problems(bench) == []


@pytest.mark.parametrize("name", [*damage.LEDGER_DAMAGE, *damage.REF_DAMAGE])
def test_damage_is_found_and_the_workspace_untouched(bench: Bench, name: str) -> None:
    grow(bench)
    before = bench.tree()
    {**damage.LEDGER_DAMAGE, **damage.REF_DAMAGE}[name](bench)
    assert problems(bench) != []
    assert bench.tree() == before


@pytest.mark.parametrize("name", damage.PACK_DAMAGE)
def test_damaged_packs_are_found(bench: Bench, name: str) -> None:
    grow(bench)
    bench.compact()
    damage.PACK_DAMAGE[name](bench)
    assert problems(bench) != []


def test_every_flipped_bit_in_a_loose_object_is_found(bench: Bench) -> None:
    grow(bench)
    for path in damage.loose_objects(bench):
        sound = path.read_bytes()
        damage.flip_bit(path)
        assert problems(bench) != [], path
        path.write_bytes(sound)
    assert problems(bench) == []


def test_a_missing_object_names_the_commands_it_breaks(bench: Bench) -> None:
    one, *_ = grow(bench)
    entry = bench.entry(one)
    assert entry.commit is not None
    damage.loose_path(bench, entry.commit).unlink()
    found = maintenance.check_store(bench.place())
    assert any(one in problem.breaks for problem in found)


def test_a_missing_content_names_the_command_that_wrote_it(bench: Bench) -> None:
    """Commits and trees are sound: only reading every changed content finds the command."""
    one, two, *_ = grow(bench)
    damage.loose_path(bench, hashlib.sha1(b"blob 1\0" + b"1").digest()).unlink()
    found = maintenance.check_store(bench.place())
    assert any(two in problem.breaks for problem in found)
    assert not any(one in problem.breaks for problem in found)
    assert any(problem.what.startswith("git: ") for problem in found)


def test_refs_that_are_sound_but_wrong(bench: Bench) -> None:
    """Plain git finds nothing wrong with these; the ledger knows better."""
    one, *_ = grow(bench)
    entry = bench.entry(one)
    assert entry.commit is not None
    branch = damage.store_dir(bench) / ".git/refs/heads/main"
    right = branch.read_bytes()
    branch.write_bytes(entry.commit.hex().encode() + b"\n")
    assert any("refs/heads/main should be" in what for what in problems(bench))
    branch.write_bytes(right)
    (damage.store_dir(bench) / ".git/HEAD").write_bytes(b"ref: refs/heads/other\n")
    assert any("HEAD does not name the branch" in what for what in problems(bench))


def test_a_ref_that_the_last_one_had_no_time_to_write_is_no_damage(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon's idle work stops as soon as another process wants the lock, like a check."""
    grow(bench)

    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(refs, "write_ref", ended)
        bench.run({"a": b"more"}, session="s")
    assert problems(bench) == []


def test_a_store_that_others_may_read(bench: Bench) -> None:
    grow(bench)
    damage.store_dir(bench).chmod(0o755)
    assert any("open to others" in what for what in problems(bench))


def test_a_missing_stat_cache_is_no_damage(bench: Bench) -> None:
    grow(bench)
    cache = damage.store_dir(bench) / "index/stat-cache"
    cache.unlink()
    assert problems(bench) == []
    bench.outside({"a": b"mine"})
    bench.run({"b": b"1"})
    assert bench.kinds()[-2:] == ["external", "command"]
    cache.write_bytes(b"garbage" * 100)
    assert problems(bench) == []
    bench.run({"b": b"2"})
    assert bench.kinds()[-1] == "command"
    assert bench.log()[0].changed_files == 1


def test_a_store_that_is_only_a_directory(bench: Bench) -> None:
    damage.store_dir(bench).mkdir(mode=0o700)
    assert problems(bench) != []
    assert repair.repair(bench.place().workspace, bench.root / "none").extent == "rebuilt"
    assert problems(bench) == []
