"""Outside edits that somebody watched: exactly the named paths are compared and recorded.

A *suspect* is a path that something happened to. Most are our own work, or as they were: only
content tells.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from substrate.history.met import Suspects, compared, record_met, seen_by_command
from substrate.history.observe import HashOnly, observe
from substrate.history.record import RUNNING
from substrate.history.store import HistoryStore, is_alive
from substrate.model.nodes import Change, Kind
from substrate.model.paths import RelPath, ancestors, is_within


def differing(store: HistoryStore, suspects: Suspects) -> dict[RelPath, bool]:
    """Those that are not as the tip says. Nothing is written, no lock is needed."""
    store.forget_exclusions()
    return _as_suspects(compared(store, store.objects, HashOnly(), suspects))


def are_no_news(store: HistoryStore, suspects: Suspects) -> bool:
    """Whether they are all as the tip says; nothing is written if they are not."""
    return not differing(store, suspects)


def differing_anywhere(store: HistoryStore) -> dict[RelPath, bool]:
    """The same for the whole tree, by a scan."""
    return _as_suspects(observe(store, HashOnly()).changes)


def _as_suspects(changes: list[Change]) -> dict[RelPath, bool]:
    """What lies below a directory that came or went is meant with it."""
    found: dict[RelPath, bool] = {}
    top: RelPath | None = None
    for change in changes:  # a directory comes before what is in it
        if top is not None and is_within(change.path, top):
            continue
        kinds = {change.old.kind, change.new.kind}
        if kinds == {Kind.DIRECTORY}:
            found[change.path] = False
            continue
        found[change.path] = True
        top = change.path if Kind.DIRECTORY in kinds else None
    return found


def record_suspects(store: HistoryStore, suspects: Suspects) -> bool:
    """Those that differ become a commit ``external-changes``. Inside the lock.

    False if something is left for later, because a command runs that may have made or seen it.
    """
    running = [
        intent.payload
        for intent in store.ledger.intents()
        if intent.kind == RUNNING and is_alive(intent)
    ]
    if any(not payload.get("world_id") for payload in running):
        return False  # it works on the real files: these may be its own
    store.forget_exclusions()
    with store.new_batch() as batch:
        changes = compared(store, batch, batch, suspects)
        told = changes
        # Who started from an assumed base may have seen an edit that is older than itself: that
        # is found out when its own change arrives, and must not look like somebody's later work.
        unsure = [p.get("started_ns") for p in running if p.get("base_known") == "assumed"]
        starts = [at for at in unsure if isinstance(at, int)]
        if starts and changes:
            seen = {change.path for change in seen_by_command(store, changes, max(starts))}
            told = [c for c in changes if seen.isdisjoint([c.path, *ancestors(c.path)])]
        if told:
            record_met(store, batch, told)
    return len(told) == len(changes)


def has_other_names(store: HistoryStore, paths: Iterable[RelPath]) -> bool:
    """Whether one of these is a file with several names: the kernel told of one of them."""
    for path in paths:
        try:
            found = os.lstat(os.path.join(os.fsencode(store.root), path))
        except OSError:
            continue
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            return True
    return False


def is_little(store: HistoryStore, suspects: Suspects, entries: int, size_bytes: int) -> bool:
    """Whether comparing them means looking at no more than this, and leaves nothing to look for."""
    root = os.fsencode(store.root)
    pending = [os.path.join(root, path) for path, deep in suspects.items() if deep]
    entries -= len(suspects)
    while pending and entries >= 0 and size_bytes >= 0:
        path = pending.pop()
        try:
            found = os.lstat(path)
            if not stat.S_ISDIR(found.st_mode):
                if found.st_nlink > 1:
                    return False
                size_bytes -= found.st_size
                continue
            below = os.listdir(path)
        except OSError:
            continue  # gone: nothing to read
        entries -= len(below)
        pending += [os.path.join(path, name) for name in below]
    return entries >= 0 and size_bytes >= 0
