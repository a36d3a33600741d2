"""Outside edits that a watcher reported: only the named paths are compared and recorded.

A *suspect* is a path with a reported event. Most suspects are Substrate's own writes or are
unchanged: only their content shows which.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from substrate.history.arrival import Suspects, compared, record_met, seen_by_command
from substrate.history.record import tool_calls
from substrate.history.record.record_entry import RUNNING
from substrate.history.record.scan_against_tip import HashOnly, observe
from substrate.history.store import HistoryStore
from substrate.model import Change, Kind, RelPath, ancestors, is_within
from substrate.workspace import is_paused


def differing(store: HistoryStore, suspects: Suspects) -> dict[RelPath, bool]:
    """The suspects that differ from the tip. Nothing is written, no lock is needed."""
    store.forget_exclusions()
    return _as_suspects(compared(store, store.objects, HashOnly(), suspects))


def are_no_news(store: HistoryStore, suspects: Suspects) -> bool:
    """Whether all suspects equal the tip. Nothing is written."""
    return not differing(store, suspects)


def differing_anywhere(store: HistoryStore) -> dict[RelPath, bool]:
    """The same for the whole tree, by a scan."""
    return _as_suspects(observe(store, HashOnly()).changes)


def _as_suspects(changes: list[Change]) -> dict[RelPath, bool]:
    """Changes as suspects; a directory that appeared or vanished covers everything below it."""
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
    """Record the suspects that differ in a commit ``external-changes``. Inside the lock.

    Returns False if some are left for later: a running command, or a tool that a coding agent has
    announced, may have made or seen them; or the user has paused recording.
    """
    if is_paused(store.workspace.store):
        return False
    running = [
        intent.payload
        for intent in store.ledger.intents()
        if intent.kind == RUNNING and store.is_alive(intent)
    ]
    if any(not payload.get("world_id") for payload in running):
        return False  # that command works on the real files: the changes may be its own
    store.forget_exclusions()
    calls = tool_calls.running(store.ledger)
    with store.new_batch() as batch:
        changes = compared(store, batch, batch, suspects)
        expected = tool_calls.Expected(calls)
        told = [change for change in changes if change.path not in expected]
        # A command with an assumed base may have seen an edit made before its start. Apply finds
        # that out when the command's change arrives; recording it now would make it look later.
        unsure = [p.get("started_ns") for p in running if p.get("base_known") == "assumed"]
        starts = [at for at in unsure if isinstance(at, int)]
        if starts and changes:
            seen = {change.path for change in seen_by_command(store, changes, max(starts))}
            told = [c for c in told if seen.isdisjoint([c.path, *ancestors(c.path)])]
        if told:
            record_met(store, batch, told)
    return len(told) == len(changes)


def has_other_names(store: HistoryStore, paths: Iterable[RelPath]) -> bool:
    """Whether one of these files has several hard links: the kernel reports only one name."""
    for path in paths:
        try:
            found = os.lstat(os.path.join(os.fsencode(store.root), path))
        except OSError:
            continue
        if found.st_nlink > 1 and not stat.S_ISDIR(found.st_mode):
            return True
    return False


def is_little(store: HistoryStore, suspects: Suspects, entries: int, size_bytes: int) -> bool:
    """Whether comparing them reads at most this much, and no file has other names to find."""
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
