"""Taking over what the user's git already knows, and never a byte that is not the file's."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from substrate.model.paths import RelPath
from substrate.objects.import_user import copy_user_objects
from substrate.objects.import_user.import_user_index import adopt_objects, borrow_index
from substrate.objects.index.git_index import UnusualIndexError, parse_index
from substrate.objects.store.loose import object_id
from substrate.objects.store.object_store import ObjectStore

LONG_AGO_S = 1_600_000_000


def git(repo: Path, *args: str) -> bytes:
    done = subprocess.run(["git", *args], cwd=repo, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def snapshot_of(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Names, sizes and times of everything below, to see that nothing was touched."""
    found = {}
    for top, _, names in os.walk(directory):
        for name in [*names, "."]:
            status = os.lstat(os.path.join(top, name))
            key = os.path.join(top, name)
            found[key] = (status.st_size, status.st_mtime_ns, status.st_mode)
    return found


class Repo:
    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        git(root, "init", "-q")

    def write(self, name: bytes | str, data: bytes) -> Path:
        path = Path(os.fsdecode(os.path.join(os.fsencode(self.root), os.fsencode(name))))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self._age(path)
        return path

    def _age(self, path: Path) -> None:
        os.utime(path, (LONG_AGO_S, LONG_AGO_S))

    def add(self) -> None:
        git(self.root, "add", "-A")

    def commit(self) -> None:
        self.add()
        git(self.root, "commit", "-q", "--allow-empty", "-m", "x")

    def borrow(self) -> dict[RelPath, bytes]:
        """Path and id of what the index vouches for and whose stat is still the same."""
        git_dir = self.root / ".git"
        before = snapshot_of(git_dir)
        known = borrow_index(git_dir, git_dir, self.root)
        assert snapshot_of(git_dir) == before
        out = {}
        for path, blob in known.items():
            absolute = os.path.join(os.fsencode(self.root), path)
            if not os.path.lexists(absolute):
                continue
            status = os.lstat(absolute)
            same = (
                blob.size == status.st_size
                and blob.mtime_ns == status.st_mtime_ns
                and blob.ctime_ns == status.st_ctime_ns
                and blob.ino == status.st_ino & 0xFFFFFFFF
            )
            if same:
                out[path] = blob.oid
        return out


def raw_oid(path: Path) -> bytes:
    if path.is_symlink():
        return object_id("blob", os.fsencode(os.readlink(path)))
    return object_id("blob", path.read_bytes())


def assert_exact(repo: Repo, borrowed: dict[RelPath, bytes]) -> None:
    for path, oid in borrowed.items():
        assert raw_oid(repo.root / os.fsdecode(path)) == oid, path


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


NAMES = [
    b"a", b"dir/b", b"dir/sub/c", b"n\nl", b"\xff\xfe", b"x" * 255, b"d" * 200 + b"/" + b"e" * 200,
    b"dir/sub/" + b"l" * 250 + b"/" + b"m" * 250,
]  # fmt: skip


@pytest.mark.parametrize("version", [2, 3, 4])
def test_every_index_version(repo: Repo, version: int) -> None:
    for name in NAMES:
        repo.write(name, b"content of " + name[:20])
    repo.write("script", b"#!/bin/sh\n").chmod(0o755)
    (repo.root / "link").symlink_to("nowhere")
    os.utime(repo.root / "link", (LONG_AGO_S, LONG_AGO_S), follow_symlinks=False)
    repo.add()
    if version == 3:
        repo.write("later", b"not added yet")
        git(repo.root, "add", "-N", "later")
    else:
        git(repo.root, "update-index", f"--index-version={version}")
    data = (repo.root / ".git/index").read_bytes()
    assert data[7] == version
    listed = [line for line in git(repo.root, "ls-files", "-s", "-z").split(b"\0") if line]
    expected = {}
    for line in listed:
        head, _, path = line.partition(b"\t")
        mode, oid, _ = head.split(b" ")
        if path != b"later":
            expected[path] = (int(mode, 8), bytes.fromhex(oid.decode()))
    assert {e.path: (e.mode, e.oid) for e in parse_index(data)} == expected
    borrowed = repo.borrow()
    assert set(borrowed) == set(expected)
    assert_exact(repo, borrowed)


