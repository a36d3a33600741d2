"""What the object tests share: a fresh store, and plain git looking at it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from substrate.objects.snapshots.commits import Commit, signature
from substrate.objects.snapshots.snapshot import Snapshot
from substrate.objects.store.batch import Batch
from substrate.objects.store.object_store import ObjectStore

SOMEONE = signature("Ada", "ada@example.invalid", 1_700_000_000)

RunGit = Callable[..., bytes]


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    store = ObjectStore(tmp_path / "store" / ".git")
    store.init()
    return store


def run_git(git_dir: Path, *args: str | bytes, stdin: bytes = b"") -> bytes:
    """Plain git on a store, as a power user would run it; its stdout."""
    done = subprocess.run(
        ["git", f"--git-dir={git_dir}", *args], input=stdin, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def commit_snapshot(batch: Batch, snap: Snapshot, *parents: bytes) -> bytes:
    """A commit of the main tree, and one of the attrs tree so that git reaches it too."""
    commit = batch.add_commit(Commit(snap.tree, parents, SOMEONE, SOMEONE, b"state\n"))
    git_dir = batch.store.git_dir
    (git_dir / "refs/heads/main").write_bytes(commit.hex().encode() + b"\n")
    if snap.attrs:
        attrs = batch.add_commit(Commit(snap.attrs, (), SOMEONE, SOMEONE, b"attrs\n"))
        (git_dir / "refs/heads/attrs").write_bytes(attrs.hex().encode() + b"\n")
    return commit
