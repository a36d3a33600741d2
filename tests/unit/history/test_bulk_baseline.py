"""First use in a git repository: the quick way records exactly what the ordinary one does."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from substrate.history.record import baseline
from substrate.history.record import record_entry as record
from substrate.model.nodes import Node
from substrate.model.paths import RelPath
from substrate.objects.git.git_command import UserGit
from substrate.objects.import_user import bulk_baseline as module
from substrate.objects.import_user import copy_user_objects, indexed_files, unindexed_files
from substrate.objects.import_user.bulk_baseline import FirstLook, first_look
from substrate.objects.import_user.indexed_files import Later, Vouched, look_at
from substrate.objects.import_user.unindexed_files import Reader, directories_below
from substrate.objects.index.index_by_directory import Row
from substrate.objects.snapshots import snapshot as snapshots
from substrate.objects.snapshots.snapshot import Snapshot
from substrate.objects.store.batch import Batch
from substrate.objects.store.object_store import ObjectDir
from substrate.system.process.fork_workers import can_fork
from substrate.workspace.exclude import Exclusions
from substrate.workspace.paths.nofollow_listing import RawEntry, Tree
from substrate.workspace.paths.read_node import blob_id
from substrate.workspace.scan.stat_cache import DirRecord, Payload, StatCache
from substrate.workspace.workspace_location import Workspace
from tests.unit.history.workbench import Bench
from tests.unit.workspace.naive import later, walk

pytestmark = pytest.mark.skipif(not can_fork(), reason="this system has no safe fork")

LONG_AGO_S = 1_600_000_000
NEVER = sys.maxsize


def git(root: Path, *args: str | bytes, stdin: bytes = b"") -> bytes:
    argv = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always"]
    done = subprocess.run([*argv, *args], cwd=root, input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def put(root: Path, name: bytes | str, data: bytes, mode: int = 0o644) -> bytes:
    path = os.path.join(os.fsencode(root), os.fsencode(name))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, mode)
    os.utime(path, (LONG_AGO_S, LONG_AGO_S))
    return path


class Recorded(NamedTuple):
    snapshot: Snapshot
    nodes: dict[RelPath, Node]
    files: int
    cache: dict[str, tuple[DirRecord, Payload]]


def baseline_of(root: Path, quick_from_files: int) -> Recorded:
    """Take a baseline from nothing, as if everything had been there for a while."""
    shutil.rmtree(root / ".substrate-git", ignore_errors=True)
    with later(), Bench(root).writing() as store:
        baseline.take(store, quick_from_files=quick_from_files)
        tip = store.tip()
        nodes = dict(snapshots.walk(store.objects, tip))
        for node in nodes.values():
            if node.has_content:
                store.objects.read_blob(node.oid)  # ours now, and whole
        entry = store.ledger.tip()
        assert entry is not None
        cache = StatCache.load(store.stat_cache_file)
        assert cache.describes == tip.tree + tip.attrs
        assert snapshots.build(store.new_batch(), nodes.items()) == tip
        dirs = {path: (_plain(record), record.open()) for path, record in cache.dirs.items()}
        return Recorded(tip, nodes, entry.changed_files, dirs)


def _plain(record: DirRecord) -> DirRecord:
    """Without what may come in another order."""
    return record._replace(payload=b"", subdirs=sorted(record.subdirs))


def look(root: Path) -> FirstLook | None:
    shutil.rmtree(root / ".substrate-git", ignore_errors=True)
    with later(), Bench(root).writing() as store, store.new_batch() as batch:
        found = first_look(store.workspace, store.exclusions, batch, worth_files=0)
        if found is not None:
            found.complete(StatCache())
        return found


def assert_same(root: Path) -> None:
    ordinary, quick = baseline_of(root, NEVER), baseline_of(root, 0)
    assert quick.nodes == ordinary.nodes == walk(root)
    assert quick.snapshot == ordinary.snapshot
    assert quick.files == ordinary.files
    # The workspace's root differs because of the store itself, which was made again.
    for cache in (ordinary.cache, quick.cache):
        own, payload = cache.pop("")
        payload.entries.pop(".substrate-git")
        cache["own"] = (own._replace(signature=b"", newest_ns=0), payload._replace(ctime_ns=0))
    assert quick.cache == ordinary.cache


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A clone: everything packed, nothing young."""
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "-q")
    for name in ("a", "b", "d/e", "d/f", "d/sub/g", "only/below/h", "x.y/i", "x/j", "x0/k"):
        put(root, name, b"content of %s\n" % name.encode())
    put(root, "run.sh", b"#!/bin/sh\n", 0o755)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "x")
    git(root, "repack", "-adq")
    return root


