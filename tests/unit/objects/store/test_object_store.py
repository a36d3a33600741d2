"""The store beside real git: each reads what the other wrote, and damage is always reported."""

from __future__ import annotations

import os
import random
import shutil
import struct
from pathlib import Path

import pytest

from substrate.errors import DamagedStoreError
from substrate.objects.snapshots.commits import Commit, parse_commit, serialize_commit, signature
from substrate.objects.snapshots.snapshot import EMPTY
from substrate.objects.store import batch as batch_module
from substrate.objects.store.batch import Batch
from substrate.objects.store.loose import loose_path, object_id
from substrate.objects.store.object_store import ObjectStore
from substrate.objects.store.packwriter import PackWriter
from tests.unit.objects.conftest import SOMEONE, commit_snapshot, run_git


def _versions(rng: random.Random) -> list[bytes]:
    """Contents that git stores as deltas of each other, and some that it does not."""
    lines = [b"%d %d\n" % (number, rng.randrange(10**9)) for number in range(800)]
    out = [b"", b"x", rng.randbytes(5000), b"z" * 300_000]
    for _ in range(25):
        lines[rng.randrange(len(lines))] = b"changed %d\n" % rng.randrange(10**9)
        out.append(b"".join(lines))
    return out


@pytest.fixture
def contents() -> list[bytes]:
    return _versions(random.Random(7))


def _publish(store: ObjectStore, contents: list[bytes]) -> dict[bytes, bytes]:
    with Batch(store) as batch:
        oids = {batch.add_blob(data): data for data in contents}
        tree = batch.add_tree({b"f%d" % i: (0o100644, oid) for i, oid in enumerate(oids)})
        commit = batch.add_commit(Commit(tree, (), SOMEONE, SOMEONE, b"all\n"))
        batch.publish()
    (store.git_dir / "refs/heads/main").write_bytes(commit.hex().encode() + b"\n")
    return oids


def test_loose_objects_are_gits_own(store: ObjectStore, contents: list[bytes]) -> None:
    for oid, data in _publish(store, contents).items():
        assert run_git(store.git_dir, "cat-file", "blob", oid.hex()) == data
        assert store.read(oid) == ("blob", data)
    theirs = run_git(store.git_dir, "hash-object", "-w", "--stdin", stdin=b"from git")
    assert store.read_blob(bytes.fromhex(theirs.strip().decode())) == b"from git"
    run_git(store.git_dir, "fsck", "--strict", "--full")


@pytest.mark.parametrize("delta", ["ofs", "ref"])
def test_packs_made_by_git_are_read(store: ObjectStore, contents: list[bytes], delta: str) -> None:
    oids = _publish(store, contents)
    use_offsets = "true" if delta == "ofs" else "false"
    config = ("-c", f"repack.useDeltaBaseOffset={use_offsets}")
    run_git(store.git_dir, *config, "repack", "-adfq", "--depth=40", "--window=40")
    assert not list((store.git_dir / "objects").glob("??/*"))
    again = ObjectStore(store.git_dir)
    for reader in (store, again):
        for oid, data in oids.items():
            assert reader.has(oid)
            assert reader.read(oid) == ("blob", data)
    assert set(again.all_oids()) > set(oids)
    assert not again.has(bytes(20))


def test_our_pack_is_gits_own(store: ObjectStore, contents: list[bytes]) -> None:
    many = contents + [b"%d" % number for number in range(500)]
    many += [b"x" * size for size in (126, 127, 128, 129)]  # where compressing begins
    oids = _publish(store, many)
    assert len(list((store.git_dir / "objects/pack").glob("*.pack"))) == 1
    for name in ("pack", "idx"):
        [path] = (store.git_dir / "objects/pack").glob(f"*.{name}")
        assert path.stat().st_mode & 0o777 == 0o444
        run_git(store.git_dir, "verify-pack", str(path))
    run_git(store.git_dir, "fsck", "--strict", "--full")
    for oid, data in oids.items():
        assert store.read(oid) == ("blob", data)


