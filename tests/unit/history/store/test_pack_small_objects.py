"""Many small objects: the disk that they take counts, not their bytes."""

from __future__ import annotations

from tests.unit.history.workbench import Bench

_COMMANDS, _FILES = 12, 60


def test_small_objects_are_packed_before_they_take_megabytes(bench: Bench) -> None:
    for number in range(_COMMANDS):
        bench.run({f"d/{n}": b"%d %d" % (number, n) for n in range(_FILES)}, session="s")
    objects = bench.root / ".substrate-git/.git/objects"
    packs = list(objects.glob("pack/*.pack"))
    loose = list(objects.glob("??/*"))
    assert packs, "nothing was packed"
    assert len(loose) < _COMMANDS * _FILES / 2, len(loose)
    empty = [one.name for one in objects.glob("??") if not any(one.iterdir())]
    assert empty == [], "an empty directory takes a block as well"
    assert bench.fsck() == []
    bench.run({"d/0": b"after"}, session="s")
    assert bench.fsck() == []


def test_compaction_leaves_no_empty_directory(bench: Bench) -> None:
    bench.run({"a": b"1", "b": b"2"}, session="s")
    bench.compact()
    objects = bench.root / ".substrate-git/.git/objects"
    assert sorted(one.name for one in objects.iterdir()) == ["info", "pack"]
