"""The scan where the system has no ``openat`` and no O_NOFOLLOW, as on Windows."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from substrate.errors import WorkspaceError
from substrate.model.nodes import ABSENT, Kind
from substrate.model.paths import ROOT
from substrate.workspace.paths import nofollow_path
from substrate.workspace.scan.tree_scan import node_at, observe
from tests.unit.workspace.naive import Bench, Blobs, blob_id, rel, walk


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(nofollow_path, "BY_DESCRIPTOR", False)
    return Bench(tmp_path)


def test_the_same_findings(bench: Bench) -> None:
    for number in range(30):
        bench.write(f"d{number % 3}/e/f{number}", str(number))
    (bench.root / "empty").mkdir()
    assert bench.settled().seen == walk(bench.root)
    assert (bench.scan().seen, bench.blobs.reads) == ({}, 0)
    bench.write("d1/e/f1", "edited")
    shutil.rmtree(bench.root / "d2")
    (bench.root / "d0").rename(bench.root / "moved")
    result = bench.settled()
    assert result.seen[rel("d1/e/f1")].oid == blob_id(b"edited")
    assert result.seen[rel("d2/e")] == ABSENT
    bench.check()
    assert observe(bench.root, [ROOT], bench.exclusions, Blobs()) == walk(bench.root)


@pytest.mark.needs("symlinks")
def test_links_are_not_followed(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("not ours")
    bench.write("d/f", "ours")
    bench.settled()
    shutil.rmtree(bench.root / "d")
    (bench.root / "d").symlink_to(outside)
    result = bench.settled()
    assert result.seen[rel("d")].kind is Kind.SYMLINK
    assert result.seen[rel("d/f")] == ABSENT
    assert node_at(bench.root, rel("d/f"), Blobs()) == ABSENT
    assert blob_id(b"not ours") not in bench.blobs
    bench.check()


@pytest.mark.needs("user-xattrs")
def test_attributes(bench: Bench) -> None:
    bench.write("d/f")
    os.setxattr(bench.root / "d", "user.a", b"1")
    os.setxattr(bench.root / "d/f", "user.b", b"2")
    bench.settled()
    bench.check()
    assert node_at(bench.root, rel("d"), Blobs()).xattrs == ((b"user.a", b"1"),)


def test_no_workspace(bench: Bench) -> None:
    bench.root.rmdir()
    with pytest.raises(WorkspaceError):
        bench.scan()


def test_a_junction_is_not_entered(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What Windows calls a mount point looks like a directory and leads elsewhere."""
    bench.write("junction/f")
    real = nofollow_path.is_real_directory
    inode = (bench.root / "junction").stat().st_ino
    monkeypatch.setattr(
        nofollow_path, "is_real_directory", lambda info: real(info) and info.st_ino != inode
    )
    result = bench.scan()
    assert result.seen == {}
    assert list(result.unreadable) == [rel("junction")]
    assert observe(bench.root, [rel("junction/f")], bench.exclusions, Blobs()) == {
        rel("junction/f"): ABSENT
    }
