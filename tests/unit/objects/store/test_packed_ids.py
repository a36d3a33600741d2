"""Many packs are asked as one is."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from substrate.objects.store import packed_ids
from substrate.objects.store.packed_ids import PackedIds
from substrate.objects.store.packfile import PackIndex
from substrate.objects.store.packwriter import PackWriter


def index_of(base: Path, oids: list[bytes]) -> PackIndex:
    """Of a pack that claims to hold these."""
    (base / "objects").mkdir(exist_ok=True)
    writer = PackWriter(str(base / "objects"))
    for oid in oids:
        writer.add(oid, "blob", oid)
    return PackIndex(writer.finish(durable=False))


def ids(start: int, stop: int) -> list[bytes]:
    return [hashlib.sha1(b"%d" % n, usedforsecurity=False).digest() for n in range(start, stop)]


@pytest.mark.parametrize("small", [0, 700, 100_000])
def test_what_any_of_them_holds_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    """Whether they are looked through as one or not; before there is a table, and with it."""
    monkeypatch.setattr(packed_ids, "_SMALL_COUNT", small)
    # The last one's idx is so big that only parts of it are read.
    packs = [ids(0, 500), ids(500, 501), ids(501, 1100), ids(1100, 7100)]
    found = PackedIds([index_of(tmp_path, pack) for pack in packs])
    known, unknown = ids(0, 7100), ids(7100, 14_200)
    some = [*known[::100], *unknown[::100]]
    assert found.among(some[:100]) == set(known[::100]).intersection(some[:100])
    for oid in some:
        assert found.has(oid) == (oid in set(known))
    assert found.among([*known, *unknown]) == set(known)
    assert all(map(found.has, known)) and not any(map(found.has, unknown))


def test_what_reaches_across_two_ids_is_none(tmp_path: Path) -> None:
    first = b"\1" + b"\2" * 9 + b"\1" + b"\3" * 9
    second = b"\1" + b"\4" * 19
    found = PackedIds([index_of(tmp_path, [first]), index_of(tmp_path, [second])])
    across = (first + second)[10:30]
    assert across[0] == 1
    assert not found.has(across)
    assert found.has(first) and found.has(second)


def test_no_packs_hold_nothing() -> None:
    assert not PackedIds(()).has(b"\0" * 20)
    assert PackedIds(()).among([b"\0" * 20]) == set()
