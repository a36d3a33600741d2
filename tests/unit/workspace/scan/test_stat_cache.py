"""The cache file: what it keeps, and what it makes of damage."""

from __future__ import annotations

import marshal
import os
import random
import shutil
import stat
import zlib
from pathlib import Path

import pytest

from substrate.model.nodes import ABSENT
from substrate.model.paths import ROOT, RelPath
from substrate.system.process import process_identity
from substrate.workspace.scan import stat_cache
from substrate.workspace.scan.tree_scan import StatCache, cached_node, cached_nodes, scan
from tests.unit.workspace.naive import Bench, Blobs, blob_id, later, node, rel, walk


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    made = Bench(tmp_path)
    for number in range(60):
        made.write(f"d{number % 6}/f{number}", str(number))
    return made


def test_no_file_no_cache(tmp_path: Path) -> None:
    cache = StatCache.load(tmp_path / "none")
    assert (cache.describes, list(cached_nodes(cache))) == (b"", [])
    assert "no cache" in cache.reason


def test_it_comes_back_as_it_went(bench: Bench) -> None:
    with later():
        scan(bench.root, bench.cache, bench.exclusions, bench.blobs)
    bench.cache.save(bench.cache_path, describes=b"tip \0\xff")
    loaded = StatCache.load(bench.cache_path)
    assert loaded.reason == ""
    assert loaded.describes == b"tip \0\xff"
    assert loaded.dirs == bench.cache.dirs
    assert dict(cached_nodes(loaded)) == walk(bench.root)
    assert stat.S_IMODE(bench.cache_path.stat().st_mode) == 0o600 or os.name != "posix"
    assert not [name for name in os.listdir(bench.cache_path.parent) if name.endswith("tmp")]


def test_single_nodes(bench: Bench) -> None:
    bench.settled()
    for path, found in walk(bench.root).items():
        assert cached_node(bench.cache, path) == found
    for path in (ROOT, rel("none"), rel("d1/none"), rel("d1/f1/none"), rel("none/none")):
        assert cached_node(bench.cache, path) == ABSENT


def test_little_change_is_appended_much_is_written_again(bench: Bench) -> None:
    bench.settled()
    whole = bench.cache_path.stat()
    bench.write("d1/f1", "edited")
    bench.settled()
    appended = bench.cache_path.stat()
    assert appended.st_ino == whole.st_ino
    assert whole.st_size < appended.st_size < 2 * whole.st_size
    sizes = []
    for number in range(150):
        bench.write("d1/f1", f"edit {number}")
        bench.settled()
        sizes.append(bench.cache_path.stat().st_size)
    assert max(sizes) < whole.st_size + 2 * stat_cache._REWRITE_FLOOR_BYTES
    assert min(sizes[1:]) < appended.st_size * 2
    bench.check()


def test_nothing_new_is_not_written(bench: Bench) -> None:
    bench.settled()
    before = bench.cache_path.stat()
    bench.scan()
    after = bench.cache_path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    cache = StatCache.load(bench.cache_path)
    cache.save(bench.cache_path, describes=b"another tip")
    assert StatCache.load(bench.cache_path).describes == b"another tip"


def test_removed_directories_stay_removed(bench: Bench) -> None:
    bench.settled()
    shutil.rmtree(bench.root / "d2")
    bench.settled()
    loaded = StatCache.load(bench.cache_path)
    assert dict(cached_nodes(loaded)) == walk(bench.root)


def test_a_torn_append_falls_back_to_the_state_before(bench: Bench) -> None:
    with later():
        scan(bench.root, bench.cache, bench.exclusions, bench.blobs)
        bench.cache.save(bench.cache_path, describes=b"first")
        base = bench.cache_path.read_bytes()
        old = walk(bench.root)
        bench.write("d1/f1", "edited")
        scan(bench.root, bench.cache, bench.exclusions, bench.blobs)
        bench.cache.save(bench.cache_path, describes=b"second")
        whole = bench.cache_path.read_bytes()
    assert whole.startswith(base)
    cuts = {*range(len(base), len(base) + 20), *range(len(base), len(whole), 97), len(whole) - 1}
    for cut in sorted(cuts):
        bench.cache_path.write_bytes(whole[:cut])
        loaded = StatCache.load(bench.cache_path)
        assert loaded.describes == b"first"
        assert dict(cached_nodes(loaded)) == old
        assert (loaded.reason == "") == (cut == len(base))
        # The scan finds the edit again, and the next save leaves no torn part behind.
        with later():
            assert rel("d1/f1") in scan(bench.root, loaded, bench.exclusions, Blobs()).seen
        loaded.save(bench.cache_path, describes=b"third")
        again = StatCache.load(bench.cache_path)
        assert (again.reason, again.describes) == ("", b"third")
        assert dict(cached_nodes(again)) == walk(bench.root)


def test_any_damage_is_noticed(bench: Bench) -> None:
    bench.settled()
    bench.write("d1/f1", "edited")
    bench.settled()
    whole = bench.cache_path.read_bytes()
    state = walk(bench.root)
    chance = random.Random(7)
    for _ in range(300):
        damaged = bytearray(whole)
        where = chance.randrange(len(damaged))
        damaged[where] ^= 1 << chance.randrange(8)
        bench.cache_path.write_bytes(damaged)
        loaded = StatCache.load(bench.cache_path)
        assert loaded.reason
        scan(bench.root, loaded, bench.exclusions, Blobs())
        assert dict(cached_nodes(loaded)) == state