ALL = {"", "d", "d/sub", "only", "only/below", "x.y", "x", "x0"}


def settle_index(root: Path) -> None:
    """As if git had written it a while after the files."""
    now = os.stat(root / ".git/index").st_mtime_ns
    os.utime(root / ".git/index", ns=(now, now + 10**9))


def add_again(root: Path) -> None:
    """Git compares times by the second: it would not see that they changed just now."""
    git(root, "rm", "-rq", "--cached", ".")
    git(root, "add", "-f", "-A", ".")


def explained(root: Path) -> set[str]:
    settle_index(root)
    found = look(root)
    assert found is not None
    return whole(found)


def whole(found: FirstLook) -> set[str]:
    """The directories that the scan does not look at any more."""
    return {path for path, one in found.directories.items() if one.record[0]}


def test_a_clean_clone_is_explained_whole(repo: Path) -> None:
    settle_index(repo)
    found = look(repo)
    assert found is not None
    assert whole(found) == ALL
    assert found.known == {}
    assert_same(repo)


def test_its_trees_are_the_users_own(repo: Path) -> None:
    wanted = git(repo, "rev-parse", "HEAD^{tree}").strip().decode()
    assert baseline_of(repo, 0).snapshot == (bytes.fromhex(wanted), b"")


def _untracked(root: Path) -> None:
    put(root, "d/new", b"untracked\n")


def _edited(root: Path) -> None:
    put(root, "d/e", b"Content of d/e\n")


def _edited_quietly(root: Path) -> None:
    """Same size, same mtime: only the ctime tells."""
    path = put(root, "d/e", b"CONTENT OF d/e\n")
    os.utime(path, (LONG_AGO_S, LONG_AGO_S))


def _removed(root: Path) -> None:
    (root / "d/e").unlink()


def _replaced(root: Path) -> None:
    (root / "d/e").unlink()
    (root / "d/e").mkdir()


def _fifo(root: Path) -> None:
    os.mkfifo(root / "d/fifo")


def _socket(root: Path) -> None:
    (root / "d/e").unlink()
    here = os.getcwd()
    os.chdir(root / "d")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("e")
    os.chdir(here)


def _attribute(root: Path) -> None:
    os.setxattr(root / "d/e", "user.note", b"mine")
    add_again(root)


def _link(root: Path) -> None:
    (root / "d/link").symlink_to("e")


def _assumed(root: Path) -> None:
    git(root, "update-index", "--assume-unchanged", "d/e")
    put(root, "d/e", b"Content of d/e\n")


def _converted(root: Path) -> None:
    """Checked out with CRLF once; nothing says so any more."""
    (root / "d/e").unlink()
    git(root, "-c", "core.autocrlf=true", "checkout", "d/e")
    assert b"\r\n" in (root / "d/e").read_bytes()
    os.utime(root / "d/e", (LONG_AGO_S, LONG_AGO_S))
    git(root, "-c", "core.autocrlf=true", "update-index", "--refresh")


def _gone_object(root: Path) -> None:
    put(root, "d/e", b"staged, and then the object is lost\n")
    git(root, "add", "d/e")
    oid = git(root, "rev-parse", ":d/e").strip().decode()
    (root / ".git/objects" / oid[:2] / oid[2:]).unlink()


UNUSUAL = [
    _untracked, _edited, _edited_quietly, _fifo, _socket, _attribute, _link,
    _assumed, _converted, _gone_object,
]  # fmt: skip


@pytest.mark.parametrize("change", UNUSUAL, ids=lambda f: f.__name__.strip("_"))
def test_what_is_unusual_leaves_its_directory_to_the_scan(
    repo: Path, change: Callable[[Path], None]
) -> None:
    change(repo)
    assert explained(repo) == ALL - {"d"}
    assert_same(repo)


@pytest.mark.parametrize("change", [_removed, _replaced], ids=lambda f: f.__name__.strip("_"))
def test_what_is_left_where_a_file_went_is_explained(
    repo: Path, change: Callable[[Path], None]
) -> None:
    change(repo)
    assert explained(repo) == ALL
    assert_same(repo)


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o755, 0o4755, 0o444])
def test_exact_modes_are_kept(repo: Path, mode: int) -> None:
    for name in ("d/e", "x/j"):
        (repo / name).chmod(mode)
    (repo / "d/sub").chmod(0o700)
    (repo / "x0").chmod(0o775)
    add_again(repo)
    assert explained(repo) == ALL
    assert_same(repo)


