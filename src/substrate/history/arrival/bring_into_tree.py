"""Bring a command's change out of its world: announce it, apply it, then advance the branch.

    layer ─► wish, merged with what others did since ─► look at the tree
          ─► outside edits found there? record them first, and start again from the top
          ─► [commit point: pending commit, intent] ─► apply
          ─► [commit point: branch advances, entry written, intent dropped]

All of it happens inside the lock, so that the branch cannot move under the pending commit. After
a crash between the two commit points, `settle` finishes the change from the plan in the intent
and from the layer, which is only removed after the second commit point.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from substrate.errors import HalfAppliedError, RefusedError, SubstrateError
from substrate.history import changed_owners
from substrate.history.arrival import arrival_journal as journal
from substrate.history.arrival import external_edits, user_git_backup
from substrate.history.arrival.apply_times import give_touches
from substrate.history.arrival.arrival_plan import (
    GIT_CREATED,
    IN_GIT,
    Arrival,
    arrival,
    created_in_git,
    paths_in_git,
)
from substrate.history.arrival.held_world_rows import Rest, rest_payload
from substrate.history.record import Result, Running, count_files, edited, excluded_paths, sessions
from substrate.history.record import late_entry as late
from substrate.history.reversal import Choice, Step, Wish, notes_of, recovery_refs, reversal_for
from substrate.history.store import (
    Detail,
    Entry,
    Extension,
    HistoryStore,
    Intent,
    NewEntry,
    write_commit,
)
from substrate.model import ABSENT, Change, Kind, Node, RelPath, ancestors, display
from substrate.objects.snapshots import Snapshot
from substrate.objects.snapshots import snapshot as snapshots
from substrate.objects.store import Batch
from substrate.system import clock
from substrate.workspace.apply import (
    Applier,
    How,
    LayerDiff,
    LayerSource,
    Op,
    Report,
    Staged,
    State,
    Times,
    Trash,
)
from substrate.workspace.paths import Directory, holds_newer, still_so

#: How often the tree may change while we look at it before the world is held instead.
_MOST_TRIES = 5
_MOST_NAMED = 20


class Arriving(NamedTuple):
    """The change to bring in, and the layer that holds it."""

    running: Running
    result: Result
    diff: LayerDiff
    upper: Path
    #: Nothing runs in the world any more: its files may be moved, not only copied.
    may_rename: bool = True
    #: Held from before the announcement until the tree is changed. Entering it may refuse the
    #: change; leaving it must not fail.
    guard: Callable[[], AbstractContextManager[None]] = nullcontext
    #: What stays in the world, if only a part of it arrives.
    rest: Rest | None = None


class Arrived(NamedTuple):
    entry: Entry
    #: What the command itself changed, among the paths that history records.
    changes: list[Change]
    merged: list[RelPath]
    #: Paths that keep another process's version, with the reason.
    conflicts: dict[RelPath, str]
    #: Where the command's own version of those paths is kept.
    recovery_ref: str | None
    notes: list[str]
    #: The state that the command made, without what others did.
    world: Snapshot
    #: Something stayed behind in the layer: do not remove it.
    is_left_over: bool = False


class _Ready(NamedTuple):
    """A plan that was checked against the tree: nothing is in its way."""

    #: What the command started from, with the outside edits that it saw.
    base: Snapshot
    changes: list[Change]
    wish: Wish
    world: Snapshot
    arrival: Arrival
    staged: Staged
    #: Excluded paths that stay, because another process has worked in them since.
    kept: list[RelPath]
    #: Other users' files that the command replaced and that history could not read.
    shut: list[RelPath]


def arrive(store: HistoryStore, batch: Batch, arriving: Arriving) -> Arrived:
    """Bring a world's change into the tree and into history. Inside the lock."""
    tried = _attempt(store, batch, arriving, None, is_last=False)
    for left in reversed(range(1, _MOST_TRIES)):
        if isinstance(tried, Arrived):
            break
        tried = _attempt(store, batch, arriving, tried, is_last=left == 1)
    assert isinstance(tried, Arrived), "the last attempt reports its conflicts"
    return tried


