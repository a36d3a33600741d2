"""Queries on history that change nothing: log, show, diff, blame."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from substrate.errors import SubstrateError
from substrate.history.query import (
    FileChange,
    Scope,
    Target,
    file_changes,
    line_blame,
    resolve,
    touched_paths,
)
from substrate.history.record import (
    Prompt,
    changed_paths,
    excluded_paths,
    live_parts,
    prompts,
    sessions,
)
from substrate.history.store import (
    Entry,
    HistoryStore,
    held_sessions,
    hold_causes_in,
    is_shared,
)
from substrate.model import ROOT, Change, HoldCause, RelPath, is_within
from substrate.objects.snapshots import snapshot as snapshots

if TYPE_CHECKING:
    from substrate.history.arrival import Held
    from substrate.history.reversal import ChangeHunk


#: More than any history has, and not more than SQLite's integers hold.
_MOST_ENTRIES = 10**18


def log_entries(
    store: HistoryStore, *, session: str | None, limit: int, paths: tuple[RelPath, ...] = (),
    text: str = "",
) -> list[Entry]:  # fmt: skip
    """Entries newest first. `limit` 0: no limit.

    With `paths`, only those that changed them; with `text`, only those that have it, in any case,
    in their command or in the prompt that led to them.
    """
    if text:
        found = log_entries(store, session=session, limit=0, paths=paths)
        having = _with_text(store, found, text.casefold())
        return having[:limit] if limit else having
    session_id = sessions.resolve(store.ledger, session).session_id if session else None
    if not paths:
        found = store.ledger.live(session_id=session_id, limit=min(limit, _MOST_ENTRIES) or -1)
        return _with_shared(store, found, session_id, limit)
    out = []
    with store.ledger.reading():
        known, open_ones = touched_paths.positions_within(store, paths)
        open_ones |= store.ledger.positions_with(excluded_paths.KEY)
        for entry in store.ledger.live_newest_first(known | open_ones):
            if not _is_of(entry, session_id):
                continue
            if entry.pos in known or any(_touches(store, entry, path) for path in paths):
                out.append(entry)
                if limit and len(out) == limit:
                    break
    return out


def _with_text(store: HistoryStore, entries: list[Entry], wanted: str) -> list[Entry]:
    asked = {
        command_id: prompt.text.casefold()
        for command_id, prompt in prompts_of(store, entries).items()
    }
    return [
        entry for entry in entries
        if wanted in entry.command.casefold() or wanted in asked.get(entry.command_id, "")
    ]  # fmt: skip


def _is_of(entry: Entry, session_id: str | None) -> bool:
    if session_id is None or entry.session_id == session_id:
        return True
    return is_shared(entry) and session_id in held_sessions(entry)


def _with_shared(
    store: HistoryStore, found: list[Entry], session_id: str | None, limit: int
) -> list[Entry]:
    """A session's entries, and the squashes with more of its commands; newest first."""
    shared = store.ledger.shared_squashes(session_id) if session_id else []
    if not shared:
        return found
    together = sorted([*found, *shared], key=lambda entry: entry.pos, reverse=True)
    return together[:limit] if limit else together


def _touches(store: HistoryStore, entry: Entry, path: RelPath) -> bool:
    """Whether the entry changed anything at or below `path`; `diff` skips equal subtrees."""
    if excluded_paths.of_detail(entry.detail).touches(path):
        return True
    return entry.commit is not None and bool(changes_of(store, entry, path))


#: Entries that only take other entries back.
_OF_OTHERS = ("undo", "redo", "rollback")
#: States of a world whose command left processes running: they still run, or have ended since.
RUNNING_ON, ENDED_SINCE = "detached", "ended"


def hold_causes(entry: Entry) -> tuple[HoldCause, ...]:
    """Why the entry's change was held; empty if it never was."""
    return hold_causes_in(entry.detail.get("held"))


class HeldState(Enum):
    """What became of a change that was held."""

    WAITING = "held"
    APPLIED = "applied"
    DISCARDED = "discarded"
    #: Applied or removed, and the entry that could say so is no longer kept on its own.
    GONE = "gone"


def held_state(store: HistoryStore, entry: Entry) -> tuple[HeldState, Entry | None] | None:
    """The state of a held change, and the entry that applied it; None if it was never held."""
    if not hold_causes(entry):
        return None
    if entry.command_id in waiting_commands(store):
        return HeldState.WAITING, None
    if entry.detail.get("discarded"):
        return HeldState.DISCARDED, None
    for later in store.ledger.live_after(entry.pos):
        if later.detail.get("of") == entry.command_id and later.detail.get("outcome") == "applied":
            return HeldState.APPLIED, later
    return HeldState.GONE, None


