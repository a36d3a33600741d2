"""Trees against real git: order, bytes, and the names it rejects."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrate.errors import DamagedStoreError
from substrate.objects.snapshots.trees import (
    EMPTY_TREE,
    MODE_DIR,
    MODE_FILE,
    MODE_LINK,
    any_forbidden,
    is_forbidden_name,
    parse_tree,
    serialize_tree,
)
from substrate.objects.store.batch import Batch
from substrate.objects.store.object_store import ObjectStore
from tests.unit.objects.conftest import run_git

names = st.binary(min_size=1, max_size=255).filter(lambda n: b"/" not in n and b"\0" not in n)
entries = st.tuples(
    st.sampled_from([MODE_FILE, MODE_DIR, MODE_LINK]), st.binary(min_size=20, max_size=20)
)

SUSPICIOUS = [
    b".git", b".GIT", b".gIt", b"git~1", b"GIT~1", b"git~2", b".git.", b".git ", b".git . .",
    b".git..a", b".git::$INDEX_ALLOCATION", b"git~1:x", b".git\\x", b"a\\.git", b"a\\git~1",
    b"a\\.gitx", b"x\\y\\.GIT. ", b"\\.git", b".g\xe2\x80\x8cit", b".git\xe2\x80\x8c",
    b"\xef\xbb\xbf.git", b".git\xff", b".git\xef\xbf\xbe", b".git\xc3\xa9", b"\xff.git",
    b".gi\xff", b".gi\xcc\x87t", b".gitx", b".gitmodules", b".gitattributes", b".gitignore", b"git",
    b"x.git", b".git\n", b" .git", b"=.git", b"!.git", b"...", b"-rf", b"a\nb", b"\xff\xfe",
    b"n" * 255,
]  # fmt: skip


@given(st.dictionaries(names, entries, max_size=30))
def test_serialise_then_parse_gives_the_same(tree: dict[bytes, tuple[int, bytes]]) -> None:
    assert parse_tree(serialize_tree(tree)) == tree


def test_git_agrees_on_the_order_and_the_id(store: ObjectStore) -> None:
    names = [b"a", b"a.b", b"a0", b"a-", b"ab", b"b/"]
    with Batch(store) as batch:
        blob = batch.add_blob(b"x")
        sub = batch.add_tree({b"x": (MODE_FILE, blob)})
        tree = {
            name.rstrip(b"/"): (MODE_DIR, sub) if name in (b"a", b"b/") else (MODE_FILE, blob)
            for name in names
        }
        oid = batch.add_tree(tree)
        assert batch.add_tree({}) == EMPTY_TREE
        batch.publish()
    listing = run_git(store.git_dir, "ls-tree", oid.hex())
    assert run_git(store.git_dir, "mktree", stdin=listing).strip().decode() == oid.hex()


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"100644 a\0" + b"1" * 19,
        b"100644 a\0" + b"1" * 20 + b"junk",
        b"100644 a/b\0" + b"1" * 20,
        b"100644 \0" + b"1" * 20,
        (b"100644 a\0" + b"1" * 20) * 2,
    ],
)
def test_a_malformed_tree_is_reported(data: bytes) -> None:
    with pytest.raises(DamagedStoreError):
        parse_tree(data)


@pytest.mark.parametrize("name", SUSPICIOUS, ids=repr)
def test_forbidden_names_are_those_that_fsck_rejects(store: ObjectStore, name: bytes) -> None:
    with Batch(store) as batch:
        blob = batch.add_blob(b"[x]\n")
        oid = batch.add_tree({name: (MODE_FILE, blob)})
        batch.publish()
    done = subprocess.run(
        ["git", f"--git-dir={store.git_dir}", "fsck", "--strict", "--no-dangling", oid.hex()],
        capture_output=True,
        check=False,
    )
    assert is_forbidden_name(name) == (done.returncode != 0), done.stderr


@given(st.lists(st.one_of(names, st.sampled_from(SUSPICIOUS)), max_size=5))
def test_names_that_are_allowed_together_are_allowed_each(several: list[bytes]) -> None:
    if not any_forbidden(several):
        assert not any(is_forbidden_name(name) for name in several)


def test_forbidden_names_are_found_among_many() -> None:
    plain = [b"main.py", b"a b", b"\xff", b"dig"]
    assert not any_forbidden(plain)
    assert not any_forbidden([])
    for name in (b".git", b"GIT~1", b".g\xe2\x80\x8cit", b".", b"..", b"", b"a/b", b"a\0"):
        assert is_forbidden_name(name)
        assert any_forbidden([*plain, name])
