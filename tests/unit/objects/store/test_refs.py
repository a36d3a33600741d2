"""Refs, seen from both sides: ours and git's."""

from __future__ import annotations

import pytest

from substrate.errors import DamagedStoreError, RefusedError, UsageError
from substrate.objects.snapshots.snapshot import EMPTY
from substrate.objects.store.batch import Batch
from substrate.objects.store.object_store import ObjectStore
from substrate.objects.store.refs import delete_ref, list_refs, read_ref, write_ref
from tests.unit.objects.conftest import commit_snapshot, run_git


@pytest.fixture
def commit(store: ObjectStore) -> bytes:
    with Batch(store) as batch:
        batch.add_tree({})
        oid = commit_snapshot(batch, EMPTY)
        batch.publish()
    return oid


def test_git_reads_what_we_write_and_the_reverse(store: ObjectStore, commit: bytes) -> None:
    git_dir = store.git_dir
    write_ref(git_dir, "refs/tags/cp/task/s-1/1", commit, durable=True)
    assert run_git(git_dir, "rev-parse", "cp/task/s-1/1").strip() == commit.hex().encode()
    run_git(git_dir, "update-ref", "refs/heads/other", commit.hex())
    assert read_ref(git_dir, "refs/heads/other") == commit
    assert read_ref(git_dir, "HEAD") == commit
    assert read_ref(git_dir, "refs/heads/none") is None


def test_packed_refs_are_read_listed_and_deleted(store: ObjectStore, commit: bytes) -> None:
    git_dir = store.git_dir
    for name in ("refs/tags/a", "refs/tags/b/c", "refs/heads/x"):
        write_ref(git_dir, name, commit)
    run_git(git_dir, "tag", "-a", "-m", "annotated", "ann", commit.hex())
    run_git(git_dir, "pack-refs", "--all")
    write_ref(git_dir, "refs/tags/loose", commit)
    assert list(list_refs(git_dir, "refs/tags/")) == [
        "refs/tags/a",
        "refs/tags/ann",
        "refs/tags/b/c",
        "refs/tags/loose",
    ]
    assert delete_ref(git_dir, "refs/tags/b/c")
    assert delete_ref(git_dir, "refs/tags/loose")
    assert not delete_ref(git_dir, "refs/tags/b/c")
    assert read_ref(git_dir, "refs/tags/b/c") is None
    shown = run_git(git_dir, "for-each-ref", "--format=%(refname) %(*objectname)", "refs/tags")
    assert shown == b"refs/tags/a \nrefs/tags/ann " + commit.hex().encode() + b"\n"
    run_git(git_dir, "fsck", "--strict")


def test_a_directory_left_by_older_refs_is_no_obstacle(store: ObjectStore, commit: bytes) -> None:
    git_dir = store.git_dir
    (git_dir / "refs/tags/a/b/c").mkdir(parents=True)
    write_ref(git_dir, "refs/tags/a", commit)
    assert read_ref(git_dir, "refs/tags/a") == commit
    with pytest.raises(RefusedError):
        write_ref(git_dir, "refs/tags/a/b", commit)
    write_ref(git_dir, "refs/tags/d/e", commit)
    with pytest.raises(RefusedError):
        write_ref(git_dir, "refs/tags/d", commit)
    assert not [path for path in git_dir.iterdir() if path.name.startswith("tmp-")]


@pytest.mark.parametrize(
    "name",
    [
        "main",
        "refs/../../x",
        "refs/heads/.x",
        "refs/heads/x.lock",
        "refs/heads/a b",
        "refs/heads/a~1",
        "refs/heads/",
        "refs//x",
        "refs/heads/@{x",
        "/refs/x",
        "refs/heads/a\nb",
        "refs/heads/x.",
    ],
)
def test_names_that_git_refuses_are_refused(store: ObjectStore, name: str) -> None:
    with pytest.raises(UsageError):
        read_ref(store.git_dir, name)
    with pytest.raises(UsageError):
        write_ref(store.git_dir, name, bytes(20))


@pytest.mark.parametrize("content", [b"", b"\0" * 41, b"deadbeef\n", b"ref: refs/heads/main\n"])
def test_a_damaged_ref_is_reported(store: ObjectStore, content: bytes) -> None:
    (store.git_dir / "refs/heads/main").write_bytes(content)
    with pytest.raises(DamagedStoreError):
        read_ref(store.git_dir, "refs/heads/main")


def test_an_emptied_head_is_reported(store: ObjectStore) -> None:
    (store.git_dir / "HEAD").write_bytes(b"")
    with pytest.raises(DamagedStoreError):
        read_ref(store.git_dir, "HEAD")


def test_malformed_packed_refs_are_reported(store: ObjectStore) -> None:
    (store.git_dir / "packed-refs").write_bytes(b"# pack-refs\nnonsense\n")
    with pytest.raises(DamagedStoreError):
        list_refs(store.git_dir)
