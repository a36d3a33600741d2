"""Scanning what resists: no permission, and things that change while we look."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from substrate.model.nodes import ABSENT, Kind
from substrate.model.paths import RelPath
from substrate.workspace.paths import entry_reader
from substrate.workspace.paths.nofollow_listing import ListedDirectory, Tree
from substrate.workspace.scan.tree_scan import StatCache, cached_node, cached_nodes, observe, scan
from tests.unit.workspace.naive import Bench, Blobs, blob_id, later, rel, walk

NOBODY = 65534


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def as_nobody(bench: Bench, check: Callable[[], None]) -> None:
    """Run `check` as an ordinary user that owns the tree; in a child, if we are root."""
    if os.geteuid() != 0:
        check()
        return
    for path in (bench.root, *bench.root.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            # pytest's directories are private to root: hold ours before stepping down.
            os.chdir(bench.root)
            bench.root = Path()
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            check()
            status = 0
        except BaseException:  # noqa: BLE001 - the parent is told, whatever it is
            import traceback

            os.write(writer, traceback.format_exc().encode())
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0, said


@pytest.mark.needs("fork")
def test_an_unreadable_file_keeps_its_state(bench: Bench) -> None:
    locked = bench.write("d/locked", "known")
    bench.write("d/open", "known too")

    def check() -> None:
        cache, blobs = StatCache(), Blobs()
        with later():
            scan(bench.root, cache, bench.exclusions, blobs)
        before = dict(cached_nodes(cache))
        (bench.root / "d/locked").write_text("edited")
        os.chmod(bench.root / "d/locked", 0)
        (bench.root / "d/open").write_text("edited too")
        result = scan(bench.root, cache, bench.exclusions, blobs)
        assert result.unreadable == {rel("d/locked"): "Permission denied"}
        assert set(result.seen) == {rel("d/open")}
        assert cached_node(cache, rel("d/locked")) == before[rel("d/locked")]
        assert scan(bench.root, cache, bench.exclusions, blobs).unreadable
        os.chmod(bench.root / "d/locked", 0o600)
        result = scan(bench.root, cache, bench.exclusions, blobs)
        assert result.seen[rel("d/locked")].oid == blob_id(b"edited")
        assert not result.unreadable

    as_nobody(bench, check)
    assert locked.exists()


@pytest.mark.needs("fork")
@pytest.mark.parametrize("mode", [0o000, 0o400, 0o100])
def test_an_unreadable_directory_keeps_its_state(bench: Bench, mode: int) -> None:
    bench.write("d/e/f", "known")
    bench.write("d/g", "known")

    def check() -> None:
        cache, blobs = StatCache(), Blobs()
        with later():
            scan(bench.root, cache, bench.exclusions, blobs)
        before = dict(cached_nodes(cache))
        os.chmod(bench.root / "d", mode)
        with later():
            result = scan(bench.root, cache, bench.exclusions, blobs)
        assert result.unreadable
        assert result.seen == {rel("d"): before[rel("d")]._replace(mode=mode)}
        with later():
            assert scan(bench.root, cache, bench.exclusions, blobs).seen == {}
        os.chmod(bench.root / "d", 0o755)
        (bench.root / "d/e/f").write_text("edited")
        result = scan(bench.root, cache, bench.exclusions, blobs)
        assert result.seen[rel("d/e/f")].oid == blob_id(b"edited")
        assert result.unreadable == {}
        assert dict(cached_nodes(cache)) == walk(bench.root)

    as_nobody(bench, check)


@pytest.mark.needs("fork")
def test_new_and_unreadable(bench: Bench) -> None:
    bench.write("d/locked").chmod(0)
    bench.write("closed/inside")
    (bench.root / "closed").chmod(0)

    def check() -> None:
        cache, blobs = StatCache(), Blobs()
        result = scan(bench.root, cache, bench.exclusions, blobs)
        assert result.unreadable == {
            rel("d/locked"): "Permission denied",
            rel("closed"): "Permission denied",
        }
        assert set(result.seen) == {rel("d"), rel("closed")}
        assert result.seen[rel("closed")].mode == 0
        os.chmod(bench.root / "closed", 0o700)
        result = scan(bench.root, cache, bench.exclusions, blobs)
        assert result.seen[rel("closed")].mode == 0o700
        assert result.seen[rel("closed/inside")].kind is Kind.FILE
        assert observe(bench.root, [rel("d"), rel("d/locked")], bench.exclusions, blobs).keys() == {
            rel("d")
        }

    as_nobody(bench, check)
    (bench.root / "closed").chmod(0o700)


def swap(monkeypatch: pytest.MonkeyPatch, victim: str, act: Callable[[], None]) -> None:
    """Do `act` once, between the listing of the file named `victim` and its opening."""
    real = ListedDirectory.open_file
    done: list[str] = []

    def open_file(self: ListedDirectory, name: str) -> int:
        if name == victim and not done:
            done.append(name)
            act()
        return real(self, name)

    monkeypatch.setattr(ListedDirectory, "open_file", open_file)


def put(path: Path, kind: str, elsewhere: Path) -> None:
    path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(elsewhere)
    elif kind == "directory":
        path.mkdir()
        (path / "inside").write_text("i")
    elif kind == "file":
        path.write_text("another")


@pytest.mark.needs("posix")
@pytest.mark.parametrize("kind", ["fifo", "link", "directory", "file", "nothing"])
def test_a_file_swapped_before_it_is_opened(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("do not read me")
    victim = bench.write("d/victim")
    bench.write("d/other")
    (bench.root / "d/other").unlink()
    swap(monkeypatch, "victim", lambda: put(victim, kind, secret))
    bench.scan()
    bench.check()
    assert blob_id(b"do not read me") not in bench.blobs
    bench.settled()
    bench.check()


def test_a_listing_never_vouches_for_a_file_that_came_after_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, other = bench.write("d/victim", "1111"), bench.write("other", "2222")
    swap(monkeypatch, "victim", lambda: os.replace(other, victim))
    with later():
        bench.scan()
    assert bench.cache.dirs["d"].signature == b""
    assert blob_id(b"2222") in bench.blobs
    bench.settled()
    bench.check()


def test_a_directory_that_vanishes_before_it_is_entered(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("d/sub/f")
    bench.write("d/g")
    bench.settled()
    bench.write("d/sub/h")
    real = Tree.enter

    def enter(self: Tree, path: str) -> ListedDirectory:
        if path == "d/sub":
            shutil.rmtree(bench.root / "d/sub", ignore_errors=True)
        return real(self, path)

    monkeypatch.setattr(Tree, "enter", enter)
    result = bench.scan()
    assert result.unreadable == {}
    assert result.seen[rel("d/sub")] == result.seen[rel("d/sub/f")] == ABSENT
    bench.check()


@pytest.mark.needs("symlinks")
def test_a_listing_of_another_directory_is_not_believed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The link is there while we list by path, and gone again when we walk in."""
    outside = tmp_path / "outside"
    (outside / "b").mkdir(parents=True)
    (outside / "b" / "planted").write_text("stolen")
    bench.write("a/b/mine", "mine")
    bench.settled()
    bench.write("a/b/mine too", "mine")
    real = Tree.quick_listing

    def quick(self: Tree, path: str) -> object:
        if path != "a/b":
            return real(self, path)
        (bench.root / "a").rename(bench.root / "hidden")
        (bench.root / "a").symlink_to(outside)
        try:
            return real(self, path)
        finally:
            (bench.root / "a").unlink()
            (bench.root / "hidden").rename(bench.root / "a")

    monkeypatch.setattr(Tree, "quick_listing", quick)
    assert set(bench.scan().seen) == {rel("a/b/mine too")}
    bench.check()