def _attempt(
    store: HistoryStore, batch: Batch, arriving: Arriving, earlier: _Ready | None, *, is_last: bool
) -> Arrived | _Ready:
    """The plan, if other processes changed its paths after the look and nothing was applied: the
    next attempt merges with their change, as it would have if it had seen it."""
    with LayerSource(arriving.upper, copy_only=not arriving.may_rename) as source:
        ready = _decide(store, batch, arriving, source, earlier)
        new = _entry(store, arriving, ready, batch)
        if not ready.arrival.plan.ops:
            return _only_noted(store, batch, arriving, ready, new)
        overtaken = _overtaken(store, arriving, ready)
        # Take the guard before writing the intent: a kill while waiting leaves nothing to finish.
        with arriving.guard():
            intent, announced, ref = _announce(store, batch, arriving, ready, new)
            try:
                report = _apply(store, intent, ready, source)
            except HalfAppliedError:
                raise  # the intent stays: the next call finishes it
            except BaseException:
                with _or_the_next_call("nothing is changed yet"):
                    journal.abandon(store, intent)
                raise
            if report.changed_nothing and report.conflicts and not is_last:
                with _or_the_next_call("nothing is changed yet"):
                    journal.abandon(store, intent)
                return ready
    touches = journal.touches_of(ready.arrival, report)
    give_touches(store.anchor.top, touches, arriving.running.started_ns)
    # A path that another process changed at that very moment stays; the layer keeps our version.
    with _or_the_next_call("the change is made"):
        entry = journal.complete(store, intent, announced, is_all=not report.conflicts)
        if report.conflicts:
            told = arriving.result._replace(detail=entry.detail).with_outcome("conflict").detail
            with store.commit_point() as ledger:
                entry = ledger.add_detail(entry, **told)
    in_use = _in_use(ready, report)
    if (overtaken or in_use or ready.shut) and ref is None:
        recovery_refs.pin_paths(store, new, (*overtaken, *in_use, *ready.shut))
    arrived = _arrived(entry, ready, ref, report)
    notes = [
        *_notes_of_trash(entry, "changed by others while the command ran", overtaken),
        *_notes_of_trash(entry, "another user's, not readable for history", ready.shut),
        *_notes_of_trash(entry, "others were still writing when it was taken away", in_use),
    ]
    return arrived._replace(notes=[*arrived.notes, *notes])


@contextmanager
def _or_the_next_call(state: str) -> Iterator[None]:
    """If an announced change cannot be completed, leave it to the next call (`HalfAppliedError`).

    The caller must not hold the world as well, as if nothing had been announced.
    """
    try:
        yield
    except (SubstrateError, OSError) as error:
        reason = error.message if isinstance(error, SubstrateError) else str(error)
        raise HalfAppliedError(
            f"{state}, but that could not be written down: {reason}",
            hint="the next command finishes it",
        ) from error


# ------------------------------------------------------------------------------ deciding


def _decide(
    store: HistoryStore,
    batch: Batch,
    arriving: Arriving,
    source: LayerSource,
    earlier: _Ready | None = None,
) -> _Ready:
    stood = still_so(store.root, arriving.diff.stood)
    # An earlier attempt has recorded edits that the command saw: they belong to its base.
    base = earlier.base if earlier else store.snapshot_of(arriving.running.base_commit)
    changes = earlier.changes if earlier else arriving.diff.changes()
    with Directory.open_root(store.dir) as own:
        may_rename = source.is_beside(own)
    shut: dict[RelPath, Node] = {}
    for _ in range(_MOST_TRIES):
        below = external_edits.look_below_emptied(store, batch, arriving.diff.emptied)
        touched = [] if below.changes else _put_back(arriving.diff)
        odd = external_edits.not_as_known(store, batch, touched, stood)
        found = below.changes or external_edits.look_again(store, batch, odd)
        if not found:
            world = edited(batch, base, changes)
            wish = _wish(store, batch, base, world, changes)
            to_trash, kept = _removable(store, below.to_trash, wish, arriving.running.started_ns)
            try:
                coming = arrival(
                    arriving.diff, wish.changes, to_trash, wish.conflicts, may_rename=may_rename,
                    shut=shut,
                )  # fmt: skip
            except ValueError:
                # The layer has a path below a directory that history does not know: an outside
                # edit, such as a repository cloned after the last command.
                found = external_edits.compared(store, batch, batch, _unknown_directories(wish))
            else:
                staged = _applier(store, arriving.running, source).look(coming.plan, stood)
                clashing = [c.path for c in staged.conflicts]
                suspects = {**_done_by_others(staged), **dict.fromkeys(clashing, True)}
                found = external_edits.compared(store, batch, batch, suspects)
                if not clashing and not found:
                    return _Ready(base, changes, wish, world, coming, staged, kept, sorted(shut))
                replaced = _shut_before(store, staged, arriving.running.started_ns)
                if not found and replaced.keys() - shut.keys():
                    shut.update(replaced)
                    continue
        if not found:
            break  # something is in the way that history cannot record
        stood = {}  # what was seen before these edits is stale
        external_edits.record_met(store, batch, found)
        seen = external_edits.seen_by_command(store, found, arriving.running.started_ns)
        base = edited(batch, base, seen)
        changes = _against(arriving.diff, base, batch, changes, seen)
    raise RefusedError(
        "the workspace keeps changing where the command worked: its change was not applied",
        hint="`substrate world list` shows where it is kept; `substrate world apply` tries again",
    )


