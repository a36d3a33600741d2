"""The object store: exact, verified, complete, also with concurrent writers."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from substrate.errors import DamagedStoreError, NotFoundError, RefusedError, WorkspaceError
from substrate.packs.format.manifest import Manifest
from substrate.packs.store.ctx_store import Store, find_store, make_store, open_store
from substrate.packs.store.gc import collect
from substrate.packs.store.object_files import MissingObjectError


def test_layout_is_the_seeds(store: Store) -> None:
    ref = store.objects.write(b"hello").ref
    digits = hashlib.sha256(b"hello").hexdigest()
    assert ref == f"sha256:{digits}"
    assert (store.directory / "objects" / digits[:2] / digits[2:]).read_bytes() == b"hello"
    assert {p.name for p in store.directory.iterdir()} >= {
        "objects",
        "packs",
        "refs",
        "config.json",
    }


def test_a_pack_is_listed_as_the_original_lists_it(store: Store, manifest: Manifest) -> None:
    pack = store.add(manifest)
    assert (store.packs_dir / pack.ref[7:]).read_bytes() == pack.ref.encode()
    assert store.packs() == [pack.ref]
    assert store.add(manifest).ref == pack.ref


@pytest.mark.parametrize("size", [0, 1, 1 << 20, (1 << 20) + 1])
def test_chunks_and_bytes_are_stored_alike(store: Store, size: int) -> None:
    data = os.urandom(size)
    stored = store.objects.write_chunks(data[at : at + 70_000] for at in range(0, size, 70_000))
    assert stored == store.objects.write(data)
    assert store.objects.read(stored.ref) == data
    assert b"".join(store.objects.chunks(stored.ref)) == data
    assert store.objects.read(stored.ref, limit=10) == data[:10]


def test_a_wrong_promise_stores_nothing(store: Store) -> None:
    with pytest.raises(ValueError, match="hash"):
        store.objects.write_chunks([b"evil"], expected="sha256:" + "0" * 64)
    assert list(store.objects) == []
    assert list(store.scratch.iterdir()) == []


def test_a_writer_that_fails_leaves_nothing(store: Store) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="gone"):
        store.objects.write_chunks(broken())
    assert list(store.objects) == []
    assert list(store.scratch.iterdir()) == []


def test_damage_is_noticed_by_every_reader(store: Store) -> None:
    ref = store.objects.write(b"hello").ref
    path = store.objects.path(ref)
    path.chmod(0o600)
    path.write_bytes(b"hellO")
    for read in (
        store.objects.read,
        store.objects.check,
        lambda ref: list(store.objects.chunks(ref)),
    ):
        with pytest.raises(DamagedStoreError, match="damaged"):
            read(ref)


def test_nothing_of_a_damaged_object_is_handed_out(store: Store) -> None:
    ref = store.objects.write(b"x" * 3_000_000).ref
    path = store.objects.path(ref)
    path.chmod(0o600)
    with path.open("r+b") as file:
        file.seek(2_999_999)
        file.write(b"y")
    handed_out: list[bytes] = []
    with pytest.raises(DamagedStoreError):
        handed_out.extend(store.objects.chunks(ref))
    assert handed_out == []


def test_writing_again_heals_a_damaged_object(store: Store) -> None:
    ref = store.objects.write(b"hello").ref
    path = store.objects.path(ref)
    path.chmod(0o600)
    path.write_bytes(b"hellO")
    assert store.objects.write(b"hello").ref == ref
    assert store.objects.read(ref) == b"hello"


def test_a_missing_object_differs_from_a_damaged_one(store: Store) -> None:
    with pytest.raises(MissingObjectError, match="missing"):
        store.objects.read("sha256:" + "0" * 64)


@pytest.mark.needs("posix")
def test_a_fifo_or_a_link_in_place_of_an_object_neither_hangs_nor_leads_out(
    store: Store, tmp_path: Path
) -> None:
    ref = store.objects.write(b"hello").ref
    path = store.objects.path(ref)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DamagedStoreError, match="cannot be read"):
        store.objects.read(ref)
    path.unlink()
    (tmp_path / "elsewhere").write_bytes(b"hello")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedStoreError, match="cannot be read"):
        store.objects.read(ref)
    assert store.objects.write(b"hello").ref == ref
    assert not path.is_symlink()
    assert store.objects.read(ref) == b"hello"


def test_loading_what_is_no_pack(store: Store) -> None:
    blob = store.objects.write(b"just text").ref
    with pytest.raises(NotFoundError, match="no pack: it is not JSON"):
        store.load(blob)
    with pytest.raises(NotFoundError, match="no pack 000000000000"):
        store.load("sha256:" + "0" * 64)


def test_a_store_is_found_from_below_and_completed(tmp_path: Path) -> None:
    (tmp_path / ".ctx" / "objects").mkdir(parents=True)
    (tmp_path / "a" / "b").mkdir(parents=True)
    assert find_store(tmp_path / "a" / "b").directory == tmp_path / ".ctx"
    assert (tmp_path / ".ctx" / "drafts").is_dir()
    assert (tmp_path / ".ctx" / "config.json").is_file()


def test_a_newer_format_is_left_alone(store: Store) -> None:
    (store.directory / "config.json").write_text('{"version": "0.9"}')
    with pytest.raises(WorkspaceError, match=r"0\.9"):
        open_store(store.directory)
    (store.directory / "config.json").write_text("nonsense")
    with pytest.raises(WorkspaceError, match="JSON"):
        open_store(store.directory)


@pytest.mark.needs("symlinks")
def test_a_link_in_place_of_a_directory_is_refused(store: Store, tmp_path: Path) -> None:
    (store.directory / "tmp").rmdir()
    (store.directory / "tmp").symlink_to(tmp_path)
    with pytest.raises(WorkspaceError, match="link"):
        open_store(store.directory)


@pytest.mark.needs("root")
def test_another_users_store_is_refused(store: Store) -> None:
    os.chown(store.directory, 12345, 12345)
    with pytest.raises(RefusedError, match="another user"):
        open_store(store.directory)


WRITER = """
import sys
from pathlib import Path
from substrate.packs.store.ctx_store import Store
store = Store(Path(sys.argv[1]))
sys.stdin.readline()
for n in range(40):
    with store.writing("test"):
        store.objects.write(b"%d" % n * 100)
        store.objects.sync()