def test_links_are_taken_over(repo: Path) -> None:
    (repo / "d/link").symlink_to("e")
    (repo / "dangling").symlink_to(b"nowhere \xff")
    os.utime(repo / "d/link", (LONG_AGO_S, LONG_AGO_S), follow_symlinks=False)
    os.utime(repo / "dangling", (LONG_AGO_S, LONG_AGO_S), follow_symlinks=False)
    git(repo, "add", "-A")
    assert explained(repo) == ALL
    assert_same(repo)


def test_directories_beside_the_index(repo: Path) -> None:
    (repo / "d/empty").mkdir(mode=0o711)
    (repo / "d/sub/node_modules").mkdir()
    put(repo, "d/sub/node_modules/bulk.js", b"bulk")
    put(repo, "node_modules/tracked.js", b"bulk, yet tracked")
    git(repo, "add", "-f", "node_modules")
    os.setxattr(repo / "x", "user.note", b"on a directory")
    assert explained(repo) == ALL
    assert_same(repo)


def test_nested_repositories_and_submodules(repo: Path) -> None:
    (repo / "d/nested").mkdir()
    git(repo / "d/nested", "init", "-q")
    put(repo, "d/nested/n", b"in a nested repository")
    put(repo, "d/nested/.gitattributes", b"* filter=f")
    git(repo, "clone", "-q", ".git", "x/module")
    git(repo, "add", "x/module")
    assert b"160000" in git(repo, "ls-files", "-s", "x/module")
    assert explained(repo) == ALL - {"x"}
    assert_same(repo)


def test_names_that_are_metadata_as_files(repo: Path) -> None:
    for name in (".ctx", "d/.ctx", "x/.substrate-git"):
        put(repo, name, b"tracked")
    git(repo, "add", "-f", "-A", ".")
    assert explained(repo) == ALL - {"", "d", "x"}
    assert_same(repo)


def test_a_name_that_git_forbids_elsewhere(repo: Path) -> None:
    git(repo, "config", "core.protectNTFS", "false")
    put(repo, "d/git~1", b"a trap on Windows")
    git(repo, "add", "-A")
    assert explained(repo) == ALL - {"d"}
    assert_same(repo)


def test_a_link_on_the_way_down_leads_nowhere(repo: Path) -> None:
    """The files below are the very same, with the same stat; but not in this place."""
    (repo / "d").rename(repo / "moved")
    (repo / "d").symlink_to("moved")
    assert explained(repo) == ALL - {"", "d", "d/sub"}
    assert_same(repo)


def test_a_directory_on_the_way_is_left_to_the_scan_but_not_those_below(repo: Path) -> None:
    put(repo, "d/new", b"untracked\n")
    assert "d/sub" in explained(repo)


@pytest.mark.parametrize("version", [2, 4])
def test_index_versions(repo: Path, version: int) -> None:
    git(repo, "update-index", "--index-version", str(version))
    assert explained(repo) == ALL
    assert_same(repo)


def test_a_young_file_is_read(repo: Path) -> None:
    """Not older than the index: it may have changed after git looked."""
    index = os.stat(repo / ".git/index")
    path = put(repo, "d/e", b"Content of d/e\n")
    os.utime(path, ns=(index.st_mtime_ns, index.st_mtime_ns))
    git(repo, "add", "d/e")
    now = os.stat(path)
    os.utime(repo / ".git/index", ns=(now.st_mtime_ns, now.st_mtime_ns))
    found = look(repo)
    assert found is not None
    assert "d" not in whole(found)
    assert_same(repo)


def test_what_just_changed_goes_the_ordinary_way(repo: Path) -> None:
    """Without `later`: a change right now could leave the same times."""
    with Bench(repo).writing() as store, store.new_batch() as batch:
        found = first_look(store.workspace, store.exclusions, batch, worth_files=0)
    assert found is not None
    assert whole(found) <= {"only"}  # without files of its own


def _conflict(root: Path) -> None:
    oid = git(root, "rev-parse", "HEAD:d/e").strip()
    lines = b"".join(b"100644 %s %d\td/e\n" % (oid, stage) for stage in (1, 2, 3))
    git(root, "update-index", "--force-remove", "d/e")
    git(root, "update-index", "--index-info", stdin=lines)


REPOSITORIES: dict[str, Callable[[Path], object]] = {
    "attributes": lambda root: put(root, ".gitattributes", b"*.x filter=f\n"),
    "ignore rules": lambda root: put(root, ".substrateignore", b"*.log\n"),
    "no index": lambda root: (root / ".git/index").unlink(),
    "torn index": lambda root: os.truncate(root / ".git/index", 200),
    "another work tree": lambda root: git(root, "config", "core.worktree", "/nowhere"),
    "a conflict": _conflict,
    "intent to add": lambda root: git(root, "add", "-N", put(root, "d/later", b"x")),
    "a split index": lambda root: git(root, "update-index", "--split-index"),
}