def waiting_commands(store: HistoryStore) -> dict[str, str]:
    """Command id → the state of its world, for worlds that are held or still running."""
    if not store.ledger.intents():
        return {}
    from substrate.history.arrival import (
        held_world_rows,  # rarely needed, and a tenth of a small call's time
    )

    return {world.command_id: _state(world) for world in held_world_rows.all_held(store)}


def _state(world: Held) -> str:
    if world.state != RUNNING_ON:
        return world.state
    from substrate.recorder.arrival import layer_of
    from substrate.world.layer import layer_dirs

    try:
        return RUNNING_ON if layer_dirs.is_running(layer_of(world)) else ENDED_SINCE
    except SubstrateError:
        return ENDED_SINCE


def changes_of(store: HistoryStore, entry: Entry, scope: RelPath = ROOT) -> list[Change]:
    """Every path an entry changed; none for the baseline."""
    if entry.commit is None:
        return []
    before = store.parent_snapshot(entry.commit)
    if before is None:
        return []
    return snapshots.diff(store.objects, before, store.snapshot_of(entry.commit), scope)


def _with_parts(store: HistoryStore, entry: Entry) -> list[Entry]:
    """The entry, and its parts that were recorded while the command ran; newest first."""
    own = [entry] if entry.commit is not None else []
    if not entry.detail.get(live_parts.PARTS):
        return own
    return [*own, *live_parts.parts_of(store, entry.command_id, entry.session_id)]


def all_changes_of(store: HistoryStore, entry: Entry) -> list[Change]:
    """`changes_of`, including the parts that were recorded while the command ran."""
    if not entry.detail.get(live_parts.PARTS):
        return changes_of(store, entry)
    return live_parts.changes_of_all(store, _with_parts(store, entry))


def commands_behind(store: HistoryStore, entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The commands that these entries are, or that the undos and redos among them concern.

    Newest first; a command that was recorded in parts counts once.
    """
    todo, found = list(entries), dict[int, Entry]()
    while todo:
        entry = todo.pop()
        if entry.seq in found:
            continue
        found[entry.seq] = entry
        if entry.kind in _OF_OTHERS:
            todo += store.ledger.taken_back_by(entry.seq)
    commands = [
        e for e in found.values() if e.kind not in _OF_OTHERS and live_parts.PART not in e.detail
    ]
    return tuple(sorted(commands, key=lambda entry: entry.seq, reverse=True))


def described_changes(store: HistoryStore, entry: Entry) -> list[FileChange]:
    """What an entry changed, a record per file."""
    return file_changes(store, all_changes_of(store, entry))


def excluded_files(entry: Entry) -> list[RelPath]:
    """Excluded paths that the entry changed; a directory that moved is one path."""
    return excluded_paths.of_detail(entry.detail).paths()


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
    """What one command changed; for an id inside a squash, what the whole squash changed."""
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


class ScopeDiff(NamedTuple):
    files: list[FileChange]
    #: Two trees, for git to render: without the scope's work, and with it.
    old_tree: bytes
    new_tree: bytes
    hunks: list[ChangeHunk]


def scope_diff(
    store: HistoryStore, scope: Scope, paths: tuple[RelPath, ...], *, hunks: bool = False
) -> ScopeDiff | None:
    """The net change of a scope's entries, and of no others; None if they changed nothing.

    Inside `HistoryStore.rehearsing`: merged contents are not kept. `hunks`: find them, too.
    """
    from substrate.history.reversal import hunks_of, net_change  # `log`, `show` do not need it

    with store.new_batch() as batch:
        net = net_change(store, batch, scope, paths)
        if net is None:
            return None
        found = hunks_of(batch, net.changes) if hunks else []
        with store.commit_point(batch):
            pass
    return ScopeDiff(file_changes(store, net.changes), net.before.tree, net.after.tree, found)


def prompts_of(store: HistoryStore, entries: Iterable[Entry]) -> dict[str, Prompt]:
    """Command id → the prompt that led to it."""
    return prompts.of_commands(store.ledger, (entry.command_id for entry in entries))


def blame(
    store: HistoryStore, path: RelPath, lines: tuple[int, int] | None
) -> list[line_blame.BlamedLine]:
    return line_blame.blame(store, path, lines)
