"""Scanning: every kind of change is found, and nothing is read that need not be."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import time
from pathlib import Path

import pytest

from substrate.errors import WorkspaceError
from substrate.model.nodes import ABSENT, Kind, Node
from substrate.model.paths import RelPath
from substrate.system import clock
from substrate.workspace.exclude import Exclusions
from substrate.workspace.scan.tree_scan import KnownBlob, StatCache, cached_node, observe, scan
from tests.mounts import unmount
from tests.unit.workspace.naive import Bench, Blobs, blob_id, later, node, rel, walk


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_an_empty_cache_sees_everything(bench: Bench) -> None:
    bench.write("a.txt", "one")
    bench.write("sub/deep/b.txt", "two")
    (bench.root / "empty").mkdir()
    (bench.root / "link").symlink_to("sub/deep")
    result = bench.scan()
    assert result.seen == walk(bench.root)
    assert result.unchanged_count == 0
    assert bench.blobs[blob_id(b"sub/deep")] == b"sub/deep"
    bench.check()


def test_an_unchanged_tree_is_not_read(bench: Bench) -> None:
    for number in range(30):
        bench.write(f"d{number % 5}/f{number}", str(number))
    bench.settled()
    result = bench.scan()
    assert (result.seen, bench.blobs.reads) == ({}, 0)
    assert result.unchanged_count == 35
    bench.check()


def test_one_edit_reads_one_file(bench: Bench) -> None:
    for number in range(20):
        bench.write(f"d/f{number}", str(number))
    bench.settled()
    bench.write("d/f3", "other")
    result = bench.scan()
    assert result.seen == {rel("d/f3"): node(os.fsencode(bench.root / "d/f3"))}
    assert bench.blobs.reads == 1
    assert result.unchanged_count == 20
    bench.check()


def test_an_edit_that_keeps_size_and_mtime_is_found(bench: Bench) -> None:
    file = bench.write("a", "old!")
    bench.settled()
    info = file.stat()
    file.write_text("new!")
    os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert bench.scan().seen[rel("a")].oid == blob_id(b"new!")


def test_edits_right_after_a_scan_are_found(bench: Bench) -> None:
    """Within one tick of the clock that stamps files nothing in the stat may differ."""
    file = bench.write("a", "0000")
    bench.scan()
    for number in range(1, 60):
        with open(file, "r+b", buffering=0) as handle:
            handle.write(b"%04d" % number)
        bench.scan()
        assert cached_node(bench.cache, rel("a")).oid == blob_id(b"%04d" % number)


def test_whole_second_stamps_are_doubted_for_two_seconds(bench: Bench) -> None:
    """As on a file system without sub-second times: only the racy rule can tell."""
    from substrate.workspace.paths.entry_reader import is_racy

    second = 10**9
    now = 1_700_000_000 * second + 5
    assert is_racy(now - second // 5, now - second // 5, now) is False
    assert is_racy(now - 5, now - second, now) is True
    assert is_racy(now - second - 5, now - second - 5, now) is True
    assert is_racy(now - 3 * second - 5, now - 3 * second - 5, now) is False
    assert is_racy(now + 3600 * second, now - second // 5, now) is False
    assert is_racy(0, now + 3600 * second + 1, now) is True


def test_a_clock_that_ran_ahead_makes_files_racy_not_trusted(bench: Bench) -> None:
    bench.write("a", "one")
    clock.set_clock(lambda: time.time_ns() - 3600 * 10**9)
    try:
        bench.scan()
        assert list(bench.scan().seen) == [rel("a")]
    finally:
        clock.set_clock(None)


def test_a_fresh_file_is_read_again_once(bench: Bench) -> None:
    bench.write("a")
    bench.write("b")
    bench.scan()
    with later():
        bench.scan()
        assert bench.blobs.reads == 2
        bench.scan()
        assert bench.blobs.reads == 0


def test_a_touch_is_looked_at_and_equal(bench: Bench) -> None:
    file = bench.write("a")
    bench.settled()
    before = cached_node(bench.cache, rel("a"))
    os.utime(file)
    assert bench.scan().seen == {rel("a"): before}


@pytest.mark.needs("posix")
@pytest.mark.parametrize("mode", [0o600, 0o755, 0o4755, 0o2644, 0o000])
def test_chmod_alone(bench: Bench, mode: int) -> None:
    if mode == 0 and os.geteuid() != 0:
        pytest.skip("needs root: to read what has no permissions")
    file = bench.write("d/a")
    bench.settled()
    file.chmod(mode)
    assert bench.scan().seen[rel("d/a")].mode == mode
    (bench.root / "d").chmod(0o1750)
    assert bench.scan().seen[rel("d")] == Node(Kind.DIRECTORY, 0o1750)
    bench.check()


@pytest.mark.needs("user-xattrs")
def test_xattrs_alone(bench: Bench) -> None:
    file = bench.write("d/a")
    bench.settled()
    os.setxattr(file, "user.colour", b"red")
    assert bench.settled().seen[rel("d/a")].xattrs == ((b"user.colour", b"red"),)
    os.setxattr(file.parent, "user.mood", b"\0\xff")
    assert bench.settled().seen == {
        rel("d"): Node(
            Kind.DIRECTORY,
            stat.S_IMODE(file.parent.stat().st_mode),
            xattrs=((b"user.mood", b"\0\xff"),),
        )
    }
    os.removexattr(file, "user.colour")
    assert bench.settled().seen[rel("d/a")].xattrs == ()
    bench.check()


@pytest.mark.needs("user-xattrs")
def test_attributes_set_right_after_a_scan(bench: Bench) -> None:
    """Newer kernels stamp so finely that only a doctored cache shows the doubt at work."""
    bench.write("d/a")
    os.setxattr(bench.root / "d", "user.n", b"1")
    bench.scan()
    record = bench.cache.dirs["d"]
    payload = record.open()
    assert payload.racy
    bench.cache.put("d", record._replace(payload=payload._replace(xattrs=()).pack()))
    bench.cache.save(bench.cache_path, describes=b"")
    assert bench.scan().seen[rel("d")].xattrs == ((b"user.n", b"1"),)


def test_rename_and_swap(bench: Bench) -> None:
    one, two = bench.write("one", "1111"), bench.write("two", "2222")
    bench.settled()
    one.rename(bench.root / "three")
    result = bench.settled()
    assert result.seen[rel("one")] == ABSENT
    assert result.seen[rel("three")].oid == blob_id(b"1111")
    # A swap of two files of the same size keeps both mtimes.
    (bench.root / "three").rename(bench.root / "tmp")
    two.rename(bench.root / "three")
    (bench.root / "tmp").rename(two)
    result = bench.settled()
    assert result.seen[rel("three")].oid == blob_id(b"2222")
    assert result.seen[rel("two")].oid == blob_id(b"1111")
    bench.check()


def test_a_directory_renamed_over(bench: Bench) -> None:
    bench.write("d/x/f", "old")
    bench.write("e/x/f", "new")
    bench.settled()
    shutil.rmtree(bench.root / "d")
    (bench.root / "e").rename(bench.root / "d")
    result = bench.scan()
    assert result.seen[rel("d/x/f")].oid == blob_id(b"new")
    assert result.seen[rel("e")] == result.seen[rel("e/x")] == result.seen[rel("e/x/f")] == ABSENT
    bench.check()


def test_directory_becomes_file_and_back(bench: Bench) -> None:
    bench.write("d/x/f")
    bench.settled()
    shutil.rmtree(bench.root / "d")
    bench.write("d", "file now")
    result = bench.scan()
    assert result.seen[rel("d")].oid == blob_id(b"file now")
    assert result.seen[rel("d/x")] == result.seen[rel("d/x/f")] == ABSENT
    bench.check()
    (bench.root / "d").unlink()
    bench.write("d/y", "again")
    result = bench.scan()
    assert result.seen[rel("d")].kind is Kind.DIRECTORY
    assert result.seen[rel("d/y")].oid == blob_id(b"again")
    bench.check()


@pytest.mark.needs("symlinks")
def test_directory_becomes_a_link_that_is_not_followed(bench: Bench, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secret").write_text("s")
    bench.write("d/f")
    bench.settled()
    shutil.rmtree(bench.root / "d")
    (bench.root / "d").symlink_to(elsewhere)
    result = bench.scan()
    assert result.seen[rel("d")].kind is Kind.SYMLINK
    assert result.seen[rel("d/f")] == ABSENT
    assert rel("d/secret") not in result.seen
    bench.check()


def test_a_vanished_directory_and_all_below(bench: Bench) -> None:
    for path in ("d/a", "d/e/b", "d/e/node_modules/x", "keep"):
        bench.write(path)
    bench.settled()
    shutil.rmtree(bench.root / "d")
    result = bench.scan()
    assert result.seen == dict.fromkeys(map(rel, ("d", "d/a", "d/e", "d/e/b")), ABSENT)
    assert result.excluded_gone == [rel("d/e/node_modules")]
    bench.check()


def test_excluded_directories_are_not_entered(bench: Bench) -> None:
    bench.write("node_modules/p/index.js")
    bench.write(".git/HEAD")
    bench.write("sub/.git", "gitdir: elsewhere")
    bench.write(".ctx/objects/x")
    bench.write("sub/.ctx/y")
    result = bench.settled()
    assert result.excluded == {
        rel("node_modules"): "built-in: node_modules/",
        rel(".git"): "metadata",
        rel(".ctx"): "metadata",
    }
    assert set(result.seen) == set(map(rel, ("sub", "sub/.git", "sub/.ctx", "sub/.ctx/y")))
    again = bench.scan()
    assert again.excluded == result.excluded
    bench.write("node_modules/p/other.js")
    assert bench.scan().excluded_gone == []
    shutil.rmtree(bench.root / "node_modules")
    assert bench.scan().excluded_gone == [rel("node_modules")]


def test_an_excluded_directory_made_again_is_gone(bench: Bench) -> None:
    bench.write("dist/a")
    bench.settled()
    (bench.root / "dist").rename(bench.root / "other")
    (bench.root / "dist").mkdir()
    result = bench.scan()
    assert result.excluded_gone == [rel("dist")]
    assert result.seen[rel("other/a")].kind is Kind.FILE


def test_an_excluded_file_that_changes(bench: Bench) -> None:
    bench.exclusions = Exclusions(b"*.log\n")
    log = bench.write("a.log", "one")
    assert bench.settled().excluded == {rel("a.log"): ".substrateignore:1: *.log"}
    assert bench.scan().excluded_gone == []
    log.write_text("more than that")
    result = bench.scan()
    assert (result.excluded_gone, result.seen) == ([rel("a.log")], {})


def test_other_rules_read_only_what_they_bring_back(bench: Bench) -> None:
    for path in ("a.txt", "b.log", "logs/c", "logs/deep/d", "dist/e"):
        bench.write(path, path)
    bench.settled()
    bench.exclusions = Exclusions(b"*.log\nlogs/\n!dist/\n")
    result = bench.settled()
    gone = map(rel, ("b.log", "logs", "logs/c", "logs/deep", "logs/deep/d"))
    back = {rel(name): node(os.fsencode(bench.root / name)) for name in ("dist", "dist/e")}
    assert result.seen == dict.fromkeys(gone, ABSENT) | back
    assert set(result.excluded) == {rel("b.log"), rel("logs")}
    assert result.excluded_gone == []
    assert bench.blobs.reads == 1
    bench.check()
    bench.exclusions = Exclusions()
    result = bench.settled()
    assert result.seen[rel("dist/e")] == ABSENT
    assert result.seen[rel("logs/deep/d")].oid == blob_id(b"logs/deep/d")
    assert bench.blobs.reads == 3
    bench.check()


def test_what_is_in_a_newly_excluded_directory_is_not_gone(bench: Bench) -> None:
    bench.write("logs/node_modules/x")
    bench.settled()
    bench.exclusions = Exclusions(b"logs/\n")
    result = bench.settled()
    assert (result.excluded_gone, list(result.excluded)) == ([], [rel("logs")])


@pytest.mark.needs("posix")
def test_specials_are_known_and_never_opened(bench: Bench) -> None:
    os.mkfifo(bench.root / "fifo", 0o640)
    server = socket.socket(socket.AF_UNIX)
    server.bind(os.path.relpath(bench.root / "socket"))
    with server:
        result = bench.settled()
        assert result.seen[rel("fifo")] == Node(Kind.FIFO, 0o640)
        assert result.seen[rel("socket")].kind is Kind.SOCKET
        assert sorted(result.specials) == [rel("fifo"), rel("socket")]
        assert sorted(bench.scan().specials) == [rel("fifo"), rel("socket")]
        bench.check()


@pytest.mark.needs("root")
def test_devices(bench: Bench) -> None:
    try:
        os.mknod(bench.root / "zero", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
        os.mknod(bench.root / "disk", 0o600 | stat.S_IFBLK, os.makedev(7, 99))
    except PermissionError:
        pytest.skip("needs root: that may make devices")
    result = bench.scan()
    assert result.seen[rel("zero")].kind is Kind.CHAR_DEVICE
    assert result.seen[rel("disk")].kind is Kind.BLOCK_DEVICE
    assert bench.blobs.reads == 0
    bench.check()


@pytest.mark.needs("posix")
def test_a_file_becomes_a_fifo(bench: Bench) -> None:
    file = bench.write("a")
    bench.settled()
    file.unlink()
    os.mkfifo(file)
    assert bench.scan().seen[rel("a")].kind is Kind.FIFO
    bench.check()


@pytest.mark.needs("byte-names")
def test_names_of_any_bytes(bench: Bench) -> None:
    names = [b"new\nline", b"\xff\xfe", b"-rf", b" ", b"a" * 255, "ä€😀".encode(), b"tab\t\\", b"%"]
    for name in names:
        path = os.path.join(os.fsencode(bench.root), name)
        os.mkdir(path)
        for inner in names:
            with open(os.path.join(path, inner), "wb") as file:
                file.write(inner)
    result = bench.settled()
    assert result.seen == walk(bench.root)
    assert RelPath(b"\xff\xfe/new\nline") in result.seen
    assert bench.scan().seen == {}
    shutil.rmtree(os.path.join(os.fsencode(bench.root), b"\xff\xfe"))
    assert bench.scan().seen[RelPath(b"\xff\xfe/\xff\xfe")] == ABSENT
    bench.check()


def test_case_and_unicode_twins_are_two_files(bench: Bench) -> None:
    if not (bench.write("a").exists() and not (bench.root / "A").exists()):
        pytest.skip("needs case-sensitive")
    bench.write("A", "upper")
    bench.write("é", "composed")
    bench.write("e\u0301", "decomposed")
    bench.settled()
    bench.check()


def test_a_huge_sparse_file_is_left_out_unread(bench: Bench) -> None:
    file = bench.write("huge")
    os.truncate(file, 5 << 30)
    result = bench.settled()
    assert result.excluded == {rel("huge"): "larger than 64 MiB"}
    assert (result.seen, bench.blobs.reads) == ({}, 0)
    os.truncate(file, 3)
    assert bench.scan().seen[rel("huge")].oid == blob_id(b"x\0\0")
    os.truncate(file, 5 << 30)
    result = bench.scan()
    assert result.seen == {rel("huge"): ABSENT}
    assert result.excluded == {rel("huge"): "larger than 64 MiB"}


def test_the_cap_is_exact(bench: Bench) -> None:
    bench.exclusions = Exclusions(size_cap_bytes=10)
    bench.write("ten", "x" * 10)
    bench.write("eleven", "x" * 11)
    result = bench.scan()
    assert list(result.seen) == [rel("ten")]
    assert result.excluded == {rel("eleven"): "larger than 10 bytes"}


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_000_001])
def test_every_size_is_read_whole(bench: Bench, size: int) -> None:
    data = os.urandom(1000) * (size // 1000 + 1)
    (bench.root / "a").write_bytes(data[:size])
    assert bench.scan().seen[rel("a")].oid == blob_id(data[:size])


def test_deep_nesting(bench: Bench) -> None:
    """Deeper than a path may be long and than descriptors may be open."""
    here = os.open(bench.root, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("dir", dir_fd=here)
        inner = os.open("dir", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    with open(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=here), "w") as file:
        file.write("deep")
    os.close(here)
    result = bench.settled()
    bottom = rel("/".join(["dir"] * 1500 + ["f"]))
    assert result.seen[bottom].oid == blob_id(b"deep")
    assert bench.scan().seen == {}
    # shutil.rmtree, which clears tmp_path, would take a descriptor for each level.
    for _ in range(15):
        part = bench.root / "/".join(["dir"] * 99)
        (part / "dir").rename(bench.root / "cut")
        shutil.rmtree(bench.root / "dir")
        (bench.root / "cut").rename(bench.root / "dir")
    assert bench.scan().seen[bottom] == ABSENT


def test_a_workspace_that_is_not_there(bench: Bench) -> None:
    shutil.rmtree(bench.root)
    with pytest.raises(WorkspaceError) as caught:
        bench.scan()
    assert caught.value.hint
    bench.root.write_text("a file")
    with pytest.raises(WorkspaceError):
        bench.scan()


@pytest.mark.needs("fork")
def test_workers_find_the_same(bench: Bench) -> None:
    for number in range(200):
        bench.write(f"d{number % 20}/e{number % 3}/f{number}", str(number))
    bench.settled()
    assert bench.scan(workers=3).seen == {}
    assert bench.scan(workers=3).unchanged_count == 200 + 20 + 60
    bench.write("d1/e1/f1", "changed")
    bench.write("d2/e2/new", "new")
    (bench.root / "d3").rename(bench.root / "moved")
    shutil.rmtree(bench.root / "d4")
    bench.write("d5/e0/new/deep/er", "deep")
    result = bench.scan(workers=3)
    assert result.seen[rel("d1/e1/f1")].oid == blob_id(b"changed")
    assert result.seen[rel("d4")] == ABSENT
    bench.check()


@pytest.mark.needs("fork")
def test_a_thread_forbids_the_fork(bench: Bench) -> None:
    import threading

    bench.write("a")
    bench.settled()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        assert bench.scan(workers=2).seen == {}
    finally:
        stop.set()
        thread.join()


def index_entry(path: Path, oid: bytes, git_mode: int = 0o100644) -> KnownBlob:
    """As the user's git index would have it: 32 bits of everything."""
    info = path.lstat()
    return KnownBlob(
        oid,
        git_mode,
        info.st_size & 0xFFFFFFFF,
        info.st_mtime_ns % (2**32 * 10**9),
        info.st_ctime_ns,
        info.st_ino & 0xFFFFFFFF,
    )