def _shut_before(store: HistoryStore, staged: Staged, started_ns: int) -> dict[RelPath, Node]:
    """Other users' files that history could not read, and that the command saw and replaced.

    Replacing one needs no permission for the file: it goes to the trash as a whole."""
    return {
        one.path: one.found
        for one in staged.conflicts
        if one.found.kind is Kind.FILE and not one.found.oid and one.expected == ABSENT
        and not holds_newer(_in_tree(store, one.path), started_ns)
    }  # fmt: skip


def _unknown_directories(wish: Wish) -> dict[RelPath, bool]:
    """The highest directories that the plan would make."""
    made = {c.path for c in wish.changes if c.new.kind is Kind.DIRECTORY and c.old == ABSENT}
    return {path: True for path in sorted(made) if made.isdisjoint(ancestors(path))}


def _done_by_others(staged: Staged) -> dict[RelPath, bool]:
    """Paths that already have the wanted state: another process's work, even if the command did
    the same. False for a directory that stays one: only its own mode and attributes count."""
    return {
        one.path: not one.op.expect.kind is one.op.become.kind is Kind.DIRECTORY
        for one in staged.items
        if one.state is State.ALREADY
    }


def _wish(
    store: HistoryStore, batch: Batch, base: Snapshot, world: Snapshot, changes: list[Change]
) -> Wish:
    tip = store.tip()
    if tip == base:
        return Wish(changes, [], {}, [])
    bringing = reversal_for(store, batch, Choice())
    bringing.take_back(Step(before=world, after=base))
    wish = bringing.wish()
    gone = [p for p in wish.conflicts if snapshots.lookup(batch, tip, p) == ABSENT]
    wish.conflicts.update(dict.fromkeys(gone, "was removed or moved away while the command ran"))
    return wish


def foresee(store: HistoryStore, batch: Batch, arriving: Arriving) -> Wish:
    """What `arrive` would do now. Outside edits found on the way are recorded, as always."""
    with LayerSource(arriving.upper, copy_only=not arriving.may_rename) as source:
        return _decide(store, batch, arriving, source).wish


def _removable(
    store: HistoryStore, to_trash: Iterable[Op], wish: Wish, started_ns: int
) -> tuple[list[Op], list[RelPath]]:
    """What may be removed with its directory, and what stays: it was changed since the start."""
    stays = set(wish.kept_directories)
    ops = [op for op in to_trash if op.path.rpartition(b"/")[0] not in stays]
    kept = {op.path for op in ops if holds_newer(_in_tree(store, op.path), started_ns)}
    return [op for op in ops if op.path not in kept], sorted(kept)


def _overtaken(store: HistoryStore, arriving: Arriving, ready: _Ready) -> list[RelPath]:
    """Excluded paths that the command replaced or removed and another process changed since."""
    beyond = {one.path for one in arriving.diff.entries if one.beyond}
    return [
        op.path
        for op in ready.arrival.plan.ops
        if op.path in beyond and b".git" not in op.path.split(b"/")
        and (op.become.kind is not Kind.DIRECTORY or op.how is How.FROM_LAYER)
        and holds_newer(_in_tree(store, op.path), arriving.running.started_ns)
    ]  # fmt: skip


def _in_tree(store: HistoryStore, path: RelPath) -> Path:
    return store.root / os.fsdecode(path)


