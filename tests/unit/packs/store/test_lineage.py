"""The tree of forks: parents below their forks, lines that lead to them."""

from __future__ import annotations

from substrate.packs.format.manifest import Manifest
from substrate.packs.store.ctx_store import Store
from substrate.packs.store.lineage import draw, entries


def at(manifest: Manifest, minute: int, parent: str = "") -> Manifest:
    return manifest._replace(created=f"2026-02-10T10:{minute:02d}:00Z", parent=parent)


def drawing(store: Store) -> list[str]:
    return [
        row.drawing + (f" {row.entry.created[14:16]}" if row.entry else "")
        for row in draw(entries(store))
    ]


def test_newest_first(store: Store, manifest: Manifest) -> None:
    for minute in (3, 1, 2):
        store.add(at(manifest, minute))
    assert drawing(store) == ["* 03", "* 02", "* 01"]


def test_forks_come_before_their_parent_even_if_they_look_older(
    store: Store, manifest: Manifest
) -> None:
    root = store.add(at(manifest, 9)).ref
    one = store.add(at(manifest, 5, root)).ref
    store.add(at(manifest, 7, root))
    store.add(at(manifest, 6, one))
    assert drawing(store) == ["* 07", "│ * 06", "│ * 05", "├─┘", "* 09"]


def test_a_parent_that_is_not_here_ends_the_line(store: Store, manifest: Manifest) -> None:
    store.add(at(manifest, 8, "sha256:" + "0" * 64))
    root = store.add(at(manifest, 1)).ref
    store.add(at(manifest, 9, root))
    assert drawing(store) == ["* 09", "│ * 08", "* 01"]


def test_a_line_that_ends_lets_the_others_move_over(store: Store, manifest: Manifest) -> None:
    first = store.add(at(manifest, 4)).ref
    second = store.add(at(manifest, 2)).ref
    store.add(at(manifest, 9, first))
    store.add(at(manifest, 8, second))
    assert drawing(store) == ["* 09", "│ * 08", "* │ 04", "╱", "* 02"]


def test_a_damaged_pack_stays_in_the_list(store: Store, manifest: Manifest) -> None:
    good, bad = store.add(at(manifest, 1)).ref, store.add(at(manifest, 2)).ref
    path = store.objects.path(bad)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes().replace(b"claude", b"clauDe"))
    damage = {entry.ref: entry.damage for entry in entries(store)}
    assert damage[good] == ""
    assert "damaged" in damage[bad]