@pytest.mark.parametrize(
    "content",
    [b"", b"x", b"substrate-stat-cache 0 4 utf-8\n", b"\0" * 4096, stat_cache._MAGIC],
    ids=["empty", "short", "other version", "zeros", "header only"],
)
def test_what_is_no_cache_is_an_empty_one(bench: Bench, content: bytes) -> None:
    bench.cache_path.write_bytes(content)
    cache = StatCache.load(bench.cache_path)
    assert (cache.reason != "", cache.describes, cache.dirs) == (True, b"", {})
    assert bench.settled().seen == walk(bench.root)
    assert StatCache.load(bench.cache_path).reason == ""


@pytest.mark.parametrize("body", [None, 3, (), (b"", "", "", 0, [], {"": (b"x",)}), ["x"] * 6])
def test_well_sealed_nonsense_is_an_empty_cache(
    bench: Bench, body: int | tuple | list | None
) -> None:
    packed = marshal.dumps(body)
    sealed = stat_cache._HEAD.pack(len(packed), zlib.crc32(packed)) + packed
    bench.cache_path.write_bytes(stat_cache._MAGIC + sealed)
    assert StatCache.load(bench.cache_path).dirs == {}
    assert bench.settled().seen == walk(bench.root)


def test_a_record_that_is_none_starts_the_scan_over(bench: Bench) -> None:
    bench.settled()
    record = bench.cache.dirs["d1"]
    bench.cache.put("d1", record._replace(payload=b"junk", signature=b""))
    result = scan(bench.root, bench.cache, bench.exclusions, Blobs())
    assert result.seen == walk(bench.root)
    assert (bench.cache.reason, bench.cache.describes) == ("the cache is damaged", b"")


def test_a_cache_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    assert "cannot be read" in StatCache.load(tmp_path / "cache").reason


def test_another_users_file_is_not_appended_to(bench: Bench) -> None:
    bench.settled()
    mine = StatCache.load(bench.cache_path)
    bench.write("d1/f1", "edited")
    bench.settled()
    mine.save(bench.cache_path, describes=b"mine")
    loaded = StatCache.load(bench.cache_path)
    assert (loaded.reason, loaded.describes, loaded.dirs) == ("", b"mine", mine.dirs)


def reboot(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(stat_cache, "boot_id", lambda: name)


def test_after_a_power_cut_fresh_files_are_read_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stat says what the cache says, but the bytes never reached the disk."""
    file = bench.write("d1/f1", "written")
    bench.settled()
    info = file.stat()
    lost = _same_stat_other_content(bench, rel("d1/f1"), blob_id(b"written"), b"old")
    assert lost
    assert bench.scan().seen == {}
    reboot(monkeypatch, "another boot")
    with later():
        assert bench.scan().seen[rel("d1/f1")].oid == blob_id(b"written")
    bench.check()
    assert file.stat().st_ino == info.st_ino


def _same_stat_other_content(bench: Bench, path: RelPath, oid: bytes, content: bytes) -> bool:
    """Make the cache claim `content` for `path`, as if the file had been written after that."""
    cache = StatCache.load(bench.cache_path)
    record = cache.dirs["d1"]
    payload = record.open()
    name = os.fsdecode(path.rpartition(b"/")[2])
    assert payload.entries[name].oid == oid
    payload.entries[name] = payload.entries[name]._replace(oid=blob_id(content))
    cache.put("d1", record._replace(payload=payload.pack()))
    cache.save(bench.cache_path, describes=b"tip")
    return cached_node(cache, path).oid == blob_id(content)


def test_after_a_reboot_old_files_are_not_read_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    with later(3600):
        bench.scan()
        reboot(monkeypatch, "another boot")
        assert bench.scan().seen == {}
        assert bench.blobs.reads == 0


def test_doubts_outlive_a_save_without_a_scan(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.settled()
    reboot(monkeypatch, "another boot")
    StatCache.load(bench.cache_path).save(bench.cache_path, describes=b"a new tip")
    with later():
        assert len(bench.scan().seen) == 60
        assert bench.scan().seen == {}


def test_real_boots_are_distinguished() -> None:
    assert process_identity.boot_id() == process_identity.boot_id()


def test_another_way_to_write_names_is_another_cache(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.settled()
    monkeypatch.setattr(stat_cache, "_MAGIC", stat_cache._MAGIC.replace(b"utf-8", b"ascii"))
    assert "another version" in StatCache.load(bench.cache_path).reason


def test_many_files_in_one_directory(bench: Bench) -> None:
    place = bench.root / "many"
    place.mkdir()
    for number in range(3000):
        (place / f"f{number}").touch()
    bench.settled()
    (place / "f2999").write_text("x")
    assert set(bench.settled().seen) == {rel("many/f2999")}
    assert cached_node(bench.cache, rel("many/f2999")) == node(os.fsencode(place / "f2999"))


@pytest.mark.long
def test_two_hundred_thousand_files_in_one_directory(bench: Bench) -> None:
    place = bench.root / "many"
    place.mkdir()
    for number in range(200_000):
        os.close(os.open(place / f"f{number}", os.O_CREAT | os.O_WRONLY))
    assert len(bench.settled().seen) == 200_000 + 60 + 7
    assert bench.scan().seen == {}
    (place / "f199999").unlink()
    assert bench.scan().seen == {rel("many/f199999"): ABSENT}