def test_what_changed_since_is_not_vouched_for(repo: Repo) -> None:
    repo.write("a", b"one")
    repo.write("b", b"one")
    repo.add()
    repo.write("a", b"two")  # same size, same mtime: ctime tells
    assert set(repo.borrow()) == {b"b"}


def test_racy_entries_are_left_out(repo: Repo) -> None:
    old = repo.write("old", b"old")
    new = repo.root / "new"
    new.write_bytes(b"one")
    stamp = time.time_ns()
    os.utime(new, ns=(stamp, stamp))
    repo.add()
    os.utime(repo.root / ".git/index", ns=(stamp, stamp))
    assert set(repo.borrow()) == {b"old"}
    assert old.exists()


def test_unusual_entries_are_left_out(repo: Repo) -> None:
    for name in ("plain", "assumed", "skipped", "conflict"):
        repo.write(name, b"base\n")
    (repo.root / "sub").mkdir()
    git(repo.root / "sub", "init", "-q")
    git(repo.root / "sub", "commit", "-q", "--allow-empty", "-m", "x")
    repo.commit()
    git(repo.root, "update-index", "--assume-unchanged", "assumed")
    git(repo.root, "update-index", "--skip-worktree", "skipped")
    git(repo.root, "checkout", "-q", "-b", "other")
    repo.write("conflict", b"theirs\n")
    git(repo.root, "commit", "-q", "-m", "x", "conflict")
    git(repo.root, "checkout", "-q", "-")
    repo.write("conflict", b"ours\n")
    git(repo.root, "commit", "-q", "-m", "x", "conflict")
    subprocess.run(["git", "merge", "other"], cwd=repo.root, capture_output=True, check=False)
    assert git(repo.root, "ls-files", "-u")
    assert set(repo.borrow()) == {b"plain"}


def _crlf_by_attribute(repo: Repo) -> None:
    repo.write(".gitattributes", b"*.txt text eol=crlf\n")


def _crlf_by_config(repo: Repo) -> None:
    git(repo.root, "config", "core.autocrlf", "true")


def _ident(repo: Repo) -> None:
    repo.write(".gitattributes", b"*.txt ident\n")


def _filter(repo: Repo) -> None:
    git(repo.root, "config", "filter.rot.clean", "tr a-z n-za-m")
    git(repo.root, "config", "filter.rot.smudge", "tr a-z n-za-m")
    repo.write("dir/.gitattributes", b"f*.txt filter=rot\n")


def _filter_by_info(repo: Repo) -> None:
    git(repo.root, "config", "filter.rot.clean", "tr a-z n-za-m")
    repo.write(".git/info/attributes", b"*.txt filter=rot\n")


def _filter_by_macro(repo: Repo) -> None:
    git(repo.root, "config", "filter.rot.clean", "tr a-z n-za-m")
    repo.write(".gitattributes", b"[attr]secret filter=rot\n*.txt secret\n")


def _encoding(repo: Repo) -> None:
    repo.write(".gitattributes", b"utf.txt working-tree-encoding=UTF-16\n")


def _filter_by_global_file(repo: Repo) -> None:
    git(repo.root, "config", "filter.rot.clean", "tr a-z n-za-m")
    elsewhere = repo.root.parent / "my attributes"
    elsewhere.write_bytes(b"*.txt filter=rot\n")
    git(repo.root, "config", "core.attributesFile", str(elsewhere))


CONVERSIONS: list[Callable[[Repo], None]] = [
    _crlf_by_attribute, _crlf_by_config, _ident, _filter, _filter_by_info, _filter_by_macro,
    _encoding,
    _filter_by_global_file,
]  # fmt: skip


#: Those that change the size, and so still show when they are no longer in force.
SIZE_CHANGING = [_crlf_by_attribute, _crlf_by_config, _ident, _encoding]


