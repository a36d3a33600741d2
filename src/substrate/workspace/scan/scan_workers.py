"""Stating a large workspace with more than one processor.

A forked child looks at some of the directories, compares signatures, and sends back only the
listings that differ. It reads no file and changes nothing: whatever goes wrong with it, the
scan itself looks at those directories again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import cast

from substrate.system.forked import Forked, Portions, by_weight, can_fork, fork, processors
from substrate.workspace.listing import Listing, Tree
from substrate.workspace.stat_cache import StatCache

#: Below this a fork costs more than it saves.
_ENTRIES_WORTH_A_FORK = 20_000
_MOST_WORKERS = 4
_CHUNK_WEIGHT = 500
#: Opening a directory costs about as much as looking at so many names.
_DIRECTORY_WEIGHT = 8

#: Per directory: `None` where the signature is the recorded one, else the listing.
Looks = dict[str, Listing | None]


def worker_count(cache: StatCache) -> int:
    """How many processes a scan of what the cache describes is worth."""
    if not can_fork():
        return 1
    if sum(record.entry_count for record in cache.dirs.values()) <= _ENTRIES_WORTH_A_FORK:
        return 1
    return max(1, min(_MOST_WORKERS, processors()))


def look_in_parallel(tree: Tree, cache: StatCache, workers: int) -> Looks:
    """Compare all recorded directories, in `workers` processes, this one included."""
    chunks = _chunks(cache)
    portions = Portions(len(chunks))
    children = [
        fork(lambda: _look_for_parent(tree, cache, chunks, portions)) for _ in range(workers - 1)
    ]
    looks: Looks = {}
    try:
        for number in portions.claims():
            looks.update(_look(tree, cache, chunks[number]))
    finally:
        portions.close()
        for child in children:
            looks.update(_answered(child))
    return looks


def _chunks(cache: StatCache) -> list[list[str]]:
    """The directories in at most some hundred portions of about as many entries."""
    weights = {path: record.entry_count + _DIRECTORY_WEIGHT for path, record in cache.dirs.items()}
    return by_weight(weights, _CHUNK_WEIGHT)


def _look(tree: Tree, cache: StatCache, paths: Iterable[str]) -> Looks:
    looks: Looks = {}
    # Nothing here makes cycles, and thousands of live tuples make the collector run in vain.
    collecting = gc.isenabled()
    gc.disable()
    try:
        for path in paths:
            listing = tree.quick_listing(path)
            if listing is not None:
                same = listing.signature == cache.dirs[path].signature != b""
                looks[path] = None if same else listing
    finally:
        if collecting:
            gc.enable()
    return looks


_Answer = tuple[list[str], dict[str, tuple[object, ...]]]


def _look_for_parent(
    tree: Tree, cache: StatCache, chunks: list[list[str]], portions: Portions
) -> _Answer:
    same: list[str] = []
    changed: dict[str, tuple[object, ...]] = {}
    for number in portions.claims():
        for path, seen in _look(tree, cache, chunks[number]).items():
            if seen is None:
                same.append(path)
            else:
                changed[path] = tuple(seen)
    return same, changed


def _answered(child: Forked | None) -> Looks:
    answer = cast("_Answer | None", child.answer() if child is not None else None)
    if answer is None:
        return {}
    same, changed = answer
    looks: Looks = dict.fromkeys(same)
    looks.update((path, Listing._make(listing)) for path, listing in changed.items())
    return looks
