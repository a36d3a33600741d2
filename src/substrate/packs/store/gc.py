"""Garbage: objects that no pack, name or draft leads to, and what killed writers left."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from substrate.errors import DamagedStoreError, RefusedError
from substrate.packs import lineage, refs
from substrate.packs.hashes import hex_of, short
from substrate.packs.reach import reachable, roots
from substrate.packs.signatures import signatures_dir
from substrate.packs.store import Store
from substrate.system.files import TEMPORARY, fsync_dir, remove_tree


class Collected(NamedTuple):
    #: Packs that were dropped from the list.
    dropped: tuple[str, ...]
    objects: tuple[str, ...]
    leftovers: tuple[str, ...]
    bytes: int


def collect(store: Store, drop: Sequence[str] = (), *, dry_run: bool = False) -> Collected:
    """Remove what nothing leads to; with `drop`, first take those packs off the list.

    No writer runs meanwhile: they share the lock that this takes alone. Nothing is removed if a
    manifest is damaged, because nobody knows what it needs.
    """
    with store.alone("collecting garbage"):
        _check_drop(store, drop)
        dropped = set(drop)
        kept = {root.ref for root in roots(store) if not _goes(root.name, root.ref, dropped)}
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


def _goes(name: str, ref: str, dropped: set[str]) -> bool:
    return ref in dropped and (name.startswith("pack ") or name == "refs/latest")


def _check_drop(store: Store, drop: Iterable[str]) -> None:
    leaving = set(drop)
    named = {ref: name for name, ref in refs.tags(store).items()}
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
    if refs.latest(store) in dropped:
        left = lineage.entries(store)
        if left:
            refs.set_latest(store, left[0].ref)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(store.refs_dir / refs.LATEST)


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
