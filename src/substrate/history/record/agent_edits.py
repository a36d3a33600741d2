"""Recording what a coding agent's own edit tool changed: exactly the files that it names.

What others changed in these files before is recorded first, as external. What they changed since
is left for the watcher or the next scan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from substrate.errors import WorkspaceError
from substrate.history.arrival import compared, record_met, written_by
from substrate.history.record import sessions
from substrate.history.record.edit_versions import Versions, versions
from substrate.history.record.record_entry import Recorded, ensure_baseline
from substrate.history.record.scan_against_tip import count_files, edited
from substrate.history.store import (
    Detail,
    Entry,
    Extension,
    HistoryStore,
    NewEntry,
    pack_small_objects,
)
from substrate.model import (
    ABSENT,
    Change,
    FileBefore,
    Kind,
    Node,
    RelPath,
    ReportedEdit,
    ancestors,
    display,
)
from substrate.objects.snapshots import snapshot as snapshots
from substrate.objects.store import Batch
from substrate.system import clock, ids
from substrate.workspace.paths import node_at

_NEW_FILE_MODE = 0o644
#: In the detail of an entry that was recorded as external before its tool reported it.
RECORDED_AS = "recorded_as"
#: How many entries back such an entry may be.
_LOOK_BACK = 16
_EXTERNAL, _BASELINE = "external", "baseline"
#: Of a directory that history does not know and that is gone by now.
_NEW_DIRECTORY_MODE = 0o755
_CORRECTION = "put back in history only: the edit that follows was recorded too early"


class Editor(NamedTuple):
    """The session that made an edit, and what its entry says about it."""

    session_id: str
    agent_id: str | None
    #: The entry's text: ``Edit src/app.py``.
    text: str
    detail: Detail


def record_outside_of(
    store: HistoryStore,
    paths: Iterable[RelPath],
    until_ns: int,
    known: Mapping[RelPath, FileBefore] = MappingProxyType({}),
    *,
    is_shell: bool = False,
) -> None:
    """Record what others have changed in these files, before a tool edits them. Inside the lock.

    `until_ns`: when the tool was announced. A file that changed since is left alone: the tool may
    have written it by now, and what it reports afterwards says whose the change is. `known`: files
    as they were at that time; the tree need not show that state any more. `is_shell`: no report of
    the tool's own change follows, so one that a scan was faster to record is put back in history.
    """
    ensure_baseline(store)
    store.forget_exclusions()
    with store.new_batch() as batch:
        looked_at = [path for path in paths if path not in known]
        changes = compared(store, batch, batch, dict.fromkeys(looked_at, True))
        if changes:
            changes = written_by(store, changes, until_ns)
        found = _as_announced(store, batch, known, until_ns, is_shell=is_shell)
        if changes or found.changes:
            both = _with_new_parents(store, batch, [*changes, *found.changes])
            record_met(store, batch, both, {"cause": _CORRECTION} if found.is_late else {})


class _Announced(NamedTuple):
    changes: list[Change]
    #: History has recorded the tool's change already, in a baseline or a scan.
    is_late: bool


def _as_announced(
    store: HistoryStore,
    batch: Batch,
    known: Mapping[RelPath, FileBefore],
    until_ns: int,
    *,
    is_shell: bool,
) -> _Announced:
    """Where history differs from the files as they were when the tool was announced."""
    changes, is_late = [], False
    tip = store.tip()
    for path, before in known.items():
        above = [snapshots.lookup(batch, tip, one).kind for one in ancestors(path)]
        old = snapshots.lookup(batch, tip, path)
        if {*above, old.kind} - {Kind.DIRECTORY, Kind.FILE, Kind.ABSENT} or Kind.FILE in above:
            continue
        if old.kind is Kind.DIRECTORY or _is_excluded_size(store, path, len(before.data or b"")):
            continue
        new = ABSENT
        if before.data is not None:
            like = old if old.kind is Kind.FILE else Node(Kind.FILE)
            new = like._replace(mode=before.mode, oid=batch.add_blob(before.data))
        if new == old:
            continue
        last = _last_change(store, path)
        if last is not None and last.entry.ts_ns > until_ns:
            is_found = last.before == new and not is_shell
            if last.entry.kind not in (_EXTERNAL, _BASELINE) or is_found:
                continue  # a session's own later work, or a state that `record` finds in history
            is_late = True
        changes.append(Change(path, old, new))
    return _Announced(changes, is_late)


def record(
    store: HistoryStore, editor: Editor, reported: Mapping[RelPath, ReportedEdit]
) -> Recorded:
    """Record a tool's edit of these files as one entry. Inside the lock."""
    ensure_baseline(store)
    store.forget_exclusions()
    sessions.for_recording(store, editor.session_id, editor.agent_id)
    with store.new_batch() as batch:
        found = _sorted_out(store, batch, reported)
        # The reports of two calls may be served in another order than that of the calls: then the
        # later one has recorded this edit as what others did before it.
        if found.known or found.outside:
            early = _recorded_early(store, reported)
            if early is not None:
                return _attributed(store, early, editor)
        if found.outside:
            about: Detail = {"cause": _CORRECTION} if found.known else {}
            record_met(store, batch, _with_new_parents(store, batch, found.outside), about)
        recorded = _extended(store, batch, editor, found)
        if found.unsure:
            about = {"uncertain": True, "perhaps_of": recorded.entry.command_id}
            record_met(store, batch, _with_new_parents(store, batch, found.unsure), about)
        if found.later:
            record_met(store, batch, found.later, {"cause": _CORRECTION})
    pack_small_objects.flush_if_due(store)
    return recorded


