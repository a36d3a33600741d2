"""Our git calls: right on an honest store, unmoved by a hostile one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from substrate.errors import MissingDependencyError, SubstrateError
from substrate.model.nodes import Kind, Node
from substrate.model.paths import RelPath
from substrate.objects.git.git_command import BINARY, Git
from substrate.objects.snapshots.snapshot import EMPTY, edit
from substrate.objects.store.batch import Batch
from substrate.objects.store.object_store import ObjectStore
from tests.unit.objects.conftest import commit_snapshot

NASTY = [b"-rf", b"a\nb", b"\xff\xfe", b"tab\there", b":(glob)*", b'"quoted"', b"n" * 255]


@pytest.fixture
def git(store: ObjectStore) -> Git:
    return Git(store.git_dir)


@pytest.fixture
def two_commits(store: ObjectStore) -> tuple[bytes, bytes]:
    with Batch(store) as batch:
        one, two = batch.add_blob(b"1\n2\n3\n"), batch.add_blob(b"1\ntwo\n3\n4\n")
        binary = batch.add_blob(b"\0\1")
        nodes = {RelPath(name): Node(Kind.FILE, 0o644, one) for name in NASTY}
        first = edit(batch, EMPTY, nodes)
        changed = {RelPath(name): Node(Kind.FILE, 0o644, two) for name in NASTY}
        changed[RelPath(b"bin")] = Node(Kind.FILE, 0o644, binary)
        second = edit(batch, first, changed)
        a = commit_snapshot(batch, first)
        b = commit_snapshot(batch, second, a)
        batch.publish()
    return a, b


def test_numstat_takes_any_name(git: Git, two_commits: tuple[bytes, bytes]) -> None:
    a, b = two_commits
    expected: dict[bytes, tuple[int, int] | None] = dict.fromkeys(NASTY, (2, 1))
    assert git.numstat(a, b) == expected | {b"bin": None}
    for name in NASTY:
        assert git.numstat(a, b, [RelPath(name)]) == {name: (2, 1)}
    assert git.numstat(None, a)[RelPath(b"-rf")] == (3, 0)


def test_diff_text(git: Git, two_commits: tuple[bytes, bytes]) -> None:
    a, b = two_commits
    text = git.diff_text(a, b, [RelPath(b"-rf")])
    assert b"--- a/-rf\n+++ b/-rf\n" in text
    assert b"-2\n+two\n" in text
    assert b"\x1b[" in git.diff_text(a, b, color=True)
    assert b"8 files changed" in git.diff_text(a, b, stat=True)
    assert b"@@ -2 +2 @@" in git.diff_text(a, b, [RelPath(b"-rf")], context=0)


def test_blame(git: Git, two_commits: tuple[bytes, bytes]) -> None:
    a, b = two_commits
    for name in NASTY:
        lines = git.blame_porcelain(b, RelPath(name)).split(b"\n")
        assert lines[0].startswith(a.hex().encode())
        part = git.blame_porcelain(b, RelPath(name), (2, 2))
        assert part.startswith(b.hex().encode())
        assert b"\n\ttwo\n" in part


def test_a_planted_configuration_runs_nothing(
    git: Git, store: ObjectStore, two_commits: tuple[bytes, bytes], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    a, b = two_commits
    marker = tmp_path / "ran"
    script = tmp_path / "evil"
    script.write_text(f"#!/bin/sh\ntouch '{marker}'\ncat\n")
    script.chmod(0o755)
    (store.git_dir / "info").mkdir(exist_ok=True)
    (store.git_dir / "info/attributes").write_text("* diff=evil filter=evil merge=evil\n")
    with (store.git_dir / "config").open("a") as config:
        config.write(
            f"[core]\n\tfsmonitor = {script}\n\tpager = {script}\n\thooksPath = {tmp_path}\n"
            f'[diff "evil"]\n\ttextconv = {script}\n\tcommand = {script}\n'
            f'[filter "evil"]\n\tclean = {script}\n\tsmudge = {script}\n'
            f'[merge "evil"]\n\tdriver = {script}\n'
            f"[diff]\n\texternal = {script}\n\tnoprefix = true\n"
        )
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(script))
    monkeypatch.setenv("GIT_PAGER", str(script))
    monkeypatch.setenv("GIT_DIR", str(tmp_path))
    again = Git(store.git_dir)
    for caller in (git, again):
        assert b"--- a/-rf" in caller.diff_text(a, b)
        assert caller.numstat(a, b)
        assert caller.blame_porcelain(b, RelPath(b"-rf"))
        assert caller.fsck_strict() == []
        merged, conflicts = caller.merge_file(
            b"a\nb\nc\nd\n", b"A\nb\nc\nd\n", b"a\nb\nc\nD\n", scratch=tmp_path
        )
        assert (merged, conflicts) == (b"A\nb\nc\nD\n", 0)
        (tmp_path / "into").mkdir(exist_ok=True)
        assert caller.pack_reachable([b], tmp_path / "into")
    assert not marker.exists()


def test_merge_file(git: Git, tmp_path: Path) -> None:
    base, ours, theirs = b"a\nb\nc\n", b"a\nX\nc\n", b"a\nY\nc\n"
    merged, conflicts = git.merge_file(base, ours, theirs, scratch=tmp_path)
    assert conflicts == 1
    assert b"<<<<<<< ours\nX\n=======\nY\n>>>>>>> theirs\n" in merged
    assert git.merge_file(base, ours, theirs, scratch=tmp_path, favor="ours") == (ours, 0)
    assert git.merge_file(base, ours, theirs, scratch=tmp_path, favor="theirs") == (theirs, 0)
    union = git.merge_file(base, ours, theirs, scratch=tmp_path, favor="union")
    assert union == (b"a\nX\nY\nc\n", 0)
    assert git.merge_file(base, base, theirs, scratch=tmp_path) == (theirs, 0)
    assert git.merge_file(base, ours, base, scratch=tmp_path) == (ours, 0)
    assert git.merge_file(base, ours, b"a\0", scratch=tmp_path) == (ours, BINARY)
    assert git.merge_file(b"", b"new\n", b"other\n", scratch=tmp_path)[1] == 1
    assert list(tmp_path.glob("merge-*")) == []


def test_pack_reachable_holds_exactly_what_is_reached(
    git: Git, store: ObjectStore, two_commits: tuple[bytes, bytes], tmp_path: Path
) -> None:
    a, _ = two_commits
    with Batch(store) as batch:
        attrs_only = edit(
            batch,
            EMPTY,
            {RelPath(b".GIT"): Node(Kind.FILE, 0o600, batch.add_blob(b"forbidden"))},
        )
        batch.add_blob(b"nobody needs this")
        batch.publish()
    into = tmp_path / "new: pack"
    into.mkdir()
    pack = git.pack_reachable([a, attrs_only.attrs], into)
    assert pack is not None
    assert pack.with_suffix(".idx").is_file()
    names = {path.name for path in pack.parent.iterdir()}
    assert names == {pack.name, pack.with_suffix(".idx").name}
    other = ObjectStore(tmp_path / "other/.git")
    other.init()
    for path in pack.parent.iterdir():
        path.rename(tmp_path / "other/.git/objects/pack" / path.name)
    held = {other.read(oid) for oid in other.all_oids()}
    assert ("blob", b"forbidden") in held
    assert ("blob", b"nobody needs this") not in held
    assert ("blob", b"1\ntwo\n3\n4\n") not in held
    assert git.pack_reachable([], into) is None


def test_pack_exactly(git: Git, store: ObjectStore, tmp_path: Path) -> None:
    rng = random.Random(1)
    with Batch(store) as batch:
        oids = [batch.add_blob(rng.randbytes(300)) for _ in range(20)]
        batch.publish()
    pack = git.pack_exactly(oids[:7], tmp_path)
    assert pack is not None
    from substrate.objects.store.packfile import PackIndex

    assert sorted(PackIndex(str(pack.with_suffix(".idx"))).oids()) == sorted(oids[:7])


def test_failures_have_words(git: Git, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SubstrateError, match="git cat-file failed: "):
        git.run("cat-file", "-p", "0" * 40)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(MissingDependencyError) as missing:
        Git(git.git_dir).run("version")
    assert missing.value.exit_code == 3
    assert missing.value.hint


def test_fsck_says_what_is_wrong(
    git: Git, store: ObjectStore, two_commits: tuple[bytes, bytes]
) -> None:
    assert git.fsck_strict() == []
    tree = store.read_commit(two_commits[0]).tree
    path = store.git_dir / "objects" / tree.hex()[:2] / tree.hex()[2:]
    path.unlink()
    assert any(tree.hex() in line for line in git.fsck_strict())
