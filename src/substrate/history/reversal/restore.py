"""Changing the workspace to a wanted state, all or nothing, with a recovery ref.

    wish ─► plan ─► [commit point: pending commit, recovery ref, intent] ─► stage ─► carry out
         ─► [commit point: branch advances, entry written, intent dropped]

After a crash between the two commit points, `settle` finishes from the plan in the intent.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from substrate.errors import (
    ChangedMeanwhileError,
    ConflictError,
    HalfAppliedError,
    RefusedError,
)
from substrate.history import changed_owners
from substrate.history.arrival import excluded_below
from substrate.history.record import changed_paths, edited, sessions
from substrate.history.reversal import recovery_refs, restore_excluded, unreadable_files
from substrate.history.reversal.compute_reversal import Wish
from substrate.history.reversal.restore_excluded import Back, Later, Turns, Undone
from substrate.history.store import (
    REVERSING_KINDS,
    TO_MOVE,
    Detail,
    Entry,
    Extension,
    HistoryStore,
    Intent,
    NewEntry,
    commit_chain,
)
from substrate.model import ABSENT, Change, Kind, RelPath, ancestors, display, parent
from substrate.objects.store import Batch
from substrate.system import clock
from substrate.system.files import files
from substrate.workspace.apply import Applier, Op, Plan, Report, Trash
from substrate.workspace.paths import holds_newer

APPLY = "apply"
#: In an entry's detail: the paths (hex) that were left unchanged because of a conflict.
SKIPPED = "skipped"
#: In an intent: what happens to excluded paths that were changed since.
LATER = "later"


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
    #: The entries that were (or would be) taken back (`Entry.seq`), newest first.
    undone: tuple[int, ...] = ()
    #: The one entry that the user asked to take back; None for a session, a prompt, a rollback.
    subject: Entry | None = None
    #: The commands that were (or would be) undone, or done again by a redo; newest first.
    commands: tuple[Entry, ...] = ()
    #: In words, e.g. "undo of c-…"; also where nothing is recorded.
    what: str = ""
    #: For a dry run: what would be done in addition to the plan, a line each.
    besides: tuple[str, ...] = ()
    #: Paths in conflict that keep their present state, because the user chose so.
    kept: tuple[RelPath, ...] = ()
    #: How many newer commands plain `undo` skipped because they changed nothing at all.
    passed_over: int = 0
    #: Refs of the user's repository that were moved back.
    refs: tuple[str, ...] = ()
    #: How many files inside a `.git` were put back: objects, configuration, hooks, logs.
    git_files: int = 0
    #: A part of the request was not done; a note says which.
    incomplete: bool = False
    #: How it was known that history agrees with the workspace: ``watched`` or ``scanned``.
    base_known: str = "scanned"

    @property
    def is_redo(self) -> bool:
        return self.subject is not None and self.subject.kind in REVERSING_KINDS


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
    later: Later = Later.STAYS,
) -> Outcome:
    """Bring the workspace to `wish`. Inside the lock, with the tip equal to the workspace.

    `later`: what happens to excluded paths that were changed since.
    """
    turns = excluded_turns(store, undoing, later, wish.changes)
    wish, replaced, left = unreadable_files.clear(store, wish, turns, later)
    turns = turns._replace(left={**turns.left, **left})
    if not (skip_conflicts or dry_run):
        _check_conflicts(wish, new, turns)
    ops = [Op(c.path, replaced.get(c.path, c.old), c.new) for c in wish.changes]
    excluded = _made_with(store, wish, undoing)
    plan = Plan.of([*ops, *excluded], beyond_history=bool(excluded))
    kept = {*wish.kept, *(turns.left if later is Later.LEAVES_ALL else ())}
    wish = wish._replace(kept=tuple(sorted(kept)))
    if wish.conflicts or wish.kept:
        skipped = [path.hex() for path in (*wish.conflicts, *wish.kept)]
        new = new._replace(detail={**new.detail, SKIPPED: skipped})
    # If every path is skipped, nothing is taken back, and no reversal is recorded.
    is_nothing = bool(wish.conflicts and not wish.changes) or (
        bool(kept) and not (wish.changes or turns.todo or TO_MOVE in new.detail)
        and not _owned(store, undoing)
    )  # fmt: skip
    if dry_run and store.ledger.is_rehearsing:
        with store.commit_point(batch):  # merged contents can be read until the rehearsal ends
            pass
    if dry_run or is_nothing:
        planned = () if is_nothing else _besides(store, undoing, turns)
        return _outcome(None, wish, None, [], plan)._replace(
            what=new.command, besides=planned, undone=_seqs(undoing) if dry_run else ()
        )
    if not wish.changes:
        return _without_history(store, wish, new, undoing, turns, later)
    new = new._replace(
        changed_files=len(changed_paths(wish.changes)), added_bytes=batch.added_bytes
    )
    intent, ref = _announce(store, batch, wish, new, undoing, plan, later=later)
    try:
        report = _apply(store, intent, plan)
    except HalfAppliedError:
        raise  # the intent stays: the next operation finishes it
    except BaseException:
        abandon(store, intent)
        raise
    back = restore_excluded.carry_out(store, turns, new.command_id)
    entry, said = complete(store, intent, back.detail())
    conflicts = dict(wish.conflicts)
    conflicts.update(
        {c.path: "was changed while this ran; left as it is" for c in report.conflicts}
    )
    kept = {one.path for one in report.kept_directories}
    changes = [change for change in wish.changes if change.path not in kept]
    done = wish._replace(changes=changes, conflicts=conflicts)
    notes = [*notes_of(report), *back.notes(), *said, *unprotected(store, undoing)]
    outcome = _outcome(entry, done, ref, notes, plan)._replace(undone=_seqs(undoing))
    return _with_excluded(outcome, back, later)


def _besides(store: HistoryStore, undoing: Sequence[Undoing], turns: Turns) -> tuple[str, ...]:
    """What a reversal does besides the changes of its plan, in words."""
    from_trash = {turn.path for turn in turns.todo if turn.item}  # they have their owner
    owned = [one for one in _owned(store, undoing) if one.path not in from_trash]
    return (*turns.describe(), *changed_owners.describe(owned))


def _owned(store: HistoryStore, undoing: Sequence[Undoing]) -> list[changed_owners.Owned]:
    """The owners to set when these entries are taken back."""
    found = sorted(undoing, key=lambda one: -one.seq)
    entries = [(store.ledger.by_seq(one.seq), one.paths) for one in found]
    return changed_owners.wanted((entry, paths) for entry, paths in entries if entry is not None)


def excluded_turns(
    store: HistoryStore, undoing: Sequence[Undoing], later: Later, changes: Iterable[Change]
) -> Turns:
    """What the undo of these entries does to excluded paths; `changes` are applied before."""
    entries = [(store.ledger.by_seq(one.seq), one.paths) for one in undoing]
    undone = [Undone(entry, paths) for entry, paths in entries if entry is not None]
    wanted = {change.path: change.new for change in changes}
    return restore_excluded.plan(store, undone, later, wanted)


def _without_history(
    store: HistoryStore,
    wish: Wish,
    new: NewEntry,
    undoing: Sequence[Undoing],
    turns: Turns,
    later: Later,
) -> Outcome:
    """No recorded path differs: excluded paths come back, or there is nothing to do.

    They are moved before the entry is written: after a kill in between, a second undo continues.
    """
    back = restore_excluded.carry_out(store, turns, new.command_id)
    given = changed_owners.give_back(store, _owned(store, undoing), set())
    new = new._replace(detail={**new.detail, **back.detail(), **given.detail()})
    is_something = back.is_anything or bool(given.done)
    entry = note_only(store, new, undoing, is_something=is_something)
    away = (*back.did.changed, *back.did.removed)
    ref = recovery_refs.pin_paths(store, new, away) if away else None
    notes = [*back.notes(), *given.notes, *unprotected(store, undoing)]
    outcome = _outcome(entry, wish, ref, notes, Plan(()))._replace(undone=_seqs(undoing))
    outcome = _with_excluded(outcome, back, later)
    owned = {one.path for one in given.done}
    return outcome._replace(restored=sorted({*outcome.restored, *owned}))


def _with_excluded(outcome: Outcome, back: Back, later: Later) -> Outcome:
    conflicts = {**outcome.conflicts, **(back.left if later is Later.EXACT else {})}
    restored = sorted({*outcome.restored, *back.restored})
    deleted = sorted({*outcome.deleted, *back.deleted} - {*restored})
    return outcome._replace(restored=restored, deleted=deleted, conflicts=conflicts)


def _made_with(store: HistoryStore, wish: Wish, undoing: Sequence[Undoing]) -> list[Op]:
    """Move excluded paths in directories that are removed to the trash; a redo restores them.

    They came with the directory (``mv pkg pkg2``) if nothing has written to them since.
    """
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
    *,
    later: Later,
) -> tuple[Intent, str]:
    """The first commit point: everything a crash would need to finish the change."""
    extension = Extension(store, batch, edited(batch, store.tip(), wish.changes), new)
    kept = recovery_refs.prepare(store, batch, new, wish.changes)
    intent = store.new_intent(
        APPLY,
        {
            "plan": plan.to_json(),
            "entry": new.to_json(),
            "commit": extension.commit.hex(),
            "attrs_commit": (extension.attrs_commit or b"").hex(),
            LATER: later.value,
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
        under=entry_of(intent).command_id, top=store.anchor.top,
    )  # fmt: skip


def abandon(store: HistoryStore, intent: Intent) -> None:
    """The change did not happen (apply put everything back): drop its announcement."""
    with store.commit_point() as ledger:
        ledger.drop_intent(intent.intent_id)
        new = entry_of(intent)
        recovery_refs.forget(ledger, new.command_id)


def complete(store: HistoryStore, intent: Intent, more: Detail) -> tuple[Entry, tuple[str, ...]]:
    """The second commit point: the change has happened, and owners are set.

    `more` goes into the entry's detail. Also returns notes for the user.
    """
    made = {op.path for op in plan_of(intent).ops if op.expect == ABSENT}
    given = changed_owners.give_back(store, _owned(store, undoing_of(intent)), made)
    new = entry_of(intent)
    new = new._replace(detail={**new.detail, **more, **given.detail()})
    payload = intent.payload
    with store.commit_point() as ledger:
        entry = ledger.add(new, bytes.fromhex(str(payload["commit"])))
        attrs_commit = bytes.fromhex(str(payload["attrs_commit"])) or None
        commit_chain.advance(ledger, bytes.fromhex(str(payload["commit"])), attrs_commit)
        _write_reversals(store, entry, undoing_of(intent))
        if new.session_id:
            sessions.touch(ledger, new.session_id, reopen=False)
        if TO_MOVE in new.detail:
            ledger.set_meta(TO_MOVE, new.command_id)
        ledger.drop_intent(intent.intent_id)
    files.remove_tree(store.scratch(intent.intent_id))
    return entry, given.notes


def note_only(
    store: HistoryStore, new: NewEntry, undoing: Sequence[Undoing], *, is_something: bool
) -> Entry:
    """The tree already has the wanted state: record that, so that the next undo goes further."""
    with store.commit_point() as ledger:
        entry = ledger.add(new, None)
        # A rollback that changes nothing does not take back an earlier rollback.
        if new.kind != "rollback" or is_something:
            _write_reversals(store, entry, undoing)
        if new.session_id:
            sessions.touch(ledger, new.session_id, reopen=False)
        if TO_MOVE in new.detail:
            ledger.set_meta(TO_MOVE, new.command_id)
    return entry


def _write_reversals(store: HistoryStore, entry: Entry, undoing: Sequence[Undoing]) -> None:
    for one in undoing:
        for path in one.paths or (b"",):
            store.ledger.add_reversal(one.seq, entry.seq, path)


def entry_of(intent: Intent) -> NewEntry:
    return NewEntry.from_json(str(intent.payload["entry"]))


def plan_of(intent: Intent) -> Plan:
    return Plan.from_json(str(intent.payload["plan"]))


def _check_conflicts(wish: Wish, new: NewEntry, turns: Turns) -> None:
    """Raise `ConflictError` if later work is in the way.

    Excluded paths count only if there is nothing else to do: a cache that every build changes
    must not stop the undo of a source file.
    """
    conflicts = dict(wish.conflicts)
    if not wish.changes and not turns.todo:
        conflicts.update(turns.left)
    if not conflicts:
        return
    names = tuple(display(path) for path in conflicts)
    lines = "".join(f"\n  {display(p)}: {why}" for p, why in conflicts.items())
    if all(map(restore_excluded.is_lost, conflicts.values())):
        raise RefusedError(
            f"{new.command}: nothing can be brought back; nothing was changed{lines}",
            hint="`substrate log` lists earlier commands, `substrate undo ID` takes one back",
        )
    counted = "1 path conflicts" if len(names) == 1 else f"{len(names)} paths conflict"
    raise ConflictError(
        f"{new.command}: {counted} with later work; nothing was changed{lines}",
        hint="choose with --take ours (keep what is there) or --take theirs (bring back the old)"
        + (", or leave these paths out with --skip-conflicts" if wish.changes else ""),
        paths=names,
        is_all=not wish.changes,
    )


def undoing_of(intent: Intent) -> list[Undoing]:
    undoing = intent.payload["undoing"]
    assert isinstance(undoing, list)
    return [Undoing(seq, tuple(RelPath(bytes.fromhex(p)) for p in ps)) for seq, ps in undoing]


def unprotected(store: HistoryStore, undoing: Sequence[Undoing]) -> list[str]:
    """Notes on what an undone command removed without a copy, and on an interrupted command
    whose record may include the work of others."""
    notes = []
    for one in undoing:
        entry = store.ledger.by_seq(one.seq)
        if entry and entry.detail.get("outcome") == "interrupted":
            notes.append(
                f"{entry.command_id} was interrupted: whatever was changed between its start and"
                f" {clock.iso(entry.ts_ns)}, by any process, counts as its work"
            )
        gone = entry.detail.get("excluded_gone") if entry else None
        if entry and isinstance(gone, list):
            names = ", ".join(map(str, gone))
            notes.append(
                f"cannot bring back what {entry.command_id} removed or replaced outside history:"
                f" {names} (excluded, and run without a world)"
            )
    return notes


def notes_of(report: Report, *, with_trash: bool = True) -> list[str]:
    """`with_trash`: name what was moved to the trash."""
    notes = [f"kept directory {display(path)}: {why}" for path, why in report.kept_directories]
    notes += [
        f"{display(path)} was a hard link; the link is now broken" for path in report.broken_links
    ]
    notes += [f"cannot bring back {display(path)}: {why}" for path, why in report.cannot_restore]
    if with_trash:
        notes += [f"moved to trash: {display(path)}" for path in report.trashed]
    return notes


def _outcome(
    entry: Entry | None, wish: Wish, ref: str | None, notes: list[str], plan: Plan
) -> Outcome:
    touched = [c for c in wish.changes if c.path not in wish.conflicts]
    shown = set(changed_paths(touched))
    as_it_was = shown.difference(wish.merged)
    kept = [f"kept directory {display(p)}: it holds other files" for p in wish.kept_directories]
    return Outcome(
        entry,
        restored=[c.path for c in touched if c.new != ABSENT and c.path in as_it_was],
        deleted=[c.path for c in touched if c.new == ABSENT and c.path in shown],
        merged=wish.merged,
        conflicts=wish.conflicts,
        kept=wish.kept,
        recovery_ref=ref,
        notes=kept + notes,
        plan=plan,
    )