@pytest.mark.needs("symlinks")
def test_a_directory_swapped_for_a_link_is_not_followed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """At every depth, between any two steps: the target of the link is never read."""
    outside = tmp_path / "outside"
    (outside / "b" / "c").mkdir(parents=True)
    (outside / "b" / "c" / "f").write_text("stolen")
    (outside / "b" / "f").write_text("stolen")
    bench.write("a/b/c/f", "mine")
    bench.settled()
    bench.write("a/b/c/f", "mine, edited")
    real_quick, real_enter = Tree.quick_listing, Tree.enter
    for step in range(12):
        calls = [0]

        def flip(at: int = step, calls: list[int] = calls) -> None:
            if calls[0] == at:
                (bench.root / "a").rename(bench.root / "hidden")
                (bench.root / "a").symlink_to(outside)
            calls[0] += 1

        def quick(self: Tree, path: str) -> object:
            flip()
            return real_quick(self, path)

        def enter(self: Tree, path: str) -> ListedDirectory:
            flip()
            return real_enter(self, path)

        monkeypatch.setattr(Tree, "quick_listing", quick)
        monkeypatch.setattr(Tree, "enter", enter)
        bench.scan()
        monkeypatch.undo()
        assert blob_id(b"stolen") not in bench.blobs
        if (bench.root / "a").is_symlink():
            (bench.root / "a").unlink()
            (bench.root / "hidden").rename(bench.root / "a")
        bench.settled()
        bench.check()


