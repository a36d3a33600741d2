"""Hunks of a change: runs of lines of a text file, or a whole path, taken back alone.

Its id is a hash of its path, its old and new lines, and its number among equal ones, so that
it stays the same as long as the change does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from substrate.errors import NotFoundError, RefusedError
from substrate.history.query import Scope, line_hunks
from substrate.history.record import changed_paths, edited
from substrate.history.reversal.compute_reversal import Step, Wish
from substrate.history.reversal.restore import Outcome, perform
from substrate.history.reversal.undo import Choice, announcing, new_entry, reversal_for, steps
from substrate.history.store import HistoryStore
from substrate.model import ABSENT, Change, Kind, Node, RelPath, ancestors, display, is_within
from substrate.objects.snapshots import Snapshot, Take
from substrate.objects.snapshots import snapshot as snapshots
from substrate.objects.store import Batch

_BINARY_PROBE_BYTES = 8000
_ID_DIGITS = 12


class Net(NamedTuple):
    """What a scope's entries changed together, as two states that differ in nothing else."""

    before: Snapshot
    after: Snapshot
    changes: list[Change]


class ChangeHunk(NamedTuple):
    hunk_id: str
    path: RelPath
    #: ``lines``, ``mode`` (or attributes), ``whole``: what is new, gone, binary or not a file.
    kind: str
    change: Change
    #: Where the lines are in the old and in the new version, counted from 0.
    old_at: int = 0
    new_at: int = 0
    old: tuple[bytes, ...] = ()
    new: tuple[bytes, ...] = ()


def net_change(
    store: HistoryStore, batch: Batch, scope: Scope, paths: tuple[RelPath, ...] = ()
) -> Net | None:
    """The net change of a scope's entries, and of no others; None if they changed no file.

    What others did in between is left out by merging.
    """
    entries = [e for e in scope.entries if e.commit is not None]
    if not entries:
        return None
    line = store.ledger.live(after_pos=entries[-1].pos - 1, committed=True)
    found = steps(store, line, {entry.seq for entry in entries})
    start = found[-1].before
    net = reversal_for(store, batch, Choice(paths=paths, take=Take.THEIRS), onto=start)
    for step in reversed(found):
        net.take_back(Step(step.after, step.before))
    changes = net.wish().changes
    return Net(start, edited(batch, start, changes), changes)


def hunks_of(batch: Batch, changes: list[Change]) -> list[ChangeHunk]:
    """Every hunk of a change, by path and from top to bottom."""
    shown = set(changed_paths(changes))
    seen: dict[bytes, int] = {}
    out = []
    for change in changes:
        if change.path not in shown:
            continue
        for hunk in _of_change(batch, change):
            digest = _digest(hunk, 0)
            seen[digest] = number = seen.get(digest, -1) + 1
            made = _digest(hunk, number).hex()[:_ID_DIGITS]
            out.append(hunk._replace(hunk_id=f"h-{made}"))
    return out


def _of_change(batch: Batch, change: Change) -> list[ChangeHunk]:
    old, new = change.old, change.new
    contents = [_text(batch, node) for node in (old, new)]
    if any(b"\0" in content[:_BINARY_PROBE_BYTES] for content in contents):
        return [ChangeHunk("", change.path, "whole", change)]
    before, after = (line_hunks.split_lines(content) for content in contents)
    if ABSENT in (old, new):
        return [ChangeHunk("", change.path, "whole", change, 0, 0, tuple(before), tuple(after))]
    out = []
    if old._replace(oid=b"") != new._replace(oid=b""):
        out.append(ChangeHunk("", change.path, "mode", change))
    moved = 0
    for at, removed, added in line_hunks.hunks(*contents):
        new_at = at + moved
        texts = (tuple(before[at : at + removed]), tuple(after[new_at : new_at + added]))
        out.append(ChangeHunk("", change.path, "lines", change, at, new_at, *texts))
        moved += added - removed
    return out


def _text(batch: Batch, node: Node) -> bytes:
    """A file's content; what is no file has no lines, and counts as binary."""
    if node == ABSENT:
        return b""
    return batch.read_blob(node.oid) if node.kind is Kind.FILE else b"\0"


def _digest(hunk: ChangeHunk, number: int) -> bytes:
    whole = (hunk.change.old, hunk.change.new) if hunk.kind != "lines" else ()
    fields = (hunk.path, hunk.kind, hunk.old, hunk.new, whole, number)
    return hashlib.sha256(repr(fields).encode()).digest()


def chosen(hunks: list[ChangeHunk], wanted: Iterable[str]) -> list[ChangeHunk]:
    """The hunks with these ids, or with a unique beginning of one."""
    out = []
    for text in wanted:
        found = [hunk for hunk in hunks if text and hunk.hunk_id.startswith(text)]
        if len(found) != 1:
            why = "matches several hunks" if found else "is no hunk of this change"
            raise NotFoundError(
                f"{text!r} {why}", hint="`substrate diff --hunks` lists them with their ids"
            )
        out += found
    return out