@pytest.mark.parametrize("kind", REPOSITORIES)
def test_unusual_repositories_go_the_ordinary_way(repo: Path, kind: str) -> None:
    REPOSITORIES[kind](repo)
    assert look(repo) is None
    ordinary, quick = baseline_of(repo, NEVER), baseline_of(repo, 0)
    assert quick.snapshot == ordinary.snapshot


def test_no_git_to_ask(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes are not known then, so nothing is vouched for."""
    monkeypatch.setattr(UserGit, "_size_lines", lambda *_: b"")
    assert explained(repo) == {"only"}  # without files of its own
    assert_same(repo)


def test_an_object_that_cannot_be_made_ours(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its header can be read, so its size is right; but git cannot pack it."""
    monkeypatch.setattr(copy_user_objects, "LINKED_LOOSE_MAX", 0)
    put(repo, "d/e", b"staged, and then the object is damaged\n")
    git(repo, "add", "d/e")
    oid = git(repo, "rev-parse", ":d/e").strip().decode()
    loose = repo / ".git/objects" / oid[:2] / oid[2:]
    whole = loose.read_bytes()
    loose.chmod(0o644)
    loose.write_bytes(whole[:-3])
    assert explained(repo) == ALL - {"d"}
    assert_same(repo)


# ------------------------------------------------------------------ children that fail


class _DeadlyForks:
    """Kills forked children by their number, as the kernel might."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.count = 0
        os.register_at_fork(after_in_parent=self._counted, after_in_child=self._maybe_die)

    def _counted(self) -> None:
        self.count += 1

    def _maybe_die(self) -> None:
        if self.count in self.numbers:
            os.kill(os.getpid(), signal.SIGKILL)


_FORKS = _DeadlyForks()


@pytest.fixture
def deadly() -> Iterator[Callable[..., None]]:
    def arm(*numbers: int) -> None:
        _FORKS.count, _FORKS.numbers = 0, set(numbers)

    yield arm
    _FORKS.numbers = set()


@pytest.mark.parametrize("dying", [(0,), (1,), tuple(range(8))])
def test_killed_children(repo: Path, deadly: Callable[..., None], dying: tuple[int, ...]) -> None:
    wanted = baseline_of(repo, NEVER)
    deadly(*dying)
    assert baseline_of(repo, 0).snapshot == wanted.snapshot


def test_a_child_killed_at_work(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = baseline_of(repo, NEVER)

    def die_at_d(
        tree: Tree,
        path: str,
        rows: list[Row],
        exclusions: Exclusions,
        before_ns: int,
        reader: Reader | None,
        *,
        later: Later | None,
    ) -> Vouched | None:
        if path == "d":
            os.kill(os.getpid(), signal.SIGKILL)
        return look_at(tree, path, rows, exclusions, before_ns, reader, later=later)

    monkeypatch.setattr(module, "look_at", die_at_d)
    assert baseline_of(repo, 0).snapshot == wanted.snapshot


def test_a_child_killed_after_its_answer(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what the next scan would have liked to know is missing."""
    wanted = baseline_of(repo, NEVER)

    def die(_: Later) -> NoReturn:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    monkeypatch.setattr(Later, "records", die)
    found = baseline_of(repo, 0)
    assert (found.snapshot, found.nodes) == (wanted.snapshot, wanted.nodes)
    assert len(found.cache) < len(wanted.cache)
    with later(), Bench(repo).writing() as store:
        assert record.record_outside(store) is None
        assert all(one.signature for one in StatCache.load(store.stat_cache_file).dirs.values())


def test_so_many_that_not_all_can_wait(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexed_files, "_LATER_FILES", 3)
    assert_same(repo)


def test_no_process_to_spare(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", refuse)
    assert look(repo) is None


def test_nothing_is_left_behind(repo: Path) -> None:
    before, here, others = os.listdir("/proc/self/fd"), os.getcwd(), _children()
    assert look(repo) is not None
    assert os.listdir("/proc/self/fd") == before
    assert os.getcwd() == here
    assert _children() <= others  # another test's child may still run, or end in between


def _children() -> set[str]:
    tasks = Path("/proc/self/task").iterdir()
    return {pid for task in tasks for pid in (task / "children").read_text().split()}


# ------------------------------------------------------------------ during and afterwards


def _file_to_directory(root: Path) -> None:
    (root / "d/f").unlink()
    (root / "d/f").mkdir()


def _all_in_one_go(root: Path) -> None:
    """Some of these were already adopted when the scan finds that the empty one is gone."""
    for path in (root / "only").iterdir():
        shutil.rmtree(path)


MEANWHILE: dict[str, Callable[[Path], object]] = {
    "a directory that the scan was to enter goes": lambda root: (root / "x/empty").rmdir(),
    "and all beside it": _all_in_one_go,
    "the same where it looks again anyway": lambda root: (root / "d/empty").rmdir(),
    "a file goes": lambda root: (root / "d/f").unlink(),
    "a file changes": lambda root: put(root, "d/f", b"other", 0o600),
    "a file becomes a directory": _file_to_directory,
    "a directory goes": lambda root: shutil.rmtree(root / "d/sub"),
    "a mode changes": lambda root: (root / "d").chmod(0o700),
}


@pytest.mark.parametrize("change", MEANWHILE)
def test_a_change_between_the_look_and_the_scan(
    repo: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """In a directory that has something for the scan, it is seen at once."""
    (repo / "d/empty").mkdir()
    (repo / "x/empty").mkdir()
    (repo / "only/empty").mkdir()
    for number in range(12):
        put(repo, f"only/{number}/file", b"tracked")
    (repo / "d/e").chmod(0o640)
    add_again(repo)
    put(repo, "d/untracked", b"for the scan")
    settle_index(repo)

    def look_and_change(
        workspace: Workspace, exclusions: Exclusions, batch: Batch, *, worth_files: int
    ) -> FirstLook | None:
        found = first_look(workspace, exclusions, batch, worth_files=worth_files)
        assert found is not None
        assert "d" in found.directories
        MEANWHILE[change](repo)
        return found

    monkeypatch.setattr(baseline, "first_look", look_and_change)
    assert baseline_of(repo, 0).nodes == walk(repo)


def test_a_change_after_the_look_is_the_commands(repo: Path) -> None:
    for quick_from_files in (0, NEVER):
        shutil.rmtree(repo / ".substrate-git", ignore_errors=True)
        bench = Bench(repo)
        put(repo, "d/e", b"content of d/e\n")
        git(repo, "add", "-A")
        with later(), bench.writing() as store:
            baseline.take(store, quick_from_files=quick_from_files)
            running = record.begin(store, session=None, agent_id=None, command="x", exact="x")
        old = os.stat(repo / "d/e")
        (repo / "d/e").write_bytes(b"CONTENT of d/e\n")
        os.utime(repo / "d/e", ns=(old.st_atime_ns, old.st_mtime_ns))
        (repo / "x/j").chmod(0o600)
        (repo / "only/below/h").unlink()
        with bench.writing() as store:
            done = record.finish(store, running, record.Result(0, 1, {}))
        assert [c.path for c in done.changes] == [b"d/e", b"only/below/h", b"x/j"]
        git(repo, "checkout", "HEAD", "--", ".")
        (repo / "x/j").chmod(0o644)


def test_the_next_scan_reads_nothing(repo: Path) -> None:
    baseline_of(repo, 0)
    with later(), Bench(repo).writing() as store:
        cache = StatCache.load(store.stat_cache_file)
        assert all(record.signature for record in cache.dirs.values())
        assert record.record_outside(store) is None


# ------------------------------------------------------------------ files that must be read


@pytest.fixture
def plain(repo: Path) -> Path:
    """The same without a repository."""
    shutil.rmtree(repo / ".git")
    return repo


@pytest.fixture
def loose(repo: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same with a pack of some of its blobs, and so many loose that they are not linked."""
    monkeypatch.setattr(module, "LINKED_LOOSE_MAX", 0)
    for number in range(40):
        git(repo, "hash-object", "-w", "--stdin", stdin=b"%d" % number)
    for first in range(0, 256, 32):  # where it is looked for them
        filled = repo / f".git/objects/{first:02x}"
        filled.mkdir(exist_ok=True)
        for number in range(5):
            (filled / f"{number:038x}").touch()
    for name in ("d/e", "x/j"):
        put(repo, name, b"another %s\n" % name.encode())
        git(repo, "add", name)
    return repo


def read_by_children(root: Path) -> set[str]:
    """The contents that were brought by them, as text."""
    shutil.rmtree(root / ".substrate-git", ignore_errors=True)
    with later(), Bench(root).writing() as store, store.new_batch() as batch:
        assert first_look(store.workspace, store.exclusions, batch, worth_files=0) is not None
        batch.publish()
        found = (store.objects.read(oid) for oid in set(store.objects.all_oids()))
        linked = list((root / ".git/objects/pack").glob("*.pack"))
        assert len(linked) <= 1
        theirs = set()
        for pack in linked:
            listed = git(root, "show-index", stdin=pack.with_suffix(".idx").read_bytes())
            theirs = {line.split()[1].decode() for line in listed.splitlines()}
        return {
            data.decode()
            for kind, data in found
            if kind == "blob" and blob_id(data).hex() not in theirs
        }


def test_without_a_repository_every_file_is_read(plain: Path) -> None:
    found = look(plain)
    assert found is not None
    assert whole(found) == ALL
    assert len(read_by_children(plain)) == 10
    assert_same(plain)


def test_loose_objects_are_not_asked_for_one_by_one(loose: Path) -> None:
    """What is in a pack is linked, the other files are read."""
    assert explained(loose) == ALL
    assert read_by_children(loose) == {"another d/e\n", "another x/j\n"}
    assert_same(loose)


def test_all_objects_loose(loose: Path) -> None:
    shutil.rmtree(loose / ".git/objects/pack")
    assert explained(loose) == ALL
    assert_same(loose)


def test_in_a_fresh_copy_whose_index_is_stale_every_file_is_read(repo: Path) -> None:
    """By the children; what the user's packs hold is linked, and not kept once more."""
    copy = repo.with_name("copy")
    shutil.copytree(repo, copy)
    put(copy, "d/e", b"edited in the copy\n")
    assert explained(copy) == ALL
    assert read_by_children(copy) == {"edited in the copy\n"}
    assert_same(copy)


def _long(root: Path) -> None:
    put(root, "d/long", b"0123456789abcdef" * (1 << 16) + b"!")


def _forbidden(root: Path) -> None:
    put(root, "d/GIT~1", b"a trap on Windows")


def _metadata(root: Path) -> None:
    put(root, "d/.ctx", b"a file")


NOT_READ = [_fifo, _socket, _link, _attribute, _long, _forbidden, _metadata]


@pytest.mark.parametrize("how", ["plain", "loose"])
@pytest.mark.parametrize("change", NOT_READ, ids=lambda f: f.__name__.strip("_"))
def test_what_is_unusual_is_left_to_the_scan(
    request: pytest.FixtureRequest, how: str, change: Callable[[Path], None]
) -> None:
    root: Path = request.getfixturevalue(how)
    if how == "plain" and change is _attribute:
        os.setxattr(root / "d/e", "user.note", b"mine")
    else:
        change(root)
    settled = explained(root) if how == "loose" else whole(look(root) or FirstLook({}, {}, []))
    assert settled == ALL - {"d"}
    assert_same(root)


def test_names_and_modes_without_a_repository(plain: Path) -> None:
    names = (b"\xff", b"\xc3\xa9", b"n\nl", b"-", b"a b", b"\xf0\x9f\x98\x80")
    for number, name in enumerate(names):
        put(plain, b"x/" + name, name, (0o600, 0o755, 0o444, 0o4755)[number % 4])
    (plain / "x").chmod(0o700)
    (plain / "d/node_modules").mkdir()
    put(plain, "d/node_modules/bulk.js", b"bulk")
    (plain / "empty/below").mkdir(parents=True)
    os.setxattr(plain / "x0", "user.note", b"on a directory")
    found = look(plain)
    assert found is not None
    assert whole(found) == ALL | {"empty", "empty/below"}
    assert_same(plain)


def test_a_young_file_is_left_to_the_scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may change again and keep its times."""
    put(tmp_path, "file", b"content")
    at = os.lstat(tmp_path / "file")
    raw = ("file", at.st_mode, at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino)
    monkeypatch.chdir(tmp_path)
    assert Reader(Exclusions()).read([raw], at.st_ctime_ns + 10**6) == []
    assert Reader(Exclusions()).read([raw], at.st_ctime_ns + 10**10) == [(raw, blob_id(b"content"))]


def test_a_loose_object_is_not_borrowed_for_a_file_that_was_not_read(
    loose: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has not been made ours, though the index vouches for it."""
    read = unindexed_files._content
    monkeypatch.setattr(
        unindexed_files, "_content", lambda raw: None if raw[0] == "j" else read(raw)
    )
    assert explained(loose) == ALL - {"x"}
    assert_same(loose)


def _to_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("f")


def _to_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


CHANGING: dict[str, Callable[[Path], object]] = {
    "grows": lambda path: path.write_bytes(b"content of d/e\nand more\n"),
    "changes": lambda path: path.write_bytes(b"CONTENT of d/e\n"),
    "goes": lambda path: path.unlink(),
    "becomes a link": _to_link,
    "becomes a FIFO": _to_fifo,
    "is replaced": lambda path: os.replace(put(path.parents[2], "new", b"content of d/e\n"), path),
}


@pytest.mark.parametrize("change", CHANGING)
def test_a_file_that_changes_before_it_is_read(
    plain: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """It was already listed: its directory's signature must not cover the content read later."""
    read = unindexed_files._content

    def changed_first(raw: RawEntry) -> bytes | None:
        if raw[0] == "e":
            CHANGING[change](plain / "d/e")
        return read(raw)

    monkeypatch.setattr(unindexed_files, "_content", changed_first)
    found = look(plain)
    assert found is not None
    assert whole(found) == ALL - {"d"}
    monkeypatch.undo()
    assert baseline_of(plain, 0).nodes == walk(plain)


def test_a_file_that_changes_while_it_is_read(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same length, and the same mtime: only the ctime tells."""

    def change_and_list(fd: int) -> list[str]:
        if os.fstat(fd).st_ino == (plain / "d/e").stat().st_ino:
            put(plain, "d/e", b"CONTENT of d/e\n")
        return []

    monkeypatch.setattr(os, "listxattr", change_and_list)
    found = look(plain)
    assert found is not None
    assert whole(found) == ALL - {"d"}


@pytest.mark.parametrize("how", ["plain", "loose"])
@pytest.mark.parametrize("room", [0, 40])
def test_children_that_run_out_of_room_are_followed_by_others(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, how: str, room: int
) -> None:
    monkeypatch.setattr(unindexed_files, "_CHILD_BYTES", room)
    monkeypatch.setattr(module, "_CHUNK_WEIGHT", 1)
    root: Path = request.getfixturevalue(how)
    for number in range(30):
        put(root, f"many/{number}/file", b"content %d\n" % number)
    if how == "loose":
        git(root, "add", "-A")
        settle_index(root)
    found = look(root)
    assert found is not None
    assert {"many/0", "many/29", "x0"} <= whole(found)
    assert_same(root)


@pytest.mark.parametrize("how", ["plain", "loose"])
@pytest.mark.parametrize("dying", [(0,), (1,), tuple(range(8))])
def test_killed_readers(
    request: pytest.FixtureRequest,
    deadly: Callable[..., None],
    how: str,
    dying: tuple[int, ...],
) -> None:
    root: Path = request.getfixturevalue(how)
    wanted = baseline_of(root, NEVER)
    deadly(*dying)
    assert baseline_of(root, 0).snapshot == wanted.snapshot


@pytest.mark.parametrize("at", ["g", "h", "k"])
def test_killed_while_its_children_read(
    plain: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """The next one waits for no other process, starts over and cleans up."""
    read = unindexed_files._content

    def kill_at(raw: RawEntry) -> bytes | None:
        if raw[0] == at:
            os.kill(os.getppid(), signal.SIGKILL)
        return read(raw)

    monkeypatch.setattr(unindexed_files, "_content", kill_at)
    monkeypatch.setattr(unindexed_files, "_CHILD_BYTES", 0)  # in several rounds
    monkeypatch.setattr(module, "_CHUNK_WEIGHT", 1)
    taker = os.fork()
    if taker == 0:
        try:
            with later(), Bench(plain).writing() as store:
                baseline.take(store, quick_from_files=0)
        finally:
            os._exit(0)
    _, status = os.waitpid(taker, 0)
    assert os.WIFSIGNALED(status)
    monkeypatch.undo()
    with later(), Bench(plain).writing() as store:
        assert store.tip_commit is None
        baseline.take(store, quick_from_files=0)
        assert dict(snapshots.walk(store.objects, store.tip())) == walk(plain)
    left = (plain / ".substrate-git/.git/objects/pack").glob("tmp*")
    assert list(left) == []


def test_what_was_read_is_safe_with_the_baseline(plain: Path) -> None:
    """In a pack of ours, synced before the commit that needs it."""
    baseline_of(plain, 0)
    ours = plain / ".substrate-git/.git"
    assert subprocess.run(
        ["git", f"--git-dir={ours}", "fsck", "--strict", "--full"], capture_output=True, check=False
    ).stderr == b""  # fmt: skip
    assert len(list((ours / "objects/pack").glob("*.pack"))) == 1


def test_links_and_mounts_are_not_walked_into(plain: Path) -> None:
    (plain / "link").symlink_to("d")
    (plain / "node_modules/below").mkdir(parents=True)
    found = directories_below(str(plain), plain.stat().st_dev, Exclusions())
    assert set(found) == {os.fsencode(path) + b"/" if path else b"" for path in ALL}
    assert found[b"d/"] == 2
    assert set(directories_below(str(plain), 0, Exclusions())) == {b""}


# ------------------------------------------------------------------ any repository

DIRECTORIES = [b"", b"d/", b"d/e/", b"d.x/", b"u\xff/", b"target/"]
NAMES = [b"a", b"b", b"a.b", b"-", b"n\nl", b"\xfe", b"\xc3\xa9", b"digit", b".gitignore", b".env"]
MODES = st.sampled_from([0o644, 0o644, 0o644, 0o755, 0o600, 0o664, 0o640])
FATES = st.sampled_from(
    ["tracked", "tracked", "tracked", "untracked", "edited", "edited quietly", "chmod", "link",
     "young", "removed", "attribute", "lines", "staged", "touched", "to directory"]
)  # fmt: skip
FILES = st.dictionaries(
    st.tuples(st.sampled_from(DIRECTORIES), st.sampled_from(NAMES)),
    st.tuples(MODES, FATES, st.binary(max_size=12)),
    max_size=14,
)


class Oddities(NamedTuple):
    version: int
    packed: bool
    directory_mode: int
    attributes: bytes
    empty_directory: bool
    submodule: bool
    #: Whether the files are read: there is no repository, or its loose objects are too many.
    are_read: str


ODDITIES = st.builds(
    Oddities,
    version=st.sampled_from([2, 4]),
    packed=st.booleans(),
    directory_mode=st.sampled_from([0o755, 0o755, 0o700, 0o775]),
    attributes=st.sampled_from([b"", b"", b"* text=auto eol=crlf\n", b"a ident\n"]),
    empty_directory=st.booleans(),
    submodule=st.booleans(),
    are_read=st.sampled_from(["", "", "plain", "loose"]),
)


@given(FILES, ODDITIES)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
def test_any_repository_is_recorded_as_the_ordinary_way_does(
    files: dict[tuple[bytes, bytes], tuple[int, str, bytes]], odd: Oddities
) -> None:
    with tempfile.TemporaryDirectory() as top:
        root = Path(top, "repo")
        root.mkdir()
        make_repository(root, files, odd)
        with pytest.MonkeyPatch.context() as patch:
            if odd.are_read == "plain":
                shutil.rmtree(root / ".git")
            elif odd.are_read == "loose":
                patch.setattr(module, "LINKED_LOOSE_MAX", 0)
                patch.setattr(ObjectDir, "has_many_loose", lambda _: True)
            assert_same(root)


def make_repository(
    root: Path, files: dict[tuple[bytes, bytes], tuple[int, str, bytes]], odd: Oddities
) -> None:
    git(root, "init", "-q")
    top = os.fsencode(root)
    if odd.attributes:
        put(root, ".gitattributes", odd.attributes)
    for (directory, name), (mode, fate, data) in files.items():
        path = put(root, directory + name, data, mode)
        if fate == "link":
            os.unlink(path)
            os.symlink(data.replace(b"\0", b"0") or b"x", path)
            os.utime(path, (LONG_AGO_S, LONG_AGO_S), follow_symlinks=False)
        elif fate == "lines":
            put(root, directory + name, b"one\r\ntwo\n" + data, mode)
    for directory in {directory for directory, _ in files if directory}:
        os.chmod(os.path.join(top, directory), odd.directory_mode)
    git(root, "add", "-f", "-A")
    git(root, "commit", "-q", "--allow-empty", "-m", "x")
    git(root, "update-index", "--index-version", str(odd.version))
    if odd.submodule:
        oid = git(root, "rev-parse", "HEAD").strip().decode()
        put(root, "d/module/inside", b"of a submodule")
        git(root, "update-index", "--add", "--cacheinfo", f"160000,{oid},d/module")
    for (directory, name), (_, fate, data) in files.items():
        path = os.path.join(top, directory, name)
        _befall(root, path, directory + name, fate, data)
    if odd.packed:
        git(root, "repack", "-adq")
    if not any(fate == "young" for _, fate, _ in files.values()):
        settle_index(root)
    if odd.empty_directory:
        os.makedirs(os.path.join(top, b"d", b"empty"), exist_ok=True)


def _befall(root: Path, path: bytes, name: bytes, fate: str, data: bytes) -> None:
    if fate == "untracked":
        git(root, "update-index", "--force-remove", "--", name)
    elif fate in ("edited", "staged"):
        put(root, name, data + b"!")
        if fate == "staged":
            git(root, "add", "-f", "--", name)
    elif fate == "edited quietly":
        put(root, name, data[::-1])
    elif fate == "chmod":
        os.chmod(path, 0o751)
    elif fate == "young":
        with open(path, "wb") as file:
            file.write(data)
        git(root, "add", "-f", "--", name)
        with open(path, "wb") as file:
            file.write(data[::-1])
    elif fate == "removed":
        os.unlink(path)
    elif fate == "attribute":
        os.setxattr(path, "user.x", data)
    elif fate == "touched":
        os.utime(path, (LONG_AGO_S + 5, LONG_AGO_S + 5))
    elif fate == "to directory":
        os.unlink(path)
        os.makedirs(os.path.join(path, b"empty"))