def _put_back(diff: LayerDiff) -> list[RelPath]:
    """Files in the layer that equal history's base: the command only touched them, or put them
    back over an unrecorded edit (`git stash`, `git checkout FILE`). Only the tree shows which."""
    return [
        one.path
        for one in diff.entries
        if one.is_there and not one.beyond and one.new == one.old
        and one.new.kind not in (Kind.DIRECTORY, Kind.ABSENT)
    ]  # fmt: skip


def _against(
    diff: LayerDiff, base: Snapshot, batch: Batch, changes: list[Change], seen: list[Change]
) -> list[Change]:
    """`changes`, against the new base: the command also removed what was in emptied directories,
    and what the layer holds is what the command made of an edit that it saw."""
    mentioned = {one.path: one for one in diff.entries}
    known = snapshots.Lookup(batch, base)
    out = {c.path: c._replace(old=known.node(c.path)) for c in changes}
    for change in seen:
        one = mentioned.get(change.path)
        if one is not None:
            if one.is_there and not one.beyond and change.path not in out:
                out[change.path] = Change(change.path, change.new, one.new)
            continue
        gone_with = any(_is_in(change.path, emptied) for emptied in diff.emptied)
        if gone_with and change.new != ABSENT:
            out[change.path] = Change(change.path, change.new, ABSENT)
    return [out[path] for path in sorted(out) if out[path].old != out[path].new]


def _is_in(path: RelPath, scope: RelPath) -> bool:
    return path == scope or path.startswith(scope + b"/")


def _entry(store: HistoryStore, arriving: Arriving, ready: _Ready, batch: Batch) -> NewEntry:
    running, result = arriving.running, arriving.result
    if ready.wish.conflicts or ready.kept:
        result = result.with_outcome("conflict")
    detail = store.kept_detail({**running.about, **result.detail}, running.command)
    if ready.wish.conflicts:
        detail["conflicts"] = {display(p): why for p, why in ready.wish.conflicts.items()}
    if ready.wish.merged:
        detail["merged"] = [display(path) for path in ready.wish.merged]
    recorded = {change.path: change.new for change in ready.wish.changes}
    detail.update(excluded_paths.of_plan(ready.staged.items, recorded).to_detail())
    detail.update(changed_owners.to_detail(changed_owners.of_arrival(store, arriving.diff)))
    in_git = paths_in_git(ready.arrival.plan)
    if in_git:
        detail[IN_GIT] = in_git
        created = created_in_git(ready.arrival.plan)
        detail.update({GIT_CREATED: excluded_paths.packed(created)} if created else {})
    new = NewEntry(
        running.command_id, "command", clock.now_ns(), running.command,
        session_id=running.session_id, agent_id=running.agent_id, span_id=running.span_id,
        exit=result.exit, duration_ms=result.duration_ms, detail=detail,
        changed_files=count_files(ready.wish.changes), added_bytes=batch.added_bytes,
    )  # fmt: skip
    return late.named(store.ledger, new)


# ------------------------------------------------------------------------------ doing


def _announce(
    store: HistoryStore, batch: Batch, arriving: Arriving, ready: _Ready, new: NewEntry
) -> tuple[Intent, journal.Announced, str | None]:
    """The first commit point: everything a crash would need to finish the change."""
    extension = None
    if ready.wish.changes:
        # No other changes since: the state that the command made is the new state.
        is_alone = ready.wish.changes is ready.changes
        snapshot = ready.world if is_alone else edited(batch, store.tip(), ready.wish.changes)
        extension = Extension(store, batch, snapshot, new)
    kept = _keep_own_version(batch, ready, new)
    announced = journal.Announced(
        ready.arrival, new, extension.commit if extension else None,
        extension.attrs_commit if extension else None, arriving.upper,
        arriving.running.world_id, arriving.may_rename, arriving.running.started_ns,
        arriving.running.intent_id, user_git_backup.look(store.root, ready.arrival.plan),
        _rest(store, batch, arriving, ready),
    )  # fmt: skip
    intent = store.new_intent(journal.ARRIVE, journal.to_payload(announced))
    with store.commit_point(batch) as ledger:
        if kept is not None:
            kept.take_up(ledger)
        ledger.add_intent(intent)
    return intent, announced, kept.ref if kept is not None else None