class _Sorted(NamedTuple):
    #: What others did before the tool, and what the tool did.
    outside: list[Change]
    own: list[Change]
    #: What cannot be told apart.
    unsure: list[Change]
    #: Paths whose edit history has already, because a scan was faster than the tool's report.
    known: list[RelPath]
    #: Of these, what others did after the tool.
    later: list[Change]


def _sorted_out(
    store: HistoryStore, batch: Batch, reported: Mapping[RelPath, ReportedEdit]
) -> _Sorted:
    out = _Sorted([], [], [], [], [])
    tip = store.tip()
    for path in sorted(reported):
        old = snapshots.lookup(batch, tip, path)
        try:
            now = node_at(store.root, path, batch)
        except WorkspaceError:
            continue  # it cannot be read: a later scan records it
        if {old.kind, now.kind} - {Kind.FILE, Kind.ABSENT}:
            if old != now:
                out.unsure.append(Change(path, old, now))
            continue
        if _is_excluded(store, batch, path, now):
            continue
        found = versions(reported[path], _content(batch, old), _content(batch, now))
        if not found.is_certain:
            if old != now:
                out.unsure.append(Change(path, old, now))
            continue
        before, after = _nodes(batch, found, old, now)
        if now == old and before != old:
            out.known.append(path)
            if not _is_last_external(store, path):
                continue  # a session's later work on it is recorded: that must keep its author
            if after != old:
                out.later.append(Change(path, after, old))
        if before != old:
            out.outside.append(Change(path, old, before))
        if after != before:
            out.own.append(Change(path, before, after))
    return out


class _LastChange(NamedTuple):
    entry: Entry
    before: Node


def _last_change(store: HistoryStore, path: RelPath) -> _LastChange | None:
    """The newest entry that changed the file, or the baseline; None if it is far back."""
    for entry in store.ledger.live(committed=True, limit=_LOOK_BACK):
        assert entry.commit is not None
        parent = store.parent_snapshot(entry.commit)
        if parent is None:
            return _LastChange(entry, ABSENT)
        before = snapshots.lookup(store.objects, parent, path)
        if before != snapshots.lookup(store.objects, store.snapshot_of(entry.commit), path):
            return _LastChange(entry, before)
    return None


def _is_last_external(store: HistoryStore, path: RelPath) -> bool:
    """Whether the newest entry that changed the file is an outside edit."""
    last = _last_change(store, path)
    return last is not None and last.entry.kind == _EXTERNAL


def _is_excluded(store: HistoryStore, batch: Batch, path: RelPath, node: Node) -> bool:
    return _is_excluded_size(store, path, len(_content(batch, node) or b""))


def _is_excluded_size(store: HistoryStore, path: RelPath, size: int) -> bool:
    return store.exclusions.reason(path, is_dir=False, size=size) is not None


def _content(batch: Batch, node: Node) -> bytes | None:
    return batch.read_blob(node.oid) if node.kind is Kind.FILE else None