def test_known_blobs_are_not_read(bench: Bench) -> None:
    same, edited = bench.write("d/same", "same"), bench.write("edited", "1111")
    known = {
        rel("d/same"): index_entry(same, blob_id(b"same")),
        rel("edited"): index_entry(edited, blob_id(b"1111")),
        rel("absent"): index_entry(same, blob_id(b"other")),
    }
    edited.write_text("2222")
    os.utime(edited, (1, 1))
    with later():
        result = bench.scan(known=known)
    assert result.seen == walk(bench.root)
    assert result.borrowed == {blob_id(b"same")}
    assert bench.blobs.reads == 1


@pytest.mark.parametrize("field", ["size", "ino", "mtime_ns", "ctime_ns"])
def test_a_known_blob_must_match_in_everything(bench: Bench, field: str) -> None:
    right = index_entry(bench.write("a", "text"), blob_id(b"other"))
    wrong = right._replace(**{field: getattr(right, field) + 1})
    assert bench.scan(known={rel("a"): wrong}).borrowed == set()
    bench.check()


@pytest.mark.needs("user-xattrs")
def test_a_known_blob_still_has_its_attributes(bench: Bench) -> None:
    file = bench.write("a")
    os.setxattr(file, "user.x", b"y")
    known = {rel("a"): index_entry(file, blob_id(b"x"))}
    assert bench.scan(known=known).seen[rel("a")].xattrs == ((b"user.x", b"y"),)
    assert bench.blobs.reads == 0


