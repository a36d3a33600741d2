"""Checking a store, and clearing it up: every flipped bit is named, nothing needed is removed."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from substrate.errors import DamagedStoreError, RefusedError
from substrate.packs.format.manifest import Manifest, Output, Step
from substrate.packs.store import pack_refs
from substrate.packs.store.ctx_store import Store
from substrate.packs.store.forks import fork
from substrate.packs.store.fsck import StoreFinding, check_store
from substrate.packs.store.gc import collect


@pytest.fixture
def full(store: Store, manifest: Manifest) -> Store:
    """A store of exactly 200 objects: four packs and what they need."""
    for number in range(4):
        steps = tuple(
            Step(
                n,
                "tool_call",
                "shell",
                {"n": n},
                store.objects.write(b"%d:%d" % (number, n)).ref,
                True,
            )
            for n in range(47)
        )
        result = store.objects.write(b"result %d" % number).ref
        made = manifest._replace(steps=steps, outputs=(Output(f"r{number}", result),))
        pack_refs.set_latest(store, store.add(made).ref)
    while len(list(store.objects)) < 200:
        store.objects.write(os.urandom(8))
    assert len(list(store.objects)) == 200
    return store


def damaged(store: Store) -> list[StoreFinding]:
    return [finding for finding in check_store(store).findings if finding.kind == "damaged"]


def flipped(path: Path, bit: int) -> Iterator[None]:
    """Flip a bit, and back afterwards."""
    path.chmod(0o600)
    whole = path.read_bytes()
    data = bytearray(whole)
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    yield
    path.write_bytes(whole)


def test_a_sound_store(full: Store) -> None:
    health = check_store(full)
    assert (health.objects, health.packs, health.findings) == (200, 4, ())


def test_a_flipped_bit_in_any_object_is_found_and_named(full: Store) -> None:
    """One flip in each of the 200 objects, each with a full check of the whole store."""
    rng = random.Random(7)
    for ref in list(full.objects):
        path = full.objects.path(ref)
        for _ in flipped(path, rng.randrange(path.stat().st_size * 8)):
            (finding,) = damaged(full)
            assert finding.what == ref
            assert finding.breaks
    assert check_store(full).is_sound


@pytest.mark.parametrize("stride", [61, pytest.param(1, marks=pytest.mark.long)])
def test_every_bit_of_every_object_matters(full: Store, stride: int) -> None:
    """All bits of small objects, every 61st of large ones; each must fail its object's check."""
    for ref in list(full.objects):
        path = full.objects.path(ref)
        path.chmod(0o600)
        whole = path.read_bytes()
        fd = os.open(path, os.O_RDWR)
        for bit in range(0, len(whole) * 8, 1 if len(whole) < 30 else stride):
            os.pwrite(fd, bytes([whole[bit // 8] ^ (1 << bit % 8)]), bit // 8)
            with pytest.raises(DamagedStoreError, match=ref[7:19]):
                full.objects.check(ref)
            os.pwrite(fd, whole[bit // 8 : bit // 8 + 1], bit // 8)
        os.close(fd)
    assert check_store(full).is_sound


def test_what_a_damaged_object_breaks_is_reported(store: Store, manifest: Manifest) -> None:
    pack = store.add(manifest)
    pack_refs.set_tag(store, "v1", pack.ref)
    shared = manifest.inputs[0].content_ref
    for _ in flipped(store.objects.path(shared), 3):
        (finding,) = damaged(store)
        where = f"pack {pack.ref[7:19]} (v1)"
        assert finding.breaks == (f"{where}: inputs[0] (file.py)", f"{where}: steps[0].output")
    for _ in flipped(store.objects.path(pack.ref), 8):
        (finding,) = damaged(store)
        assert finding.breaks == (f"{where}: manifest",)
    store.objects.path(shared).unlink()
    (missing,) = check_store(store).findings
    assert (missing.kind, missing.what, len(missing.breaks)) == ("missing", shared, 2)


def test_names_listings_and_strays(store: Store, manifest: Manifest) -> None:
    pack = store.add(manifest)
    pack_refs.set_tag(store, "good", pack.ref)
    (store.refs_dir / "tags" / "bad").write_text("nonsense")
    (store.refs_dir / "tags" / "dangling").write_text("sha256:" + "0" * 64)
    (store.packs_dir / pack.ref[7:]).write_text("sha256:" + "1" * 64)
    store.register(manifest.system_prompt)
    (store.directory / "objects" / "ab").mkdir(exist_ok=True)
    (store.directory / "objects" / "ab" / "x.tmp").write_text("the original leaves these")
    found = {(finding.kind, finding.what) for finding in check_store(store).findings}
    assert found == {
        ("ref", "refs/tags/bad"),
        ("ref", "refs/tags/dangling"),
        ("listing", f"packs/{pack.ref[7:]}"),
        ("not-a-pack", manifest.system_prompt),
        ("stray", "objects/ab/x.tmp"),
    }


def test_only_what_nothing_leads_to_is_collected(store: Store, manifest: Manifest) -> None:
    parent = store.add(manifest)
    mentioned = store.objects.write(b"only a parameter names this").ref
    step = Step(0, "t", "t", {"tree": mentioned}, "", True)
    child = store.add(manifest._replace(parent=parent.ref, steps=(step,)))
    os.unlink(store.packs_dir / parent.ref[7:])  # unlisted, but a parent
    drafted = store.objects.write(b"only a draft names this").ref
    path = fork(store, child)
    path.write_text(path.read_text().replace(manifest.system_prompt, drafted))
    garbage = store.objects.write(b"garbage").ref
    (store.scratch / "object-1-dead").write_text("half")
    before = set(store.objects)
    plan = collect(store, dry_run=True)
    assert set(store.objects) == before
    assert plan.objects == (garbage,)
    assert plan.leftovers == ("tmp/object-1-dead",)
    assert plan.bytes == len(b"garbage") + 4
    assert collect(store) == plan
    assert set(store.objects) == before - {garbage}
    assert list(store.scratch.iterdir()) == []
    assert collect(store).objects == ()


def test_nothing_is_collected_while_a_manifest_is_damaged(store: Store, manifest: Manifest) -> None:
    pack = store.add(manifest)
    store.objects.write(b"garbage")
    before = set(store.objects)
    for _ in flipped(store.objects.path(pack.ref), 100):
        with pytest.raises(DamagedStoreError, match="nothing was removed"):
            collect(store)
        assert set(store.objects) == before
    assert len(collect(store).objects) == 1


def test_dropping_packs(store: Store, manifest: Manifest) -> None:
    keep = store.add(manifest)
    parent = store.add(manifest._replace(created="2026-02-11T00:00:00Z"))
    child = store.add(manifest._replace(parent=parent.ref))
    pack_refs.set_latest(store, child.ref)
    with pytest.raises(RefusedError, match="was forked from"):
        collect(store, [parent.ref])
    pack_refs.set_tag(store, "v1", child.ref)
    with pytest.raises(RefusedError, match="is tagged v1"):
        collect(store, [child.ref])
    pack_refs.delete_tag(store, "v1")
    done = collect(store, [child.ref, parent.ref])
    assert set(done.objects) == {child.ref, parent.ref}
    assert store.packs() == [keep.ref]
    assert pack_refs.latest(store) == keep.ref
    assert check_store(store).is_sound


PACKER = """
import io, json, sys
from pathlib import Path
from substrate.packs.store.log_to_pack import LogFile, pack_log
from substrate.packs.store.ctx_store import Store
store = Store(Path(sys.argv[1]))
for n in range(25):
    steps = [{"type": "t", "tool": "t", "output": f"{sys.argv[2]} {n} {k}"} for k in range(5)]
    log = {"model": {"identifier": "m"}, "system_prompt": "p", "steps": steps,
           "environment": {"os": "l", "runtime": "r"}}
    pack_log(store, LogFile("log", io.BytesIO(json.dumps(log).encode()), (store.directory,)))
"""


def test_collecting_beside_running_packs_takes_nothing_of_theirs(store: Store) -> None:
    packers = [
        subprocess.Popen([sys.executable, "-c", PACKER, str(store.directory), name])
        for name in ("a", "b", "c")
    ]
    rounds = 0
    while any(packer.poll() is None for packer in packers):
        collect(store)
        rounds += 1
        time.sleep(0.005)
    assert [packer.returncode for packer in packers] == [0, 0, 0]
    assert rounds > 1
    assert len(store.packs()) == 75
    assert check_store(store).findings == ()
