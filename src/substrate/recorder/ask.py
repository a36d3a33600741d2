"""Questions about history that change nothing: log, show, diff, blame."""

from __future__ import annotations

from typing import NamedTuple

from substrate.history import line_blame, parts, sessions
from substrate.history.file_changes import FileChange, file_changes
from substrate.history.ledger import Entry
from substrate.history.observe import changed_paths
from substrate.history.resolve import Target, resolve
from substrate.history.store import HistoryStore
from substrate.model.nodes import Change
from substrate.model.paths import ROOT, RelPath, is_within
from substrate.objects import snapshot as snapshots


def log_entries(
    store: HistoryStore, *, session: str | None, limit: int, paths: tuple[RelPath, ...] = ()
) -> list[Entry]:
    """Entries newest first; with `paths`, those that changed something there. 0: no limit."""
    session_id = sessions.resolve(store.ledger, session).session_id if session else None
    if not paths:
        return store.ledger.live(session_id=session_id, limit=limit or -1)
    out = []
    for entry in store.ledger.iterate_live(session_id):
        if entry.commit and any(_touches(store, entry, path) for path in paths):
            out.append(entry)
            if limit and len(out) == limit:
                break
    return out


def _touches(store: HistoryStore, entry: Entry, path: RelPath) -> bool:
    """Whether anything at or below `path` differs: `diff` never opens equal subtrees."""
    return bool(changes_of(store, entry, path))


def waiting_commands(store: HistoryStore) -> set[str]:
    """The commands whose worlds wait for a decision, or for their end."""
    if not store.ledger.intents():
        return set()
    from substrate.history import held  # seldom needed, and a tenth of a small call's time

    return {world.command_id for world in held.all_held(store)}


def changes_of(store: HistoryStore, entry: Entry, scope: RelPath = ROOT) -> list[Change]:
    """Every path an entry changed; the baseline changed nothing, it only was."""
    if entry.commit is None:
        return []
    before = store.parent_snapshot(entry.commit)
    if before is None:
        return []
    return snapshots.diff(store.objects, before, store.snapshot_of(entry.commit), scope)


def _with_parts(store: HistoryStore, entry: Entry) -> list[Entry]:
    """The entry, and the parts of it that were recorded while it ran; newest first."""
    own = [entry] if entry.commit is not None else []
    if not entry.detail.get(parts.PARTS):
        return own
    return [*own, *parts.parts_of(store, entry.command_id, entry.session_id)]


def all_changes_of(store: HistoryStore, entry: Entry) -> list[Change]:
    """`changes_of`, also of what was recorded while it ran."""
    if not entry.detail.get(parts.PARTS):
        return changes_of(store, entry)
    return parts.changes_of_all(store, _with_parts(store, entry))


def changed_files(store: HistoryStore, entry: Entry) -> list[RelPath]:
    return changed_paths(all_changes_of(store, entry))


class Diff(NamedTuple):
    target: Target
    entry: Entry
    files: list[FileChange]
    #: The two commits, for git to render; None for the baseline.
    old_commit: bytes | None
    new_commit: bytes | None


def diff(store: HistoryStore, text: str, paths: tuple[RelPath, ...], session: str | None) -> Diff:
    """What one command changed. An id inside a squash answers with the whole squash."""
    target = resolve(store, text, session)
    entry = target.present
    changes = [
        c for c in all_changes_of(store, entry)
        if not paths or any(is_within(c.path, p) for p in paths)
    ]  # fmt: skip
    commits = [e.commit for e in _with_parts(store, entry) if e.commit]
    parents = store.objects.read_commit(commits[-1]).parents if commits else ()
    return Diff(
        target,
        entry,
        file_changes(store, changes),
        parents[0] if parents else None,
        commits[0] if parents else None,
    )


def blame(
    store: HistoryStore, path: RelPath, lines: tuple[int, int] | None
) -> list[line_blame.BlamedLine]:
    return line_blame.blame(store, path, lines)