@pytest.mark.parametrize(
    ("configure", "gone"),
    [*((each, False) for each in CONVERSIONS), *((each, True) for each in SIZE_CHANGING)],
)
def test_converted_files_are_left_out(
    repo: Repo, configure: Callable[[Repo], None], gone: bool
) -> None:
    configure(repo)
    repo.write("crlf.txt", b"a\r\nb\r\n")
    repo.write("lf.txt", b"a\nb\n")
    repo.write("ident.txt", b"$Id: 0123 $\n")
    repo.write("utf.txt", "é".encode("utf-16"))
    repo.write("dir/f1.txt", b"secret")
    repo.write("plain.bin", b"\0plain")
    repo.add()
    staged = {
        line.partition(b"\t")[2]: bytes.fromhex(line.split(b" ")[1].decode())
        for line in git(repo.root, "ls-files", "-s", "-z").split(b"\0")
        if line
    }
    different = [path for path in staged if raw_oid(repo.root / os.fsdecode(path)) != staged[path]]
    assert different  # the conversion did take place
    if gone:
        for path in (".gitattributes", ".git/info/attributes", "dir/.gitattributes"):
            (repo.root / path).unlink(missing_ok=True)
        git(repo.root, "rm", "-q", "--cached", "--ignore-unmatch", ".gitattributes")
        git(repo.root, "rm", "-q", "--cached", "--ignore-unmatch", "dir/.gitattributes")
        git(repo.root, "config", "core.autocrlf", "false")
        git(repo.root, "config", "core.attributesFile", "")
    borrowed = repo.borrow()
    assert b"plain.bin" in borrowed
    assert_exact(repo, borrowed)


def test_a_staged_attribute_file_counts_too(repo: Repo) -> None:
    _filter_by_macro(repo)
    repo.write("f.txt", b"secret")
    repo.write("other", b"x")
    repo.add()
    (repo.root / ".gitattributes").unlink()
    borrowed = repo.borrow()
    assert b"other" in borrowed
    assert_exact(repo, borrowed)


def test_a_fifo_for_attributes_does_not_hang(repo: Repo) -> None:
    repo.write("a", b"a")
    repo.add()
    os.mkfifo(repo.root / ".gitattributes")
    assert repo.borrow() == {}


def test_unusual_repositories_give_nothing(repo: Repo, tmp_path: Path) -> None:
    repo.write("a", b"a")
    repo.add()
    assert repo.borrow()
    other = tmp_path / "elsewhere"
    other.mkdir()
    git(repo.root, "config", "core.worktree", str(other))
    assert repo.borrow() == {}
    git(repo.root, "config", "--unset", "core.worktree")
    index = repo.root / ".git/index"
    git(repo.root, "update-index", "--split-index")
    with pytest.raises(UnusualIndexError, match="link"):
        parse_index(index.read_bytes())
    assert repo.borrow() == {}
    index.unlink()
    assert repo.borrow() == {}
    sha256 = tmp_path / "sha256"
    sha256.mkdir()
    git(sha256, "init", "-q", "--object-format=sha256")
    (sha256 / "a").write_bytes(b"a")
    os.utime(sha256 / "a", (LONG_AGO_S, LONG_AGO_S))
    git(sha256, "add", "a")
    assert borrow_index(sha256 / ".git", sha256 / ".git", sha256) == {}


def test_a_damaged_index_is_not_believed(repo: Repo) -> None:
    for name in NAMES:
        repo.write(name, b"x")
    repo.add()
    index = repo.root / ".git/index"
    sound = index.read_bytes()
    for at in range(0, len(sound), 7):
        broken = sound[:at] + bytes([sound[at] ^ 0x10]) + sound[at + 1 :]
        with pytest.raises(UnusualIndexError):
            parse_index(broken)
        with pytest.raises(UnusualIndexError):
            parse_index(sound[:at])