@pytest.mark.needs("symlinks")
def test_a_known_blob_of_another_kind_is_not_used(bench: Bench) -> None:
    link = bench.root / "l"
    link.symlink_to("x" * 4)
    known = {rel("l"): index_entry(link, blob_id(b"nope"))}
    assert bench.scan(known=known).seen[rel("l")].oid == blob_id(b"xxxx")
    (bench.root / "l").unlink()
    link.symlink_to("yyyy")
    known = {rel("l"): index_entry(link, blob_id(b"yyyy"), 0o120000)}
    assert bench.scan(known=known).borrowed == {blob_id(b"yyyy")}


def test_a_full_disk_is_no_unreadable_file(bench: Bench) -> None:
    class Full(Blobs):
        def add_blob(self, data: bytes) -> bytes:
            raise OSError(28, "No space left on device")

    bench.write("a")
    with pytest.raises(OSError, match="No space"):
        scan(bench.root, StatCache(), bench.exclusions, Full())


@pytest.mark.needs("root")
def test_a_mounted_disk_is_recorded_and_the_systems_own_files_are_not(bench: Bench) -> None:
    for name in ("proc", "disk"):
        (bench.root / name).mkdir()
    mounted = []
    try:
        for kind, name in (("proc", "proc"), ("tmpfs", "disk")):
            words = ["mount", "-t", kind, kind, str(bench.root / name)]
            if subprocess.run(words, capture_output=True, check=False).returncode:
                pytest.skip("needs root: that may mount")
            mounted.append(bench.root / name)
        bench.write("disk/f", "mine")
        result = bench.settled()
        assert result.excluded == {rel("proc"): "a mounted system directory"}
        assert set(result.seen) == {rel("disk"), rel("disk/f")}
        assert bench.scan().seen == {}
        assert observe(bench.root, [rel("proc")], bench.exclusions, Blobs()) == {}
    finally:
        for path in mounted:
            unmount(path)
