"""Changing the workspace to a wished state, all or nothing, with a way back.

    wish ─► plan ─► [commit point: pending commit, recovery ref, intent] ─► stage ─► carry out
         ─► [commit point: branch advances, entry written, intent dropped]

A crash between the two commit points is finished by `settle`, from the plan in the intent.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from substrate.errors import (
    ChangedMeanwhileError,
    ConflictError,
    HalfAppliedError,
    RefusedError,
)
from substrate.history import line, recovery, sessions
from substrate.history.ledger import Entry, Intent, NewEntry
from substrate.history.line import Extension
from substrate.history.met import excluded_below
from substrate.history.observe import changed_paths, edited
from substrate.history.reversal import Wish
from substrate.history.store import HistoryStore
from substrate.model.nodes import ABSENT, Kind
from substrate.model.paths import RelPath, ancestors, display, is_within, parent
from substrate.objects.batch import Batch
from substrate.system import clock, files
from substrate.workspace.apply import Applier, Report
from substrate.workspace.newer import holds_newer
from substrate.workspace.plan import Op, Plan
from substrate.workspace.trash import Trash, TrashEntry

APPLY = "apply"
#: In an entry's detail: the paths (hex) that were left as they were because of a conflict.
SKIPPED = "skipped"


class Outcome(NamedTuple):
    """What an undo, redo, rollback or restore did (or, for a dry run, would do)."""

    entry: Entry | None
    restored: list[RelPath]
    deleted: list[RelPath]
    merged: list[RelPath]
    conflicts: dict[RelPath, str]
    recovery_ref: str | None
    #: Sentences for the user: directories kept, links broken, things that cannot come back.
    notes: list[str]
    plan: Plan
    #: The entries that were taken back (`Entry.seq`), newest first.
    undone: tuple[int, ...] = ()
    #: In words, e.g. "undo of c-…"; also where nothing is recorded.
    what: str = ""


class Undoing(NamedTuple):
    """One entry that is being taken back: all of it, or some of its paths."""

    seq: int
    paths: tuple[RelPath, ...] = ()


def perform(
    store: HistoryStore,
    batch: Batch,
    wish: Wish,
    new: NewEntry,
    undoing: Sequence[Undoing],
    *,
    skip_conflicts: bool = False,
    dry_run: bool = False,
) -> Outcome:
    """Bring the workspace to `wish`. Inside the lock, with the tip equal to the workspace."""
    if wish.conflicts and not (skip_conflicts or dry_run):
        raise _conflict(wish, new)
    ops = [Op(c.path, c.old, c.new) for c in wish.changes]
    excluded = _made_with(store, wish, undoing)
    plan = Plan.of([*ops, *excluded], beyond_history=bool(excluded))
    if wish.conflicts:
        skipped = [path.hex() for path in wish.conflicts]
        new = new._replace(detail={**new.detail, SKIPPED: skipped})
    if dry_run or (wish.conflicts and not wish.changes):
        # Where every path is skipped, nothing is taken back, and nothing is recorded as such.
        return _outcome(None, wish, None, [], plan)._replace(what=new.command)
    if not wish.changes:
        entry = _note_only(store, new, undoing)
        notes = [*return_trash(store, undoing), *unprotected(store, undoing)]
        return _outcome(entry, wish, None, notes, plan)._replace(undone=_seqs(undoing))
    new = new._replace(
        changed_files=len(changed_paths(wish.changes)), added_bytes=batch.added_bytes
    )
    intent, ref = _announce(store, batch, wish, new, undoing, plan)
    try:
        report = _apply(store, intent, plan)
    except HalfAppliedError:
        raise  # the intent stays: the next operation finishes it
    except BaseException:
        abandon(store, intent)
        raise
    entry = complete(store, intent)
    conflicts = dict(wish.conflicts)
    conflicts.update(
        {c.path: "was changed while this ran; left as it is" for c in report.conflicts}
    )
    kept = {one.path for one in report.kept_directories}
    changes = [change for change in wish.changes if change.path not in kept]
    done = wish._replace(changes=changes, conflicts=conflicts)
    notes = [*notes_of(report), *return_trash(store, undoing), *unprotected(store, undoing)]
    return _outcome(entry, done, ref, notes, plan)._replace(undone=_seqs(undoing))


def _made_with(store: HistoryStore, wish: Wish, undoing: Sequence[Undoing]) -> list[Op]:
    """What history leaves out in directories that go: it came with them (``mv pkg pkg2``), if
    nobody has written to it since. It goes to the trash, from where a redo brings it back."""
    entries = [store.ledger.by_seq(one.seq) for one in undoing]
    since = min((entry.ts_ns for entry in entries if entry), default=None)
    if since is None:
        return []
    leaving = {c.path for c in wish.changes if c.old.kind is Kind.DIRECTORY and c.new == ABSENT}
    tops = [path for path in leaving if leaving.isdisjoint(ancestors(path))]
    return [
        op
        for top in sorted(tops)
        for op in excluded_below(store, top)
        if parent(op.path) in leaving
        and not holds_newer(store.root / os.fsdecode(op.path), since)
    ]  # fmt: skip


def _seqs(undoing: Sequence[Undoing]) -> tuple[int, ...]:
    return tuple(one.seq for one in undoing)


def _announce(
    store: HistoryStore,
    batch: Batch,
    wish: Wish,
    new: NewEntry,
    undoing: Sequence[Undoing],
    plan: Plan,
) -> tuple[Intent, str]:
    """The first commit point: everything a crash would need to finish the change."""
    extension = Extension(store, batch, edited(batch, store.tip(), wish.changes), new)
    kept = recovery.prepare(store, batch, new, wish.changes)
    intent = store.new_intent(
        APPLY,
        {
            "plan": plan.to_json(),
            "entry": new.to_json(),
            "commit": extension.commit.hex(),
            "attrs_commit": (extension.attrs_commit or b"").hex(),
            "undoing": [[u.seq, [p.hex() for p in u.paths]] for u in undoing],
        },
    )
    with store.commit_point(batch) as ledger:
        kept.take_up(ledger)
        ledger.add_intent(intent)
    return intent, kept.ref


def _apply(store: HistoryStore, intent: Intent, plan: Plan) -> Report:
    applier = applier_for(store, intent)
    staged = applier.stage(plan)
    if staged.conflicts:
        applier.discard(staged)
        names = ", ".join(display(c.path) for c in staged.conflicts[:3])
        raise ChangedMeanwhileError(
            f"the workspace changed while this ran ({names}); nothing was changed",
            hint="try again",
        )
    return applier.carry_out(staged)


def applier_for(store: HistoryStore, intent: Intent) -> Applier:
    scratch = store.scratch(intent.intent_id)
    trash = Trash(store.trash_dir)
    return Applier(
        store.root, scratch, store.objects, trash, exclusions=store.exclusions,
        under=_entry_of(intent).command_id,
    )  # fmt: skip


def abandon(store: HistoryStore, intent: Intent) -> None:
    """The change did not happen (apply put everything back): forget it was announced."""
    with store.commit_point() as ledger:
        ledger.drop_intent(intent.intent_id)
        new = _entry_of(intent)
        recovery.forget(ledger, new.command_id)


def complete(store: HistoryStore, intent: Intent) -> Entry:
    """The second commit point: the change has happened."""
    new = _entry_of(intent)
    payload = intent.payload
    with store.commit_point() as ledger:
        entry = ledger.add(new, bytes.fromhex(str(payload["commit"])))
        attrs_commit = bytes.fromhex(str(payload["attrs_commit"])) or None
        line.advance(ledger, bytes.fromhex(str(payload["commit"])), attrs_commit)
        _write_reversals(store, entry, undoing_of(intent))
        if new.session_id:
            sessions.touch(ledger, new.session_id)
        ledger.drop_intent(intent.intent_id)
    files.remove_tree(store.scratch(intent.intent_id))
    return entry


def _note_only(store: HistoryStore, new: NewEntry, undoing: Sequence[Undoing]) -> Entry:
    """Everything is already as wished: say so in history, so that the next undo goes further."""
    with store.commit_point() as ledger:
        entry = ledger.add(new, None)
        if new.kind != "rollback":  # one that changes nothing takes no earlier rollback back
            _write_reversals(store, entry, undoing)
        if new.session_id:
            sessions.touch(ledger, new.session_id)
    return entry


def _write_reversals(store: HistoryStore, entry: Entry, undoing: Sequence[Undoing]) -> None:
    for one in undoing:
        for path in one.paths or (b"",):
            store.ledger.add_reversal(one.seq, entry.seq, path)


def _entry_of(intent: Intent) -> NewEntry:
    return NewEntry.from_json(str(intent.payload["entry"]))


def plan_of(intent: Intent) -> Plan:
    return Plan.from_json(str(intent.payload["plan"]))


def _conflict(wish: Wish, new: NewEntry) -> ConflictError:
    names = tuple(display(path) for path in wish.conflicts)
    lines = "".join(f"\n  {display(p)}: {why}" for p, why in wish.conflicts.items())
    return ConflictError(
        f"{new.command}: {len(names)} path(s) conflict with later work; nothing was changed{lines}",
        hint="choose with --take ours (keep what is there) or --take theirs (bring back the old),"
        " or leave these paths out with --skip-conflicts",
        paths=names,
    )


def undoing_of(intent: Intent) -> list[Undoing]:
    undoing = intent.payload["undoing"]
    assert isinstance(undoing, list)
    return [Undoing(seq, tuple(RelPath(bytes.fromhex(p)) for p in ps)) for seq, ps in undoing]


def return_trash(store: HistoryStore, undoing: Sequence[Undoing]) -> list[str]:
    """Excluded paths that an undone entry had moved to trash come back, if their place is free."""
    by_id: dict[str, list[TrashEntry]] = {}
    trash = Trash(store.trash_dir)
    for item in trash.list():
        by_id.setdefault(item.entry_id.partition("/")[0], []).append(item)
    notes = []
    for one in undoing if by_id else ():
        entry = store.ledger.by_seq(one.seq)
        for item in by_id.get(entry.command_id, ()) if entry else ():
            if one.paths and not any(is_within(item.path, scope) for scope in one.paths):
                continue
            if b".git" in item.path.split(b"/")[:-1]:
                continue  # of a repository that stands: `--with-git` moves its refs back
            try:
                trash.restore(item, store.root)
                notes.append(f"brought back from the trash: {display(item.path)}")
            except RefusedError as error:
                notes.append(f"stays in the trash ({item.location}): {error.message}")
    return notes


def unprotected(store: HistoryStore, undoing: Sequence[Undoing]) -> list[str]:
    """What an undone command removed and nobody had kept is said, never silent; so is whose
    work may have been taken back with its own."""
    notes = []
    for one in undoing:
        entry = store.ledger.by_seq(one.seq)
        if entry and entry.detail.get("outcome") == "interrupted":
            notes.append(
                f"{entry.command_id} was interrupted: whatever was changed between its start and"
                f" {clock.iso(entry.ts_ns)}, by anybody, counts as its work"
            )
        gone = entry.detail.get("excluded_gone") if entry else None
        if entry and isinstance(gone, list):
            names = ", ".join(map(str, gone))
            notes.append(
                f"cannot bring back what {entry.command_id} removed or replaced outside history:"
                f" {names} (excluded, and run without a world)"
            )
    return notes


def notes_of(report: Report) -> list[str]:
    notes = [f"kept directory {display(path)}: {why}" for path, why in report.kept_directories]
    notes += [
        f"{display(path)} was a hard link; the link is now broken" for path in report.broken_links
    ]
    notes += [f"cannot bring back {display(path)}: {why}" for path, why in report.cannot_restore]
    notes += [f"moved to trash: {display(path)}" for path in report.trashed]
    return notes


def _outcome(
    entry: Entry | None, wish: Wish, ref: str | None, notes: list[str], plan: Plan
) -> Outcome:
    touched = [c for c in wish.changes if c.path not in wish.conflicts]
    shown = set(changed_paths(touched))
    merged = set(wish.merged)
    kept = [f"kept directory {display(p)}: it holds other files" for p in wish.kept_directories]
    return Outcome(
        entry,
        restored=[c.path for c in touched if c.new != ABSENT and c.path in shown - merged],
        deleted=[c.path for c in touched if c.new == ABSENT and c.path in shown],
        merged=wish.merged,
        conflicts=wish.conflicts,
        recovery_ref=ref,
        notes=kept + notes,
        plan=plan,
    )