@pytest.mark.parametrize("count", [3, 199, 201, 1500])
def test_many_contents_at_once_are_kept_as_one_by_one(store: ObjectStore, count: int) -> None:
    """Known ones, equal ones, large ones and some that the batch has already among them."""
    before = [b"known %d" % number for number in range(300)]
    _publish(store, before)
    many = [b"%d" % (number // 2) * (number % 90) for number in range(count)]
    many += [*before[:20], b"alone", b"y" * (300 << 10), b"z" * 128, b"z" * 129]
    with Batch(store) as batch:
        first = batch.add_blob(b"alone")
        oids = batch.add_blobs(many)
        assert batch.add_blobs(many, are_read_soon=False) == oids
        assert [batch.read_blob(oid) for oid in oids] == many
        added = batch.added_bytes
        batch.publish()
    assert oids == [object_id("blob", data) for data in many]
    assert first in oids
    assert added == sum(map(len, {*many} - {*before}))
    again = ObjectStore(store.git_dir)
    assert [again.read_blob(oid) for oid in oids] == many
    run_git(store.git_dir, "fsck", "--strict", "--full")


def test_contents_that_are_known_make_no_pack(store: ObjectStore) -> None:
    contents = [b"%d" % number for number in range(400)]
    _publish(store, contents)
    with Batch(store) as batch:
        batch.add_blobs(contents)
        assert not batch.added_bytes
        batch.publish()
    assert len(list((store.git_dir / "objects/pack").glob("*.pack"))) == 1


def test_big_trees_are_packed_as_they_are(store: ObjectStore) -> None:
    with Batch(store) as batch:
        oids = batch.add_blobs([b"%d" % number for number in range(3000)])
        tree = {b"%d" % number: (0o100644, oid) for number, oid in enumerate(oids)}
        tree_oid = batch.add_tree(tree)
        assert batch.read_tree(tree_oid) == tree
        batch.publish()
    size = len(run_git(store.git_dir, "cat-file", "tree", tree_oid.hex()))
    [idx] = (store.git_dir / "objects/pack").glob("*.idx")
    [line] = [
        one for one in run_git(store.git_dir, "verify-pack", "-v", str(idx)).splitlines()
        if one.startswith(tree_oid.hex().encode())
    ]  # fmt: skip
    assert int(line.split()[3]) > size
    assert ObjectStore(store.git_dir).read_tree(tree_oid) == tree
    run_git(store.git_dir, "fsck", "--strict", "--full")


def test_big_contents_that_do_not_shrink_are_stored_as_they_are(store: ObjectStore) -> None:
    noise, text = random.Random(2).randbytes(3 << 20), b"line of text\n" * 250_000
    with Batch(store) as batch:
        loose_oids = [batch.add_blob(noise), batch.add_blob(text)]
        for number in range(300):
            batch.add_blob(b"%d" % number)
        packed_oids = [batch.add_blob(noise + b"x"), batch.add_blob(text + b"x")]
        batch.publish()
    for oid, data in zip(
        loose_oids + packed_oids, (noise, text, noise + b"x", text + b"x"), strict=True
    ):
        assert store.read_blob(oid) == data
        assert run_git(store.git_dir, "cat-file", "blob", oid.hex()) == data
    [noise_size, text_size] = [
        os.stat(loose_path(store.objects_dir, oid)).st_size for oid in loose_oids
    ]
    assert len(noise) <= noise_size < len(noise) + 2000
    assert text_size < len(text) // 50


def test_offsets_beyond_two_gigabytes(store: ObjectStore) -> None:
    """The idx has a second table for them; a sparse pack shows that both sides agree."""
    writer = PackWriter(store.objects_dir)
    oid = object_id("blob", b"far away")
    writer._file.seek(3 << 31)
    writer._end = 3 << 31
    writer.add(oid, "blob", b"far away")
    index = writer._index(bytes(20))
    writer._file.close()
    pack_dir = store.git_dir / "objects/pack"
    (pack_dir / "pack-x.idx").write_bytes(index)
    [temp] = pack_dir.glob("tmp-*")
    with temp.open("r+b") as file:
        file.seek(8)
        file.write(struct.pack(">I", 1))
    temp.rename(pack_dir / "pack-x.pack")
    with (pack_dir / "pack-x.pack").open("ab") as file:
        file.write(bytes(20))
    assert store.read(oid) == ("blob", b"far away")


def test_objects_of_alternates_are_seen(
    store: ObjectStore, contents: list[bytes], tmp_path: Path
) -> None:
    oids = _publish(store, contents)
    other = ObjectStore(tmp_path / "other/.git")
    other.init()
    info = tmp_path / "other/.git/objects/info/alternates"
    info.write_text("# a comment\n../../../store/.git/objects\n")
    other = ObjectStore(tmp_path / "other/.git")
    for oid, data in oids.items():
        assert other.read_blob(oid) == data
    assert set(other.all_oids()) == set()


def test_a_damaged_copy_does_not_hide_the_one_in_an_alternate(
    store: ObjectStore, tmp_path: Path
) -> None:
    [oid] = _publish(store, [b"content"])
    other = ObjectStore(tmp_path / "other/.git")
    other.init()
    info = tmp_path / "other/.git/objects/info/alternates"
    info.write_text(f"{store.objects_dir}\n")
    torn = Path(loose_path(other.objects_dir, oid))
    torn.parent.mkdir()
    torn.write_bytes(b"torn")
    assert ObjectStore(tmp_path / "other/.git").read_blob(oid) == b"content"


def test_packing_by_another_process_is_noticed(store: ObjectStore, contents: list[bytes]) -> None:
    oids = _publish(store, contents)
    reader = ObjectStore(store.git_dir)
    first = next(iter(oids))
    assert reader.has(first)
    run_git(store.git_dir, "repack", "-adq")
    for oid, data in oids.items():
        assert reader.has(oid)
        assert reader.read_blob(oid) == data


def test_many_questions_are_answered_as_few_are(store: ObjectStore) -> None:
    """From some number on they are answered from a table, which must follow the packs."""
    several = [[b"%d %d" % (pack, n) for n in range(300)] for pack in range(3)]
    known = [oid for contents in several for oid in _publish(store, contents)]
    for number in range(1000):
        assert store.has_packed(known[number % len(known)])
        assert not store.has_packed(b"%020d" % number)
    more = list(_publish(ObjectStore(store.git_dir), [b"later %d" % n for n in range(300)]))
    assert all(store.has(oid) for oid in more)
    assert store.has_packed(more[0])
    run_git(store.git_dir, "repack", "-adq")
    store.reload()
    assert store.has_packed(known[0]) == (known[0] in set(store.all_oids()))


def test_a_big_idx_is_read_by_the_first_byte(store: ObjectStore) -> None:
    oids = _publish(store, [b"content %d" % number for number in range(6000)])
    [path] = (store.git_dir / "objects/pack").glob("*.idx")
    assert path.stat().st_size > 128 << 10  # smaller ones are read whole
    reader = ObjectStore(store.git_dir)
    for oid, data in list(oids.items())[::50]:
        assert reader.read_blob(oid) == data
        assert not reader.has(oid[:19] + bytes([oid[19] ^ 1]))
    assert set(oids) < set(reader.all_oids())
    assert reader.missing([*list(oids)[:5], bytes(20)]) == {bytes(20)}
    whole = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DamagedStoreError):
        ObjectStore(store.git_dir).read_blob(next(iter(oids)))


def _damages(data: bytes, rng: random.Random) -> list[bytes]:
    flipped = []
    for _ in range(30):
        at = rng.randrange(len(data))
        flipped.append(data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :])
    cuts = [0, 1, 5, 12, len(data) // 2, len(data) - 21, len(data) - 1]
    return [*flipped, *(data[:cut] for cut in cuts if cut >= 0), data + b"junk", bytes(len(data))]


def _read_all(git_dir: Path, oids: dict[bytes, bytes]) -> int:
    """Every object reads right or is reported as damaged; how many were reported."""
    reader = ObjectStore(git_dir)
    reported = 0
    for oid, data in oids.items():
        try:
            assert reader.read(oid) == ("blob", data)
        except DamagedStoreError as error:
            assert oid.hex() in error.message
            assert "substrate fsck" in error.hint
            reported += 1
    reader.close()
    return reported


def test_a_damaged_loose_object_is_reported(store: ObjectStore) -> None:
    rng = random.Random(3)
    for data in (b"", b"short", rng.randbytes(9000), rng.randbytes(70_000)):
        oids = _publish(store, [data])
        [oid] = oids
        path = Path(loose_path(store.objects_dir, oid))
        sound = path.read_bytes()
        harmless = 0
        for broken in _damages(sound, rng):
            path.unlink()
            path.write_bytes(broken)
            harmless += 1 - _read_all(store.git_dir, oids)
        assert harmless <= 3  # deflate pads its last byte with bits that mean nothing
        path.unlink()
        assert _read_all(store.git_dir, oids) == 1


def test_bytes_after_the_end_of_a_loose_object_are_reported(store: ObjectStore) -> None:
    [oid] = _publish(store, [b"content"])
    path = Path(loose_path(store.objects_dir, oid))
    path.chmod(0o644)
    path.write_bytes(path.read_bytes() + b"junk")
    with pytest.raises(DamagedStoreError, match=oid.hex()):
        store.read(oid)


def test_a_sound_object_under_another_name_is_reported(store: ObjectStore) -> None:
    first, second = _publish(store, [b"one", b"two"])
    paths = [Path(loose_path(store.objects_dir, oid)) for oid in (first, second)]
    content = paths[0].read_bytes()
    paths[1].chmod(0o644)
    paths[1].write_bytes(content)
    assert store.read(first) == ("blob", b"one")
    with pytest.raises(DamagedStoreError, match="does not hold what its name says"):
        store.read(second)


def test_an_idx_that_leads_to_other_objects_is_reported(
    store: ObjectStore, contents: list[bytes]
) -> None:
    oids = _publish(store, contents)
    run_git(store.git_dir, "repack", "-adfq")
    [path] = (store.git_dir / "objects/pack").glob("*.idx")
    path.chmod(0o644)
    data = path.read_bytes()
    count = struct.unpack(">I", data[8 + 1020 : 8 + 1024])[0]
    at = 8 + 1024 + 24 * count
    offsets = [data[at + 4 * i : at + 4 * i + 4] for i in range(count)]
    path.write_bytes(data[:at] + b"".join(offsets[1:] + offsets[:1]) + data[at + 4 * count :])
    assert _read_all(store.git_dir, oids) == len(oids)


@pytest.mark.parametrize("suffix", ["pack", "idx"])
@pytest.mark.parametrize("delta", ["ofs", "ref", "none"])
def test_a_damaged_pack_is_reported(
    store: ObjectStore, contents: list[bytes], suffix: str, delta: str
) -> None:
    rng = random.Random(5)
    oids = _publish(store, contents)
    use_offsets = "false" if delta == "ref" else "true"
    depth = "0" if delta == "none" else "40"
    config = ("-c", f"repack.useDeltaBaseOffset={use_offsets}")
    run_git(store.git_dir, *config, "repack", "-adfq", f"--depth={depth}")
    [path] = (store.git_dir / "objects/pack").glob(f"*.{suffix}")
    sound = path.read_bytes()
    path.chmod(0o644)
    reported = 0
    for broken in _damages(sound, rng):
        path.write_bytes(broken)
        reported += _read_all(store.git_dir, oids)
    assert reported > len(oids)
    path.write_bytes(sound)
    assert _read_all(store.git_dir, oids) == 0


def test_a_pack_cut_short_while_open_is_reported(store: ObjectStore, contents: list[bytes]) -> None:
    oids = _publish(store, contents)
    run_git(store.git_dir, "repack", "-adfq")
    first, *others = oids
    assert store.read_blob(first) == oids[first]
    [path] = (store.git_dir / "objects/pack").glob("*.pack")
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.truncate(40)
    for oid in others:
        with pytest.raises(DamagedStoreError):
            store.read(oid)


def test_one_damaged_copy_does_not_hide_a_sound_one(
    store: ObjectStore, contents: list[bytes]
) -> None:
    oids = _publish(store, contents)
    run_git(store.git_dir, "repack", "-aq")
    for oid in oids:
        path = Path(loose_path(store.objects_dir, oid))
        path.chmod(0o644)
        path.write_bytes(b"rubbish")
    assert _read_all(store.git_dir, oids) == 0
    idx = next((store.git_dir / "objects/pack").glob("*.idx"))
    shutil.copy(idx, idx.with_name("pack-broken.idx"))
    idx.with_name("pack-broken.pack").write_bytes(b"PACK")
    (idx.with_name("pack-worse.idx")).write_bytes(b"")
    (idx.with_name("pack-worse.pack")).write_bytes(b"")
    assert _read_all(store.git_dir, oids) == 0
    assert list(ObjectStore(store.git_dir).damaged_packs()) == ["pack-worse.idx"]


def test_an_object_of_another_kind_is_reported(store: ObjectStore) -> None:
    with Batch(store) as batch:
        blob = batch.add_blob(b"x")
        for reader in (batch, store):
            with pytest.raises(DamagedStoreError, match="is a blob where a tree should be"):
                reader.read_tree(blob)
            with pytest.raises(DamagedStoreError, match="is a blob where a commit should be"):
                reader.read_commit(blob)
            batch.publish()


def test_a_batch_sees_its_own_objects_wherever_they_are(store: ObjectStore) -> None:
    with Batch(store) as batch:
        small = batch.add_blob(b"")
        large = batch.add_blob(b"l" * (batch_module.LARGE_BYTES + 1))
        tree = batch.add_tree({b"x": (0o100644, small)})
        held = {oid for oid, _, _ in batch.small_objects()}
        assert held == {small, tree}
        assert ObjectStore(store.git_dir).has(large)
        assert not ObjectStore(store.git_dir).has(small)
        numbered = [batch.add_blob(b"%d" % number) for number in range(300)]
        for number, oid in enumerate(numbered):
            assert batch.read(oid) == ("blob", b"%d" % number)
            assert batch.has(oid)
        assert batch.read_blob(small) == b""
        assert batch.read_tree(tree) == {b"x": (0o100644, small)}
        assert batch.add_blob(b"17") == numbered[17]
        assert batch.small_objects() == []  # all of it went into a pack, now finished
        assert ObjectStore(store.git_dir).has(small)
        assert ObjectStore(store.git_dir).read_blob(numbered[299]) == b"299"
        later = batch.add_blob(b"later")
        assert [oid for oid, _, _ in batch.small_objects()] == [later]
        batch.publish()
    assert store.read_blob(later) == b"later"
    assert not list((store.git_dir / "objects").rglob("tmp*"))


def test_a_discarded_batch_leaves_no_files(store: ObjectStore) -> None:
    with Batch(store) as batch:
        for number in range(300):
            batch.add_blob(b"%d" % number)
        assert list((store.git_dir / "objects/pack").glob("tmp-substrate-*"))
    assert not list((store.git_dir / "objects/pack").iterdir())
    assert not store.has(object_id("blob", b"7"))


def test_what_a_crash_left_is_cleared_away(store: ObjectStore) -> None:
    with Batch(store) as batch:
        kept = batch.add_blob(b"kept")
        batch.publish()
    loose = Path(loose_path(store.objects_dir, kept))
    leftovers = [
        loose.with_name("tmp_obj_0123"),
        store.git_dir / "objects/pack/tmp-substrate-0123.pack",
        store.git_dir / "objects/pack/tmp_pack_x",
        store.git_dir / "tmp-substrate-ref-0123",
    ]
    for path in leftovers:
        path.write_bytes(b"half of it")
    assert sorted(store.remove_leftovers()) == sorted(str(path) for path in leftovers)
    assert not any(path.exists() for path in leftovers)
    assert store.read_blob(kept) == b"kept"


def test_replaying_a_log_mends_a_torn_object(store: ObjectStore) -> None:
    with Batch(store) as batch:
        oid = batch.add_blob(b"content")
        [(_, kind, data)] = batch.small_objects()
        batch.publish()
    path = Path(loose_path(store.objects_dir, oid))
    path.chmod(0o644)
    path.write_bytes(b"")  # what a power cut leaves of a file that was never synced
    with pytest.raises(DamagedStoreError):
        store.read(oid)
    store.write_loose(oid, kind, data)
    assert store.read(oid) == ("blob", b"content")
    assert store.sync_loose([oid, bytes(20)]) == [bytes(20)]
    with pytest.raises(DamagedStoreError):
        store.write_loose(oid, kind, b"something else")


def test_a_store_is_made_once(store: ObjectStore) -> None:
    config = store.git_dir / "config"
    config.write_bytes(config.read_bytes() + b"[user]\n\tname = x\n")
    before = config.read_bytes()
    store.init()
    assert config.read_bytes() == before
    assert run_git(store.git_dir, "config", "gc.auto").strip() == b"0"
    assert run_git(store.git_dir, "rev-parse", "--is-bare-repository").strip() == b"false"
    with Batch(store) as batch:
        batch.add_tree({})
        commit_snapshot(batch, EMPTY)
        batch.publish()
    assert b"state" in run_git(store.git_dir, "log")


def test_user_content_does_not_trip_fsck(store: ObjectStore) -> None:
    with Batch(store) as batch:
        bad = batch.add_blob(b'[submodule "../../x"]\n\tpath = -x\n\turl = -u\n[broken\n')
        long_line = batch.add_blob(b"* " + b"a" * 5000 + b"\n")
        modules = {b".gitmodules": (0o100644, bad), b".gitattributes": (0o100644, long_line)}
        links = dict.fromkeys((b".gitmodules", b".gitignore", b".mailmap"), (0o120000, bad))
        tree = batch.add_tree(
            {b"a": (0o040000, batch.add_tree(modules)), b"b": (0o040000, batch.add_tree(links))}
        )
        commit = batch.add_commit(Commit(tree, (), SOMEONE, SOMEONE, b"x\n"))
        batch.publish()
    (store.git_dir / "refs/heads/main").write_bytes(commit.hex().encode() + b"\n")
    run_git(store.git_dir, "fsck", "--strict", "--full")


def test_commits_round_trip_and_git_likes_them(store: ObjectStore) -> None:
    odd = signature("A <b>\nc", "x@y>\n", -5)
    assert odd == b"A bc <x@y> 0 +0000"
    with Batch(store) as batch:
        tree = batch.add_tree({})
        first = batch.add_commit(Commit(tree, (), SOMEONE, SOMEONE, b"one\0\n"))
        commit = Commit(
            tree,
            (first,),
            odd,
            SOMEONE,
            b"cmd: s-1/c-1 x\n\nbody\n",
            ((b"substrate-attrs", b"ab" * 20), (b"note", b"two\nlines")),
        )
        oid = batch.add_commit(commit)
        batch.publish()
    assert store.read_commit(oid) == commit
    assert commit.header(b"note") == b"two\nlines"
    assert commit.header(b"none") is None
    assert commit.time_s == 1_700_000_000
    (store.git_dir / "refs/heads/main").write_bytes(oid.hex().encode() + b"\n")
    run_git(store.git_dir, "fsck", "--strict")
    shown = run_git(store.git_dir, "log", "--format=%an|%ct|%s", "-1")
    assert shown == b"A bc|1700000000|cmd: s-1/c-1 x\n"
    for damaged in (b"", b"tree x\n\n", serialize_commit(commit)[:60]):
        with pytest.raises(DamagedStoreError):
            parse_commit(damaged)
