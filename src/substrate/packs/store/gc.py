"""Collect garbage: objects that no pack, name or draft reaches, and leftovers of killed writers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from substrate.errors import DamagedStoreError, RefusedError
from substrate.packs.exchange import signatures_dir
from substrate.packs.format import hex_of, short
from substrate.packs.store import lineage, pack_refs
from substrate.packs.store.ctx_store import Store
from substrate.packs.store.reachability import Root, reachable, roots
from substrate.system.files import TEMPORARY, fsync_dir, remove_tree


class Collected(NamedTuple):
    #: Packs that were removed from the list.
    dropped: tuple[str, ...]
    objects: tuple[str, ...]
    leftovers: tuple[str, ...]
    bytes: int


def collect(store: Store, drop: Sequence[str] = (), *, dry_run: bool = False) -> Collected:
    """Remove unreachable objects; with `drop`, first remove those packs from the list.

    No writer runs at the same time: writers share the lock that this takes exclusively. Nothing
    is removed if a manifest is damaged, because the objects that it needs are unknown.
    """
    with store.alone("collecting garbage"):
        _check_drop(store, drop)
        dropped = set(drop)
        kept = {root.ref for root in roots(store) if not _goes(root, dropped)}
        try:
            wanted = reachable(store, kept)
        except DamagedStoreError as error:
            raise DamagedStoreError(
                f"nothing was removed: {error.message}",
                hint="`ctx fsck` says which pack it breaks; drop it, or import it again, first",
            ) from None
        garbage = [ref for ref in store.objects if ref not in wanted]
        leftovers = [*store.objects.strays(), *_scratch(store), *_torn_writes(store)]
        size = sum(map(_size, leftovers)) + sum(store.objects.size(ref) for ref in garbage)
        if not dry_run:
            _drop(store, drop, dropped)
            _remove(store, garbage, leftovers)
        names = tuple(path.relative_to(store.directory).as_posix() for path in leftovers)
        return Collected(tuple(drop), tuple(garbage), names, size)


def _goes(root: Root, dropped: set[str]) -> bool:
    return root.ref in dropped and root.kind in ("pack", "latest")


def _check_drop(store: Store, drop: Iterable[str]) -> None:
    leaving = set(drop)
    named = {ref: name for name, ref in pack_refs.tags(store).items()}
    for ref in leaving & set(named):
        raise RefusedError(
            f"pack {short(ref)} is tagged {named[ref]}", hint=f"ctx tag --delete {named[ref]}"
        )
    if not leaving:
        return
    for entry in lineage.entries(store):
        if entry.parent in leaving and entry.ref not in leaving:
            raise RefusedError(
                f"pack {short(entry.ref)} was forked from {short(entry.parent)}",
                hint="drop both, or keep both",
            )


def _drop(store: Store, drop: Sequence[str], dropped: set[str]) -> None:
    for ref in drop:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(store.packs_dir / hex_of(ref))
        remove_tree(signatures_dir(store, ref))
    if not drop:
        return
    fsync_dir(store.packs_dir)
    if pack_refs.latest(store) in dropped:
        left = lineage.entries(store)
        if left:
            pack_refs.set_latest(store, left[0].ref)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(store.refs_dir / pack_refs.LATEST)


def _remove(store: Store, garbage: Sequence[str], leftovers: Sequence[Path]) -> None:
    for ref in garbage:
        store.objects.remove(ref)
    for path in leftovers:
        remove_tree(path)
    for directory in {store.objects.path(ref).parent for ref in garbage}:
        with contextlib.suppress(OSError):  # not empty
            directory.rmdir()


def _scratch(store: Store) -> Iterator[Path]:
    for name in sorted(os.listdir(store.scratch)):
        yield store.scratch / name


def _torn_writes(store: Store) -> Iterator[Path]:
    """Small files that a killed process was about to rename into place."""
    places = [store.directory, store.packs_dir]
    for top in (store.refs_dir, store.directory / "signatures"):
        places += [Path(directory) for directory, _, _ in os.walk(top)]
    for place in places:
        for name in sorted(os.listdir(place)):
            if name.startswith(TEMPORARY):
                yield place / name


def _size(path: Path) -> int:
    found = os.lstat(path)
    if not path.is_dir() or path.is_symlink():
        return found.st_size
    return sum(_size(path / name) for name in os.listdir(path))