def test_a_file_that_grows_past_the_cap_while_it_is_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from substrate.workspace.exclude import Exclusions

    monkeypatch.setattr(entry_reader, "_CHUNK_BYTES", 100)
    bench.exclusions = Exclusions(size_cap_bytes=1000)
    file = bench.write("a", "x" * 500)
    real = os.read

    def grow(fd: int, size: int) -> bytes:
        with open(file, "ab") as handle:
            handle.write(b"y" * 100)
        return real(fd, size)

    monkeypatch.setattr(os, "read", grow)
    result = bench.scan()
    monkeypatch.undo()
    assert result.excluded == {rel("a"): "larger than 1000 bytes"}
    assert result.seen == {}
    bench.scan()
    bench.check()


def test_a_file_written_while_it_is_read_is_read_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = bench.write("a", "x" * 500)
    os.utime(file, (1, 1))
    real = os.read

    def edit(fd: int, size: int) -> bytes:
        data = real(fd, size)
        file.write_text("z" * 500)
        return data

    with later():
        monkeypatch.setattr(os, "read", edit)
        assert bench.scan().seen[rel("a")].oid == blob_id(b"x" * 500)
        assert bench.cache.dirs[""].signature == b""
        monkeypatch.undo()
        assert bench.scan().seen[rel("a")].oid == blob_id(b"z" * 500)


def test_a_tree_in_motion(bench: Bench) -> None:
    """Scans beside a busy writer never fail, and the one after it is right."""
    for number in range(40):
        bench.write(f"d{number % 4}/f{number}")
    stop = threading.Event()

    def churn() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            place = bench.root / f"d{number % 4}"
            shutil.rmtree(place, ignore_errors=True)
            if number % 3:
                (place / "sub").mkdir(parents=True, exist_ok=True)
                (place / "sub" / "f").write_text(str(number))
            else:
                place.write_text("a file")
                time.sleep(0.001)
                place.unlink()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(30):
            bench.scan()
    finally:
        stop.set()
        thread.join()
    bench.scan()
    bench.check()


def test_a_worker_that_dies_leaves_its_share_to_the_scan(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.capabilities import present

    if not present("fork"):
        pytest.skip("needs fork")
    for number in range(20):
        bench.write(f"d{number}/f")
    bench.settled()
    bench.write("d3/f", "edited")
    parent = os.getpid()
    real = Tree.quick_listing

    def die(self: Tree, path: str) -> object:
        if os.getpid() != parent:
            os._exit(9)
        return real(self, path)

    monkeypatch.setattr(Tree, "quick_listing", die)
    assert set(bench.scan(workers=2).seen) == {rel("d3/f")}
    bench.check()


def test_two_links_to_one_file(bench: Bench) -> None:
    file = bench.write("a", "1111")
    os.link(file, bench.root / "b")
    bench.settled()
    with open(bench.root / "b", "r+") as handle:
        handle.write("2222")
    result = bench.scan()
    assert result.seen[RelPath(b"a")].oid == result.seen[RelPath(b"b")].oid == blob_id(b"2222")
