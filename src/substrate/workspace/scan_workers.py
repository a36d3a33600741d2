"""Stating a large workspace with more than one processor.

A forked child looks at a share of the directories, compares signatures, and sends back only the
listings that differ. It reads no file and changes nothing: whatever goes wrong with it, the
scan itself looks at those directories again.
"""

from __future__ import annotations

import gc
import marshal
import os
import sys
import threading
from collections.abc import Iterable

from substrate.workspace.listing import Listing, Tree
from substrate.workspace.stat_cache import MARSHAL_VERSION, StatCache

#: Below this a fork costs more than it saves.
_ENTRIES_WORTH_A_FORK = 20_000
_MOST_WORKERS = 4

#: Per directory: `None` where the signature is the recorded one, else the listing.
Looks = dict[str, Listing | None]


def worker_count(cache: StatCache) -> int:
    """How many processes a scan of what the cache describes is worth."""
    if not can_fork():
        return 1
    if sum(record.entry_count for record in cache.dirs.values()) <= _ENTRIES_WORTH_A_FORK:
        return 1
    return max(1, min(_MOST_WORKERS, _processors()))


def can_fork() -> bool:
    """A fork is safe while nobody else runs in this process; on macOS it never quite is."""
    if not hasattr(os, "fork") or sys.platform == "darwin":
        return False
    return threading.active_count() == 1


def look_in_parallel(tree: Tree, cache: StatCache, workers: int) -> Looks:
    """Compare all recorded directories, in `workers` processes, this one included."""
    shares = _shares(cache, workers)
    children = [_start(tree, cache, share) for share in shares[1:]]
    looks: Looks = {}
    try:
        looks.update(_look(tree, cache, shares[0]))
    finally:
        for child, share in zip(children, shares[1:], strict=True):
            looks.update(_collect(child, share))
    return looks


def _shares(cache: StatCache, workers: int) -> list[list[str]]:
    """The directories dealt out so that every worker gets about as many entries."""
    shares: list[list[str]] = [[] for _ in range(workers)]
    weights = [0] * workers
    for path, record in cache.dirs.items():
        lightest = weights.index(min(weights))
        shares[lightest].append(path)
        weights[lightest] += record.entry_count + 10  # opening a directory costs some stats' worth
    return shares


def _look(tree: Tree, cache: StatCache, paths: Iterable[str]) -> Looks:
    looks: Looks = {}
    # Nothing here makes cycles, and 100,000 live tuples make the collector run in vain.
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


def _start(tree: Tree, cache: StatCache, share: list[str]) -> tuple[int, int]:
    """Fork; (child, pipe to read from), or (0, -1) if the system has no process to spare."""
    try:
        reader, writer = os.pipe()
    except OSError:
        return 0, -1
    try:
        child = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        return 0, -1
    if child:
        os.close(writer)
        return child, reader
    try:
        looks = _look(tree, cache, share)
        unlisted = [path for path in share if path not in looks]
        changed = {path: tuple(seen) for path, seen in looks.items() if seen is not None}
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(marshal.dumps((unlisted, changed), MARSHAL_VERSION))
        os._exit(0)
    finally:
        # Also on the way of an exception: nothing of the parent's may run here.
        os._exit(1)


def _collect(child: tuple[int, int], share: list[str]) -> Looks:
    pid, reader = child
    if reader < 0:
        return {}
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        status = 0  # somebody ignores SIGCHLD: the answer must speak for itself
    if status != 0 or not answer:
        return {}
    try:
        unlisted, changed = marshal.loads(answer)
    except (ValueError, TypeError, EOFError):
        return {}
    looks: Looks = dict.fromkeys(share)
    for path in unlisted:
        del looks[path]
    looks.update((path, Listing(*listing)) for path, listing in changed.items())
    return looks


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
