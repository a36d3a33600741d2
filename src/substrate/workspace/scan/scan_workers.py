"""Scanning a large workspace's stats on several processors.

A forked child lists some of the directories, compares signatures, and sends back only the listings
that differ. It reads no file and changes nothing: if it fails, the scan itself lists those
directories again.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from typing import cast

from substrate.system.process import by_weight, can_fork, processors, share
from substrate.workspace.paths import Listing, Tree
from substrate.workspace.scan.stat_cache import StatCache

#: Below this a fork costs more than it saves.
_ENTRIES_WORTH_A_FORK = 20_000
_MOST_WORKERS = 4
_CHUNK_WEIGHT = 500
#: Opening a directory costs about as much as a stat of this many names.
_DIRECTORY_WEIGHT = 8

#: Per directory: `None` if the signature is the recorded one, else the listing.
Looks = dict[str, Listing | None]


def worker_count(cache: StatCache) -> int:
    """How many processes to use for a scan of what the cache describes."""
    if not can_fork():
        return 1
    if sum(record.entry_count for record in cache.dirs.values()) <= _ENTRIES_WORTH_A_FORK:
        return 1
    return max(1, min(_MOST_WORKERS, processors()))


def look_in_parallel(tree: Tree, cache: StatCache, workers: int) -> Looks:
    """Compare all recorded directories, in `workers` processes including this one."""
    chunks = _chunks(cache)
    looks: Looks = {}
    answers = share(
        len(chunks),
        workers - 1,
        lambda numbers: _look_for_parent(tree, cache, chunks, numbers),
        lambda number: looks.update(_look(tree, cache, chunks[number])),
    )
    for answer in answers:
        same, changed = cast("_Answer", answer)
        looks.update(dict.fromkeys(same))
        looks.update((path, Listing._make(listing)) for path, listing in changed.items())
    return looks


def _chunks(cache: StatCache) -> list[list[str]]:
    """The directories in at most some hundred portions of about as many entries."""
    weights = {path: record.entry_count + _DIRECTORY_WEIGHT for path, record in cache.dirs.items()}
    return by_weight(weights, _CHUNK_WEIGHT)


def _look(tree: Tree, cache: StatCache, paths: Iterable[str]) -> Looks:
    looks: Looks = {}
    # Nothing here makes cycles, and with thousands of live tuples the collector would run in vain.
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
    tree: Tree, cache: StatCache, chunks: list[list[str]], numbers: Iterator[int]
) -> _Answer:
    same: list[str] = []
    changed: dict[str, tuple[object, ...]] = {}
    for number in numbers:
        for path, seen in _look(tree, cache, chunks[number]).items():
            if seen is None:
                same.append(path)
            else:
                changed[path] = tuple(seen)
    return same, changed