def _rest(
    store: HistoryStore, batch: Batch, arriving: Arriving, ready: _Ready
) -> tuple[str, Detail] | None:
    """What stays in the world: its base becomes the state in which this part has arrived.

    A path in conflict stays in the world, too.
    """
    rest = arriving.rest
    if rest is None:
        return None
    stays = {*ready.wish.conflicts, *ready.kept}
    base = store.snapshot_of(arriving.running.base_commit)
    after = edited(batch, base, [c for c in ready.changes if c.path not in stays])
    world = rest.world
    new = NewEntry(world.command_id, "command", clock.now_ns(), world.command)
    commit = write_commit(batch, after, None, new, f"rest of {world.world_id}")
    beyond = [one.path for one in arriving.diff.entries if one.beyond and one.path not in stays]
    return rest.kind, rest_payload(rest, commit, beyond)


def _keep_own_version(batch: Batch, ready: _Ready, new: NewEntry) -> recovery_refs.Recovery | None:
    """Where another process's edit wins a conflict, keep the command's version under a ref."""
    if not ready.wish.conflicts:
        return None
    return recovery_refs.pin(batch, ready.world, new, "conflict", tuple(ready.wish.conflicts))


def _apply(store: HistoryStore, intent: Intent, ready: _Ready, source: LayerSource) -> Report:
    for path, mode in ready.arrival.marks:
        source.clean(path, mode)
    applier = journal.applier_for(store, intent, source)
    applier.fill(ready.staged)
    times = {one.path: Times(one.times, one.owner) for one in ready.arrival.touches if not one.only}
    return applier.carry_out(ready.staged, times)


def _applier(store: HistoryStore, running: Running, source: LayerSource) -> Applier:
    """An applier for looking only: its scratch directory is temporary."""
    return Applier(
        store.root, store.scratch(f"look-{running.command_id}"), store.objects,
        Trash(store.trash_dir), exclusions=store.exclusions, under=running.command_id,
        layer=source, top=store.anchor.top,
    )  # fmt: skip


def _only_noted(
    store: HistoryStore, batch: Batch, arriving: Arriving, ready: _Ready, new: NewEntry
) -> Arrived:
    """The tree needs no change: the command only set times, or every path is in conflict."""
    give_touches(store.anchor.top, ready.arrival.touches, arriving.running.started_ns)
    kept = _keep_own_version(batch, ready, new)
    rest = _rest(store, batch, arriving, ready)
    if rest is None:
        journal.mark_decided(arriving.upper.parent)
    with store.commit_point(batch if kept or rest else None) as ledger:
        if kept is not None:
            kept.take_up(ledger)
        entry = late.add(ledger, new, None)
        if arriving.running.intent_id:
            ledger.drop_intent(arriving.running.intent_id)
        journal.add_rest(store, ledger, rest)
        if new.session_id:
            sessions.touch(ledger, new.session_id)
    return _arrived(entry, ready, kept.ref if kept else None, None)


def _arrived(entry: Entry, ready: _Ready, ref: str | None, report: Report | None) -> Arrived:
    conflicts = dict(ready.wish.conflicts)
    conflicts.update(dict.fromkeys(ready.kept, "was changed while the command ran"))
    notes = [f"kept directory {display(p)}: it holds other files" for p in
             ready.wish.kept_directories]  # fmt: skip
    left_over = False
    if report is not None:
        late = {c.path: "was changed in that moment; left as it is" for c in report.conflicts}
        conflicts.update(late)
        left_over = bool(late)
        notes += notes_of(report, with_trash=False)
    return Arrived(
        entry, ready.changes, ready.wish.merged, conflicts, ref, notes, ready.world, left_over
    )


def _in_use(ready: _Ready, report: Report) -> list[RelPath]:
    """Paths kept in the trash although history has their expected content: another process had
    the file open for writing, or wrote to it at that very moment. A write through a memory
    mapping changes no time of the file."""
    known = {op.path for op in ready.arrival.plan.ops if op.expect.oid}
    kept = {one.path for one in report.trash_entries if not one.why.is_outside_history}
    return sorted(known & kept)


def _notes_of_trash(entry: Entry, why: str, paths: list[RelPath]) -> list[str]:
    if not paths:
        return []
    names = ", ".join(display(path) for path in paths[:_MOST_NAMED])
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    said = f"{why}, and now in the trash: {names}{more}"
    return [said + f" (`substrate recover restore {entry.command_id}` brings them back)"]
