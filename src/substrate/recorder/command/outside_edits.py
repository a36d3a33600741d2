"""Outside edits before a command or an undo begins, as far as the daemon's watcher knows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

from substrate.errors import WorkspaceError
from substrate.history.record import record_entry, watched_edits
from substrate.history.store import HistoryStore
from substrate.model import RelPath
from substrate.recorder.session_context import Place
from substrate.system import daemon_paths, watcher_client

#: Do not compare more than this before a command: the watcher does it when nothing is running.
_MOST_ENTRIES = 256
_MOST_BYTES = 4 << 20
#: How long to wait for the watcher when the alternative is a scan.
INSTEAD_OF_SCAN_S = 0.25
WATCHED, SCANNED = "watched", "scanned"


def agree(place: Place, store: HistoryStore, *, asks: bool = True, records: bool = True) -> str:
    """Make history agree with the workspace, inside the lock. Returns how that is known.

    `WATCHED`: the watcher has seen every change since a scan of its own, and those are recorded.
    `SCANNED`: it does not watch, missed something, was not asked, or has too many changes. The
    kernel reports no writes through a hard link from outside the tree, which the watcher finds by
    the file's times, and none through a memory mapping: files that are mapped now are compared,
    too. Mappings of other users' processes are not visible, nor are links that were made outside
    while the tree was watched: so the caller compares every path before it writes, and scans on
    the second attempt.

    Unless it `records` (a dry run), only a watched tree without changes avoids the scan.
    """
    if asks:
        question = ask(place, INSTEAD_OF_SCAN_S)
        if catch_up(store, question, records=records, also=_mapped(store)):
            return WATCHED
    record_entry.record_outside(store)
    return SCANNED


def _mapped(store: HistoryStore) -> dict[RelPath, bool]:
    """The files of the workspace that processes can change without an event, as suspects."""
    from substrate.system.linux import shared_mappings

    root = os.fsencode(store.root)
    found = {
        RelPath(path[len(root) :].lstrip(b"/")) for path in shared_mappings.writable_below(root)
    }
    return {path: True for path in found if not store.exclusions.reason(path, is_dir=False, size=0)}


def catch_up(
    store: HistoryStore,
    question: watcher_client.Question | None,
    *,
    records: bool = True,
    also: Mapping[RelPath, bool] = MappingProxyType({}),
) -> bool:
    """Record the outside edits that the watcher knows, and those of `also`. Inside the lock.

    Returns whether there can be no others: then the base of the next operation is known. Unless it
    `records`, real changes are left for the next call.
    """
    if question is None:
        return False
    answer = question.answer()
    try:
        if answer.why_not or store.tip_commit is None:
            return False
        suspects = {RelPath(path): deep for path, deep in answer.suspects.items()}
        suspects.update(also)
        if not suspects:
            return True
        if not watched_edits.is_little(store, suspects, _MOST_ENTRIES, _MOST_BYTES):
            return False
        records = records and not store.config.refuses_external
        compare = watched_edits.record_suspects if records else watched_edits.are_no_news
        if not compare(store, suspects):
            return False
        answer.done()
        return True
    except (WorkspaceError, OSError):
        return False  # do not refuse a command because an outside edit cannot be recorded
    finally:
        answer.close()


def ask(
    place: Place, patience_s: float = watcher_client.PATIENCE_S
) -> watcher_client.Question | None:
    """Ask the watcher before the answer is needed; None if there is no daemon to ask.

    Later outside edits are found when the command's own change arrives.
    """
    socket = _watcher_socket(place)
    if socket is None:
        return None
    root, home = _names(place)
    return watcher_client.Question(socket, root, home, patience_s)


def tell_left_running(place: Place) -> bool:
    """Whether a daemon brings in what processes change that outlive their command."""
    socket = _watcher_socket(place)
    return socket is not None and watcher_client.tell_left_running(socket, *_names(place))


def _names(place: Place) -> tuple[bytes, bytes]:
    return os.fsencode(place.workspace.root), os.fsencode(place.environment.substrate_home)


def _watcher_socket(place: Place) -> bytes | None:
    if not place.environment.daemon_enabled or not hasattr(os, "geteuid"):
        return None
    variables = place.environment.variables
    names = ("SUBSTRATE_SOCKET", "SUBSTRATE_HOME", "HOME")
    socket = daemon_paths.socket_path(
        {os.fsencode(n): os.fsencode(variables[n]) for n in names if n in variables}
    )
    if socket is None:
        return None
    directory = daemon_paths.directory(socket)
    return daemon_paths.watch(directory) if daemon_paths.is_ours(directory) else None
