"""Observing named paths: exact, never through a link, and only what was asked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from substrate.errors import WorkspaceError
from substrate.model.nodes import ABSENT, Kind
from substrate.model.paths import ROOT, RelPath
from substrate.workspace.exclude import Exclusions
from substrate.workspace.scan.tree_scan import StatCache, node_at, observe
from tests.unit.workspace.naive import Bench, Blobs, blob_id, later, node, rel, walk


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_files_directories_and_nothing(bench: Bench) -> None:
    for path in ("a", "d/e/f", "d/g", "other/h", "d/node_modules/x", "d/.git/HEAD"):
        bench.write(path, path)
    (bench.root / "d/empty").mkdir()
    blobs = Blobs()
    wanted = [rel(path) for path in ("a", "d", "gone", "gone/below", "a/below", "other/h")]
    found = observe(bench.root, wanted, bench.exclusions, blobs)
    tree = walk(bench.root)
    expected = {path: tree[path] for path in tree if path not in (b"other",)}
    absent = dict.fromkeys(map(rel, ("gone", "gone/below", "a/below")), ABSENT)
    assert found == expected | absent
    assert blobs[blob_id(b"d/e/f")] == b"d/e/f"


def test_the_root_is_everything(bench: Bench) -> None:
    bench.write("a")
    bench.write("d/b")
    assert observe(bench.root, [ROOT], bench.exclusions, Blobs()) == walk(bench.root)


@pytest.mark.needs("symlinks")
def test_below_a_link_nothing_is_there(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "d").mkdir(parents=True)
    (outside / "d" / "f").write_text("not ours")
    (bench.root / "link").symlink_to(outside)
    blobs = Blobs()
    wanted = [rel("link/d/f"), rel("link/d"), rel("link")]
    found = observe(bench.root, wanted, bench.exclusions, blobs)
    assert found[rel("link/d/f")] == found[rel("link/d")] == ABSENT
    assert found[rel("link")].oid == blob_id(os.fsencode(outside))
    assert node_at(bench.root, rel("link/d/f"), blobs) == ABSENT
    assert blob_id(b"not ours") not in blobs


def test_excluded_paths_are_left_out(bench: Bench) -> None:
    bench.write("node_modules/p/x")
    bench.write(".git/HEAD")
    bench.write("big", "x" * 100)
    wanted = list(map(rel, ("node_modules/p/x", "node_modules", ".git/HEAD", ".git/gone", "big")))
    assert observe(bench.root, wanted, Exclusions(size_cap_bytes=99), Blobs()) == {}


def test_the_cache_saves_reading(bench: Bench) -> None:
    bench.write("d/a", "1111")
    bench.write("d/b", "2222")
    bench.settled()
    bench.write("d/b", "3333")
    blobs = Blobs()
    found = observe(bench.root, [rel("d")], bench.exclusions, blobs, bench.cache)
    assert found == walk(bench.root)
    assert list(blobs.values()) == [b"3333"]


def test_a_racy_cache_is_not_believed(bench: Bench) -> None:
    bench.write("a", "1111")
    bench.scan()
    blobs = Blobs()
    observe(bench.root, [rel("a")], bench.exclusions, blobs, bench.cache)
    assert blobs.reads == 1
    with later():
        bench.scan()
    observe(bench.root, [rel("a")], bench.exclusions, blobs, bench.cache)
    assert blobs.reads == 1
    assert observe(bench.root, [rel("a")], bench.exclusions, blobs, StatCache())
    assert blobs.reads == 2


def test_one_node(bench: Bench) -> None:
    bench.write("d/a", "text")
    (bench.root / "d").chmod(0o750)
    blobs = Blobs()
    for path in ("d", "d/a"):
        assert node_at(bench.root, rel(path), blobs) == node(os.fsencode(bench.root / path))
    assert node_at(bench.root, rel("d/none"), blobs) == ABSENT
    assert node_at(bench.root, rel("d/a/b"), blobs) == ABSENT


@pytest.mark.needs("posix")
def test_a_fifo_does_not_hang(bench: Bench) -> None:
    os.mkfifo(bench.root / "fifo")
    assert node_at(bench.root, rel("fifo"), Blobs()).kind is Kind.FIFO
    assert observe(bench.root, [rel("fifo")], bench.exclusions, Blobs())[rel("fifo")].is_special


@pytest.mark.needs("byte-names")
def test_a_name_that_is_not_text(bench: Bench) -> None:
    with open(os.path.join(os.fsencode(bench.root), b"\xff\n"), "wb") as file:
        file.write(b"bytes")
    assert node_at(bench.root, RelPath(b"\xff\n"), Blobs()).oid == blob_id(b"bytes")


@pytest.mark.needs("linux")
def test_what_cannot_be_read_is_an_error_for_one_node(bench: Bench) -> None:
    with pytest.raises(WorkspaceError, match="cannot read") as caught:
        node_at(Path("/proc/self"), rel("mem"), Blobs())
    assert caught.value.hint