def undo_hunks(
    store: HistoryStore,
    scope: Scope,
    picked: Mapping[str, tuple[bytes, ...] | None],
    choice: Choice,
    agent: str | None,
) -> Outcome:
    """Take back some hunks of what a scope changed; everything else stays, merged.

    `picked`: ids, each with the lines to put there instead of the old ones, or None. No entry
    counts as undone after this: `undo` of it takes back what is left.
    """
    with store.new_batch() as batch:
        net = net_change(store, batch, scope, choice.paths)
        hunks = hunks_of(batch, net.changes) if net else []
        takes = {hunk.hunk_id: hunk for hunk in chosen(hunks, picked)}
        if net is None or not takes:
            raise NotFoundError(f"{scope.name}: no hunk was named", hint="see `diff --hunks`")
        instead = {
            chosen(hunks, [text])[0].hunk_id: lines
            for text, lines in picked.items()
            if lines is not None
        }
        target = _without(batch, net, hunks, takes.keys(), instead)
        reversal = reversal_for(store, batch, choice)
        reversal.take_back(Step(target, net.after))
        wish = reversal.wish()
        if not (wish.changes or wish.conflicts):
            raise RefusedError(
                "nothing was changed: these hunks are already taken back",
                hint="`substrate log` shows by what",
            )
        names = sorted({display(hunk.path) for hunk in takes.values()})
        what = f"undo of {len(takes)} of {len(hunks)} hunks of {scope.name}: {', '.join(names)}"
        new = new_entry(store, "undo", what, scope.session_id, agent)
        return perform(
            store, batch, wish, announcing(new, choice), [],
            skip_conflicts=choice.skip_conflicts, dry_run=choice.dry_run,
        )  # fmt: skip


def with_only(
    batch: Batch, hunks: list[ChangeHunk], picked: Mapping[str, tuple[bytes, ...] | None]
) -> dict[RelPath, Node]:
    """What each path becomes if only the picked hunks are applied to its old version.

    `picked`: ids, each with the lines to put there instead of the new ones, or None. Paths without
    a picked hunk are left out.
    """
    named = {chosen(hunks, [text])[0].hunk_id: lines for text, lines in picked.items()}
    edited_lines = {hunk_id: lines for hunk_id, lines in named.items() if lines is not None}
    by_path = _by_path(hunks)
    out = {}
    for path, own in by_path.items():
        mine = [hunk.hunk_id for hunk in own if hunk.hunk_id in named]
        if mine:
            # Applying some hunks is the same as applying all and taking the others back.
            back = {h.hunk_id for h in own if h.hunk_id not in named or h.hunk_id in edited_lines}
            out[path] = _node(batch, own, back, edited_lines) if back else own[0].change.new
    return out


def only_hunks(batch: Batch, wish: Wish, picked: Mapping[str, tuple[bytes, ...] | None]) -> Wish:
    """A wish whose changes are only the picked hunks of it; `picked` as in `with_only`."""
    nodes = with_only(batch, hunks_of(batch, wish.changes), picked)
    above = {directory for path in nodes for directory in ancestors(path)}
    changes = [
        change._replace(new=nodes[change.path]) if change.path in nodes else change
        for change in wish.changes
        if change.path in nodes or (change.path in above and change.new.kind is Kind.DIRECTORY)
    ]
    return wish._replace(changes=changes)


def _by_path(hunks: list[ChangeHunk]) -> dict[RelPath, list[ChangeHunk]]:
    by_path: dict[RelPath, list[ChangeHunk]] = {}
    for hunk in hunks:
        by_path.setdefault(hunk.path, []).append(hunk)
    return by_path


def _without(
    batch: Batch,
    net: Net,
    hunks: list[ChangeHunk],
    taken: Collection[str],
    instead: Mapping[str, tuple[bytes, ...]],
) -> Snapshot:
    """The state after the change, with the taken hunks as they were before it."""
    by_path = _by_path(hunks)
    nodes: dict[RelPath, Node] = {}
    for path, own in by_path.items():
        if any(hunk.hunk_id in taken for hunk in own):
            nodes[path] = _node(batch, own, taken, instead)
    for change in net.changes:
        if change.path not in by_path and _is_directory_back(change, by_path, nodes):
            nodes[change.path] = change.old
    return snapshots.edit(batch, net.after, nodes)


def _is_directory_back(
    change: Change, by_path: Mapping[RelPath, list[ChangeHunk]], nodes: Mapping[RelPath, Node]
) -> bool:
    """A removed directory comes back with any path in it; a new one goes with the last."""
    below = [path for path in by_path if is_within(path, change.path)]
    back = [path for path in below if path in nodes]
    if change.old == ABSENT:
        return len(back) == len(below) and all(nodes[path] == ABSENT for path in back)
    return bool(back)


def _node(
    batch: Batch,
    hunks: list[ChangeHunk],
    taken: Collection[str],
    instead: Mapping[str, tuple[bytes, ...]],
) -> Node:
    change = hunks[0].change
    mine = [hunk for hunk in hunks if hunk.hunk_id in taken]
    if len(mine) == len(hunks) and not any(hunk.hunk_id in instead for hunk in mine):
        return change.old
    node = change.new
    if any(hunk.kind == "mode" for hunk in mine):
        node = change.old._replace(oid=node.oid)
    lines = line_hunks.split_lines(batch.read_blob(node.oid))
    for hunk in reversed(mine):
        if hunk.kind == "lines":
            put = instead.get(hunk.hunk_id, hunk.old)
            lines[hunk.new_at : hunk.new_at + len(hunk.new)] = put
    return node._replace(oid=batch.add_blob(b"".join(lines)))