def _nodes(batch: Batch, found: Versions, old: Node, now: Node) -> tuple[Node, Node]:
    """The two states as nodes; a tool keeps a file's mode, so modes come from what is there."""
    like = now if now.kind is Kind.FILE else old
    if like.kind is not Kind.FILE:
        like = Node(Kind.FILE, _NEW_FILE_MODE)
    kept = old if old.kind is Kind.FILE else like

    def node(data: bytes | None, style: Node) -> Node:
        return ABSENT if data is None else style._replace(oid=batch.add_blob(data))

    return node(found.before, kept), node(found.after, like)


def _with_new_parents(store: HistoryStore, batch: Batch, changes: list[Change]) -> list[Change]:
    """Add the directories that a new file needs and history does not know."""
    tip = store.tip()
    known = {change.path for change in changes}
    out = list(changes)
    for change in changes:
        for above in ancestors(change.path) if change.new != ABSENT else ():
            if above in known:
                continue
            known.add(above)
            if snapshots.lookup(batch, tip, above) == ABSENT:
                found = node_at(store.root, above, batch)
                if found.kind is not Kind.DIRECTORY:  # a tool has removed it since
                    found = Node(Kind.DIRECTORY, _NEW_DIRECTORY_MODE)
                out.append(Change(above, ABSENT, found))
    return sorted(out)


def _extended(store: HistoryStore, batch: Batch, editor: Editor, found: _Sorted) -> Recorded:
    changes = _with_new_parents(store, batch, found.own)
    detail = dict(editor.detail)
    if found.unsure:
        detail["uncertain"] = [display(change.path) for change in found.unsure]
    new = NewEntry(
        ids.new_id("c"), "edit", clock.now_ns(), editor.text, session_id=editor.session_id,
        agent_id=editor.agent_id, span_id=ids.new_id("spn"), exit=0, detail=detail,
        changed_files=count_files(changes), added_bytes=batch.added_bytes,
    )  # fmt: skip
    extension = None
    if changes:
        extension = Extension(store, batch, edited(batch, store.tip(), changes), new)
    with store.commit_point(batch) as ledger:
        entry = ledger.add(new, extension.commit if extension else None)
        if extension:
            extension.take_up(ledger)
        sessions.touch(ledger, editor.session_id)
        ledger.grew_by(new.added_bytes)
    return Recorded(entry, changes, last_commit=entry.commit)


# ------------------------------------------------------------------------------ recorded too early


def _recorded_early(store: HistoryStore, reported: Mapping[RelPath, ReportedEdit]) -> Entry | None:
    """The external entry that holds exactly this edit.

    Its commit stays as it is; only the ledger can say from now on whose it was.
    """
    wanted = set(reported)
    for entry in store.ledger.live(committed=True, limit=_LOOK_BACK):
        assert entry.commit is not None
        before = store.parent_snapshot(entry.commit)
        if entry.kind != _EXTERNAL or before is None or entry.detail.get("uncertain"):
            continue
        changed = snapshots.diff(store.objects, before, store.snapshot_of(entry.commit))
        files = [c for c in changed if Kind.DIRECTORY not in (c.old.kind, c.new.kind)]
        if {c.path for c in files} == wanted and all(
            _is_reported(store, change, reported[change.path]) for change in files
        ):
            return entry
    return None


def _is_reported(store: HistoryStore, change: Change, reported: ReportedEdit) -> bool:
    old, new = (
        store.objects.read_blob(node.oid) if node.kind is Kind.FILE else None
        for node in (change.old, change.new)
    )
    return versions(reported, old, new) == Versions(old, new)


def _attributed(store: HistoryStore, entry: Entry, editor: Editor) -> Recorded:
    with store.commit_point() as ledger:
        ledger.db.execute(
            "UPDATE entries SET kind = 'edit', session_id = ?, agent_id = ?, command = ?, exit = 0,"
            " span_id = ? WHERE seq = ?",
            (editor.session_id, editor.agent_id, editor.text, ids.new_id("spn"), entry.seq),
        )
        found = ledger.by_seq(entry.seq)
        assert found is not None
        found = ledger.add_detail(found, **editor.detail, **{RECORDED_AS: _EXTERNAL})
        sessions.touch(ledger, editor.session_id)
    return Recorded(found, [], last_commit=found.commit)


def as_committed(entry: Entry) -> Entry:
    """An entry that was attributed later, as its commit names it."""
    return entry._replace(
        kind=_EXTERNAL, session_id=None, agent_id=None, span_id=None, exit=None,
        command="external-changes",
    )  # fmt: skip