"""


def test_many_processes_write_the_same_objects(store: Store) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(store.directory)],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for _ in range(6)
    ]
    told = [writer.communicate(b"go\n") for writer in writers]
    assert [(writer.returncode, err) for writer, (_, err) in zip(writers, told, strict=True)] == [
        (0, b"")
    ] * 6
    refs = list(store.objects)
    assert len(refs) == 40
    for ref in refs:
        store.objects.check(ref)
    assert list(store.scratch.iterdir()) == []


def test_making_a_store_twice_changes_nothing(store: Store) -> None:
    (store.directory / "config.json").write_text('{"version": "0.1", "sidecars": true}')
    make_store(store.directory)
    assert "sidecars" in (store.directory / "config.json").read_text()


@pytest.mark.needs("symlinks")
def test_a_link_among_the_objects_is_not_followed(store: Store, tmp_path: Path) -> None:
    """Neither are objects written through it, nor does the collector clear up behind it."""
    ref = store.objects.write(b"hello").ref
    fan = store.objects.path(ref).parent
    outside = tmp_path / "outside"
    fan.rename(outside)
    fan.symlink_to(outside)
    assert list(store.objects) == []
    store.objects.path(ref).unlink()
    with pytest.raises(DamagedStoreError, match="is a link"):
        store.objects.write(b"hello")
    (outside / ref[9:]).write_bytes(b"mine")
    collect(store)
    assert (outside / ref[9:]).read_bytes() == b"mine"
    assert not fan.exists()
    assert store.objects.write(b"hello").ref == ref