def test_linked_worktree(repo: Repo, tmp_path: Path) -> None:
    repo.write("a", b"a\n")
    repo.commit()
    linked = tmp_path / "linked"
    git(repo.root, "worktree", "add", "-q", str(linked))
    os.utime(linked / "a", (LONG_AGO_S, LONG_AGO_S))
    git(linked, "update-index", "--refresh")
    common = repo.root / ".git"
    known = borrow_index(common / "worktrees/linked", common, linked)
    assert {path: blob.oid for path, blob in known.items()} == {b"a": object_id("blob", b"a\n")}


def _oids(repo: Repo) -> set[bytes]:
    out = git(repo.root, "ls-files", "-s").splitlines()
    return {bytes.fromhex(line.split(b" ")[1].decode()) for line in out}


def _make_packed_and_loose(repo: Repo) -> set[bytes]:
    for number in range(30):
        repo.write(f"packed{number}", b"packed %d\n" % number * 50)
    repo.commit()
    git(repo.root, "repack", "-adq")
    for number in range(10):
        repo.write(f"loose{number}", b"loose %d\n" % number)
    repo.commit()
    return _oids(repo)


def _assert_ours(store: ObjectStore, oids: set[bytes]) -> None:
    fresh = ObjectStore(store.git_dir)
    for oid in oids:
        assert fresh.read(oid)[0] == "blob"
    done = subprocess.run(
        ["git", f"--git-dir={store.git_dir}", "fsck", "--strict", "--full", "--no-dangling"],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not list(store.git_dir.glob("tmp-*"))


@pytest.mark.parametrize("way", ["link", "no link", "other device", "huge"])
def test_adopted_objects_outlive_the_users(
    repo: Repo, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    oids = _make_packed_and_loose(repo)
    if way == "huge":
        monkeypatch.setattr(copy_user_objects, "_SMALL_PACKS_BYTES", 10)
        monkeypatch.setattr(copy_user_objects, "_LINKED_PACKS_MAX_BYTES", 100)
    if way in ("no link", "other device"):
        number = 1 if way == "no link" else 18

        def refuse(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "link", refuse)
    before = snapshot_of(repo.root / ".git")
    assert adopt_objects(repo.root / ".git/objects", store, oids) == set()
    after = snapshot_of(repo.root / ".git")
    assert after == before
    linked = [p for p in (store.git_dir / "objects/pack").iterdir() if p.stat().st_nlink > 1]
    assert bool(linked) == (way == "link")
    git(repo.root, "rm", "-rqf", ".")
    git(repo.root, "commit", "-q", "--amend", "--allow-empty", "-m", "gone")
    git(repo.root, "reflog", "expire", "--expire=now", "--all")
    git(repo.root, "gc", "-q", "--prune=now")
    _assert_ours(store, oids)


def test_what_is_not_there_is_reported(repo: Repo, store: ObjectStore) -> None:
    oids = _make_packed_and_loose(repo)
    nowhere = bytes(range(20))
    objects = repo.root / ".git/objects"
    assert adopt_objects(objects, store, {*oids, nowhere}) == {nowhere}
    assert adopt_objects(objects, store, {*oids, nowhere}) == {nowhere}
    assert adopt_objects(objects, store, set()) == set()


def test_copying_skips_what_is_not_there(
    repo: Repo, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    oids = _make_packed_and_loose(repo)
    monkeypatch.setattr(copy_user_objects, "_SMALL_PACKS_BYTES", 10)
    monkeypatch.setattr(copy_user_objects, "_LINKED_PACKS_MAX_BYTES", 100)
    nowhere = bytes(range(20))
    assert adopt_objects(repo.root / ".git/objects", store, {*oids, nowhere}) == {nowhere}
    _assert_ours(store, oids)


@pytest.mark.parametrize("copy", [False, True])
def test_objects_in_the_users_alternates(
    repo: Repo, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy: bool
) -> None:
    oids = _make_packed_and_loose(repo)
    if copy:
        monkeypatch.setattr(copy_user_objects, "_SMALL_PACKS_BYTES", 10)
        monkeypatch.setattr(copy_user_objects, "_LINKED_PACKS_MAX_BYTES", 100)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--shared", str(repo.root), str(clone))
    assert adopt_objects(clone / ".git/objects", store, oids) == set()
    _assert_ours(store, oids)
