"""Names for packs."""

from __future__ import annotations

import pytest

from substrate.errors import AmbiguousError, NotFoundError, UsageError
from substrate.packs import refs
from substrate.packs.manifest import Manifest
from substrate.packs.store import Store


def test_every_way_to_name_a_pack(store: Store, manifest: Manifest) -> None:
    ref = store.add(manifest).ref
    digits = ref.removeprefix("sha256:")
    refs.set_tag(store, "team/v1.2", ref)
    refs.set_latest(store, ref)
    for text in (
        *(ref, digits, f"ctx://{digits}", digits[:8], digits[:4], digits.upper()),
        *(f"sha256:{digits[:12]}", f"ctx://{digits[:12]}", "team/v1.2", "latest"),
    ):
        assert refs.resolve(store, text) == ref
    assert refs.load(store, digits[:8]).manifest == manifest


def test_a_prefix_of_two_packs_is_ambiguous_and_both_are_named(store: Store) -> None:
    for digits in ("abcd1" + "0" * 59, "abcd2" + "0" * 59):
        store.register("sha256:" + digits)
    with pytest.raises(AmbiguousError, match="abcd10000000, abcd20000000"):
        refs.resolve(store, "abcd")
    assert refs.resolve(store, "abcd1") == "sha256:abcd1" + "0" * 59


@pytest.mark.parametrize("text", ["abcd", "nosuch", "latest", "a/../../b", "", "../packs/x"])
def test_what_names_nothing_is_not_found(store: Store, text: str) -> None:
    with pytest.raises(NotFoundError):
        refs.resolve(store, text)


@pytest.mark.parametrize("text", ["sha256:xyz", "ctx://", "ctx://../refs", "sha256:" + "a" * 65])
def test_what_cannot_be_a_hash_is_wrong(store: Store, text: str) -> None:
    with pytest.raises(UsageError):
        refs.resolve(store, text)


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../x", "a/../b", "/etc/x", "a//b", "a/", ".hidden", "a/.b", "-x", "a b"),
        *("a\nb", "é", "x.lock", "latest", "abcd", "ABCDEF12", "n" * 201),
    ],
)
def test_unsafe_names_for_tags_are_refused(store: Store, name: str) -> None:
    with pytest.raises(UsageError):
        refs.set_tag(store, name, "sha256:" + "0" * 64)
    assert refs.tags(store) == {}


def test_tags_move_and_go(store: Store) -> None:
    one, two = ("sha256:" + digit * 64 for digit in "12")
    assert refs.set_tag(store, "good", one) is None
    assert refs.set_tag(store, "good", two) == one
    assert refs.tags(store) == {"good": two}
    with pytest.raises(UsageError, match="in the way"):
        refs.set_tag(store, "good/better", one)
    assert refs.delete_tag(store, "good") == two
    with pytest.raises(NotFoundError):
        refs.delete_tag(store, "good")
