"""``index.lock``: exclusive also for git, marked with its owner, and taken over after a crash."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from substrate.errors import LockedError
from substrate.objects.index.index_lock import ARRIVAL, REWRITE, IndexLock, held


def test_only_one_holds_it(tmp_path: Path) -> None:
    first, second = IndexLock(tmp_path, REWRITE), IndexLock(tmp_path, REWRITE)
    first.acquire("c-1")
    with pytest.raises(LockedError, match=r"index\.lock exists"):
        second.acquire("c-2")
    second.release()
    assert first.is_ours(), "the one that did not get it leaves it alone"
    first.release()
    second.acquire("c-2")


def test_git_does_not_stage_while_it_is_held(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "a").write_text("a\n")
    add = ["git", "-C", str(tmp_path), "add", "a"]
    lock = IndexLock(tmp_path / ".git", REWRITE)
    lock.acquire("c-1")
    refused = subprocess.run(add, capture_output=True, check=False)
    assert b"index.lock" in refused.stderr
    lock.release()
    subprocess.run(add, check=True)


def test_a_lock_belongs_to_its_owner(tmp_path: Path) -> None:
    rewrite, arrival = IndexLock(tmp_path, REWRITE), IndexLock(tmp_path, ARRIVAL)
    rewrite.acquire("c-1")
    arrival.clear_left()
    assert rewrite.is_ours() and not arrival.is_ours()
    with pytest.raises(LockedError, match="another git"):
        arrival.adopt("recovery")
    IndexLock(tmp_path, REWRITE).adopt("recovery")
    rewrite.clear_left()
    assert not os.path.lexists(rewrite.path)


def test_a_lock_of_an_older_version_is_taken_over(tmp_path: Path) -> None:
    """It was a file with the same mark."""
    lock = IndexLock(tmp_path, REWRITE)
    lock.path.write_bytes(b"substrate rewrite c-1\n")
    lock.adopt("recovery")
    lock.release()
    assert not lock.path.exists()


def test_gits_own_lock_stays(tmp_path: Path) -> None:
    lock = IndexLock(tmp_path, REWRITE)
    lock.path.write_bytes(b"")
    with pytest.raises(LockedError, match="another git"):
        lock.adopt("recovery")
    lock.clear_left()
    assert lock.path.exists()


def test_without_symlinks_a_rewrite_locks_with_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(target: str, path: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "symlink", refuse)
    lock = IndexLock(tmp_path, REWRITE)
    lock.acquire("c-1")
    assert lock.path.read_bytes() == b"substrate rewrite c-1"
    with pytest.raises(LockedError):
        IndexLock(tmp_path, REWRITE).acquire("c-2")
    lock.release()
    with held(tmp_path):  # an arrival goes on without
        assert not os.path.lexists(lock.path)


@pytest.mark.needs("posix")
def test_a_fifo_in_its_place_blocks_no_call(tmp_path: Path) -> None:
    lock = IndexLock(tmp_path, ARRIVAL)
    os.mkfifo(lock.path)
    assert not lock.is_ours()
