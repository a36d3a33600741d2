"""Names for packs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from substrate.errors import AmbiguousError, NotFoundError, UsageError, WorkspaceError
from substrate.packs.format.manifest import Manifest
from substrate.packs.store import pack_refs
from substrate.packs.store.ctx_store import Store, open_store
from substrate.packs.store.fsck import check_store


def test_every_way_to_name_a_pack(store: Store, manifest: Manifest) -> None:
    ref = store.add(manifest).ref
    digits = ref.removeprefix("sha256:")
    pack_refs.set_tag(store, "team/v1.2", ref)
    pack_refs.set_latest(store, ref)
    for text in (
        *(ref, digits, f"ctx://{digits}", digits[:8], digits[:4], digits.upper()),
        *(f"sha256:{digits[:12]}", f"ctx://{digits[:12]}", "team/v1.2", "latest"),
    ):
        assert pack_refs.resolve(store, text) == ref
    assert pack_refs.load(store, digits[:8]).manifest == manifest


def test_a_prefix_of_two_packs_is_ambiguous_and_both_are_named(store: Store) -> None:
    for digits in ("abcd1" + "0" * 59, "abcd2" + "0" * 59):
        store.register("sha256:" + digits)
    with pytest.raises(AmbiguousError, match="abcd10000000, abcd20000000"):
        pack_refs.resolve(store, "abcd")
    assert pack_refs.resolve(store, "abcd1") == "sha256:abcd1" + "0" * 59


@pytest.mark.parametrize("text", ["abcd", "nosuch", "latest", "a/../../b", "", "../packs/x"])
def test_what_names_nothing_is_not_found(store: Store, text: str) -> None:
    with pytest.raises(NotFoundError):
        pack_refs.resolve(store, text)


@pytest.mark.parametrize("text", ["sha256:xyz", "ctx://", "ctx://../refs", "sha256:" + "a" * 65])
def test_what_cannot_be_a_hash_is_wrong(store: Store, text: str) -> None:
    with pytest.raises(UsageError):
        pack_refs.resolve(store, text)


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../x", "a/../b", "/etc/x", "a//b", "a/", ".hidden", "a/.b", "-x", "a b"),
        *("a\nb", "é", "x.lock", "latest", "abcd", "ABCDEF12", "n" * 201),
    ],
)
def test_unsafe_names_for_tags_are_refused(store: Store, name: str) -> None:
    with pytest.raises(UsageError):
        pack_refs.set_tag(store, name, "sha256:" + "0" * 64)
    assert pack_refs.tags(store) == {}


def test_tags_move_and_go(store: Store) -> None:
    one, two = ("sha256:" + digit * 64 for digit in "12")
    assert pack_refs.set_tag(store, "good", one) is None
    assert pack_refs.set_tag(store, "good", two) == one
    assert pack_refs.tags(store) == {"good": two}
    with pytest.raises(UsageError, match="in the way"):
        pack_refs.set_tag(store, "good/better", one)
    assert pack_refs.delete_tag(store, "good") == two
    with pytest.raises(NotFoundError):
        pack_refs.delete_tag(store, "good")


@pytest.mark.parametrize("target", ["/dev/zero", "/"])
def test_a_tag_that_is_a_link_out_of_the_store_names_nothing(store: Store, target: str) -> None:
    os.symlink(target, store.refs_dir / "tags" / "x")
    assert pack_refs.tags(store) == {}
    with pytest.raises(NotFoundError):
        pack_refs.resolve(store, "x")
    assert [found.what for found in check_store(store).findings] == ["refs/tags/x"]


def test_no_tag_is_written_through_a_link(store: Store, manifest: Manifest, tmp_path: Path) -> None:
    ref = store.add(manifest).ref
    outside = tmp_path / "outside"
    outside.mkdir()
    os.symlink(outside, store.refs_dir / "tags" / "team")
    with pytest.raises(UsageError):
        pack_refs.set_tag(store, "team/x", ref)
    assert os.listdir(outside) == []


def test_a_store_with_a_linked_directory_is_not_used(store: Store, tmp_path: Path) -> None:
    os.symlink(tmp_path, store.directory / "signatures")
    with pytest.raises(WorkspaceError, match="signatures is a link"):
        open_store(store.directory)
