"""Stating a large workspace with more than one processor.

A forked child looks at some of the directories, compares signatures, and sends back only the
listings that differ. It reads no file and changes nothing: whatever goes wrong with it, the
scan itself looks at those directories again.
"""

from __future__ import annotations

import gc
import marshal
import os
import sys
import threading
from collections.abc import Iterable, Iterator

from substrate.workspace.listing import Listing, Tree
from substrate.workspace.stat_cache import MARSHAL_VERSION, StatCache

#: Below this a fork costs more than it saves.
_ENTRIES_WORTH_A_FORK = 20_000
_MOST_WORKERS = 4
_MOST_CHUNKS = 200
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
    return max(1, min(_MOST_WORKERS, _processors()))


def can_fork() -> bool:
    """A fork is safe while nobody else runs in this process; on macOS it never quite is."""
    if not hasattr(os, "fork") or sys.platform == "darwin":
        return False
    return threading.active_count() == 1


def look_in_parallel(tree: Tree, cache: StatCache, workers: int) -> Looks:
    """Compare all recorded directories, in `workers` processes, this one included."""
    chunks = _chunks(cache)
    tokens, write_end = os.pipe()
    # Every process takes the next chunk's number when it is done with one: on a busy machine
    # no fixed share would be fair. All numbers fit into the pipe at once.
    os.write(write_end, b"".join(number.to_bytes(2, "big") for number in range(len(chunks))))
    os.close(write_end)
    children = [_start(tree, cache, chunks, tokens) for _ in range(workers - 1)]
    looks: Looks = {}
    try:
        for chunk in _claims(chunks, tokens):
            looks.update(_look(tree, cache, chunk))
    finally:
        os.close(tokens)
        for pid, reader in children:
            looks.update(_collect(pid, reader))
    return looks


def _chunks(cache: StatCache) -> list[list[str]]:
    """The directories in at most some hundred portions of about as many entries."""
    weights = {path: record.entry_count + _DIRECTORY_WEIGHT for path, record in cache.dirs.items()}
    portion = max(_CHUNK_WEIGHT, sum(weights.values()) // _MOST_CHUNKS)
    chunks: list[list[str]] = [[]]
    filled = 0
    for path, weight in weights.items():
        if filled >= portion:
            chunks.append([])
            filled = 0
        chunks[-1].append(path)
        filled += weight
    return chunks


def _claims(chunks: list[list[str]], tokens: int) -> Iterator[list[str]]:
    while token := os.read(tokens, 2):
        yield chunks[int.from_bytes(token, "big")]


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


def _start(tree: Tree, cache: StatCache, chunks: list[list[str]], tokens: int) -> tuple[int, int]:
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
        same: list[str] = []
        changed: dict[str, tuple[object, ...]] = {}
        for chunk in _claims(chunks, tokens):
            for path, seen in _look(tree, cache, chunk).items():
                if seen is None:
                    same.append(path)
                else:
                    changed[path] = tuple(seen)
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(marshal.dumps((same, changed), MARSHAL_VERSION))
        os._exit(0)
    finally:
        # Also on the way of an exception: nothing of the parent's may run here.
        os._exit(1)


def _collect(pid: int, reader: int) -> Looks:
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
        same, changed = marshal.loads(answer)
    except (ValueError, TypeError, EOFError):
        return {}
    looks: Looks = dict.fromkeys(same)
    looks.update((path, Listing(*listing)) for path, listing in changed.items())
    return looks


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
