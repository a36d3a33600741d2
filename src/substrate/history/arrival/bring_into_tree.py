"""A command's change comes out of its world: recorded first, then applied, then on the line.

    layer ─► wish, merged with what others did meanwhile ─► look at the tree
          ─► outside edits met there? recorded first, and once more from the top
          ─► [commit point: pending commit, intent] ─► apply
          ─► [commit point: branch advances, entry written, intent dropped]

All of it inside the lock, so that the line cannot move under the pending commit. A crash
between the two commit points is finished by `settle`, from the plan in the intent and from the
layer, which is only removed after the second one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from substrate.errors import HalfAppliedError, RefusedError, SubstrateError
from substrate.history import arrival_journal as journal
from substrate.history import met, overwritten, recovery, sessions
from substrate.history.arrival_plan import Arrival, arrival
from substrate.history.from_trash import way_back
from substrate.history.ledger import Detail, Entry, Intent, NewEntry
from substrate.history.line import Extension
from substrate.history.observe import count_files, edited
from substrate.history.record import Result, Running
from substrate.history.restore import notes_of
from substrate.history.reversal import Step, Wish
from substrate.history.store import HistoryStore
from substrate.history.touch import give_touches
from substrate.history.undo import Choice, reversal_for
from substrate.model.nodes import ABSENT, Change, Kind
from substrate.model.paths import RelPath, display
from substrate.objects import snapshot as snapshots
from substrate.objects.batch import Batch
from substrate.objects.snapshot import Snapshot
from substrate.system import clock
from substrate.workspace.apply import Applier, Report, Staged
from substrate.workspace.dirwalk import Directory
from substrate.workspace.layer import LayerDiff, LayerSource
from substrate.workspace.newer import holds_newer
from substrate.workspace.plan import How, Op, Times
from substrate.workspace.site import EXCLUDED, State
from substrate.workspace.still_so import still_so
from substrate.workspace.trash import Trash

#: How often the tree may change under our eyes before the world is held instead.
_MOST_TRIES = 5
_MOST_NAMED = 20


class Arriving(NamedTuple):
    """What comes, and from where."""

    running: Running
    result: Result
    diff: LayerDiff
    upper: Path
    #: Nothing runs in the world any more: its files may be taken, not only copied.
    may_rename: bool = True
    #: Held from before it is announced until the tree is changed; may refuse it, and must not fail
    #: at its end.
    guard: Callable[[], AbstractContextManager[None]] = nullcontext


class Arrived(NamedTuple):
    entry: Entry
    #: What the command itself changed, of what history keeps.
    changes: list[Change]
    merged: list[RelPath]
    #: Paths left as somebody else made them, with the reason.
    conflicts: dict[RelPath, str]
    #: Where the command's own version of those is kept.
    recovery_ref: str | None
    notes: list[str]
    #: The state that the command made, without what others did.
    world: Snapshot
    #: Something stayed behind in the layer: do not remove it.
    is_left_over: bool = False


class _Ready(NamedTuple):
    """Decided, looked at, and nothing in the way."""

    changes: list[Change]
    wish: Wish
    world: Snapshot
    arrival: Arrival
    staged: Staged
    #: Left out of history, and stays because somebody works there.
    kept: list[RelPath]


def arrive(store: HistoryStore, batch: Batch, arriving: Arriving) -> Arrived:
    """Bring a world's change into the tree and into history. Inside the lock."""
    with LayerSource(arriving.upper, copy_only=not arriving.may_rename) as source:
        ready = _decide(store, batch, arriving, source)
        new = _entry(arriving, ready, batch)
        if not ready.arrival.plan.ops:
            return _only_noted(store, batch, arriving, ready, new)
        overtaken = _overtaken(store, arriving, ready)
        # Before it is announced: who is killed while he waits here has not promised anything.
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
    touches = journal.touches_of(ready.arrival, report)
    give_touches(store.root, touches, arriving.running.started_ns)
    # What somebody changed in that very moment stays his; the layer then keeps ours.
    with _or_the_next_call("the change is made"):
        entry = journal.complete(store, intent, announced, is_all=not report.conflicts)
    in_use = _in_use(ready, report)
    if (overtaken or in_use) and ref is None:
        way_back(store, new, [*overtaken, *in_use])
    arrived = _arrived(entry, ready, ref, report)
    notes = [
        *_notes_of_trash(entry, "changed by others while the command ran", overtaken),
        *_notes_of_trash(entry, "others were still writing when it was taken away", in_use),
    ]
    return arrived._replace(notes=[*arrived.notes, *notes])


@contextmanager
def _or_the_next_call(state: str) -> Iterator[None]:
    """What was announced and cannot be closed is finished by the next call: it must not be held
    as well, as if nothing had been announced."""
    try:
        yield
    except (SubstrateError, OSError) as error:
        reason = error.message if isinstance(error, SubstrateError) else str(error)
        raise HalfAppliedError(
            f"{state}, but that could not be written down: {reason}",
            hint="the next command finishes it",
        ) from error


# ------------------------------------------------------------------------------ deciding


def _decide(store: HistoryStore, batch: Batch, arriving: Arriving, source: LayerSource) -> _Ready:
    stood = still_so(store.root, arriving.diff.stood)
    base = store.snapshot_of(arriving.running.base_commit)
    changes = arriving.diff.changes()
    with Directory.open_root(store.dir) as own:
        may_rename = source.is_beside(own)
    for _ in range(_MOST_TRIES):
        below = met.look_below_emptied(store, batch, arriving.diff.emptied)
        touched = [] if below.changes else _put_back(arriving.diff)
        odd = met.not_as_known(store, batch, touched, stood)
        found = below.changes or met.look_again(store, batch, odd)
        if not found:
            world = edited(batch, base, changes)
            wish = _wish(store, batch, base, world, changes)
            to_trash, kept = _removable(store, below.to_trash, wish, arriving.running.started_ns)
            try:
                coming = arrival(
                    arriving.diff, wish.changes, to_trash, wish.conflicts, may_rename=may_rename
                )
            except ValueError:
                # What stood below when the layer was read cannot be below what stands there now.
                break
            staged = _applier(store, arriving.running, source).look(coming.plan, stood)
            clashing = [c.path for c in staged.conflicts]
            suspects = {**_done_by_others(staged), **dict.fromkeys(clashing, True)}
            found = met.compared(store, batch, batch, suspects)
            if not clashing and not found:
                return _Ready(changes, wish, world, coming, staged, kept)
        if not found:
            break  # in the way, and nothing that history could take note of
        stood = {}  # it was seen before that
        met.record_met(store, batch, found)
        seen = met.seen_by_command(store, found, arriving.running.started_ns)
        base = edited(batch, base, seen)
        changes = _against(arriving.diff, base, batch, changes, seen)
    raise RefusedError(
        "the workspace keeps changing where the command worked: its change was not applied",
        hint="`substrate world list` shows where it is kept; `substrate world apply` tries again",
    )


def _done_by_others(staged: Staged) -> dict[RelPath, bool]:
    """What stands there already is somebody else's work, even if the command did the same; of a
    directory that was and is one, that is its own mode and attributes (False)."""
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
    """What `arrive` would do now. Outside edits that are met are recorded, as they always are."""
    with LayerSource(arriving.upper, copy_only=not arriving.may_rename) as source:
        return _decide(store, batch, arriving, source).wish


def _removable(
    store: HistoryStore, to_trash: Iterable[Op], wish: Wish, started_ns: int
) -> tuple[list[Op], list[RelPath]]:
    """What may go with its directory, and what must not: somebody has worked in it since."""
    stays = set(wish.kept_directories)
    ops = [op for op in to_trash if op.path.rpartition(b"/")[0] not in stays]
    kept = [op.path for op in ops if holds_newer(_in_tree(store, op.path), started_ns)]
    return [op for op in ops if op.path not in kept], kept


def _overtaken(store: HistoryStore, arriving: Arriving, ready: _Ready) -> list[RelPath]:
    """Left out of history, replaced or removed by the command, and changed by somebody since."""
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
    """Files that lie in the layer as history's base has them: touched only, or put back over an
    edit that nobody recorded (`git stash`, `git checkout FILE`). The tree alone can tell."""
    return [
        one.path
        for one in diff.entries
        if one.is_there and not one.beyond and one.new == one.old
        and one.new.kind not in (Kind.DIRECTORY, Kind.ABSENT)
    ]  # fmt: skip


def _against(
    diff: LayerDiff, base: Snapshot, batch: Batch, changes: list[Change], seen: list[Change]
) -> list[Change]:
    """`changes`, against the new base: what stood in emptied directories was removed, too, and
    what the layer holds is what the command made of an edit that it saw."""
    mentioned = {one.path: one for one in diff.entries}
    out = {c.path: c._replace(old=snapshots.lookup(batch, base, c.path)) for c in changes}
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


def _entry(arriving: Arriving, ready: _Ready, batch: Batch) -> NewEntry:
    running, result = arriving.running, arriving.result
    detail: Detail = dict(result.detail)
    if ready.wish.conflicts:
        detail["conflicts"] = {display(p): why for p, why in ready.wish.conflicts.items()}
    if ready.wish.merged:
        detail["merged"] = [display(path) for path in ready.wish.merged]
    return NewEntry(
        running.command_id, "command", clock.now_ns(), running.command,
        session_id=running.session_id, agent_id=running.agent_id, span_id=running.span_id,
        exit=result.exit, duration_ms=result.duration_ms, detail=detail,
        changed_files=count_files(ready.wish.changes), added_bytes=batch.added_bytes,
    )  # fmt: skip


# ------------------------------------------------------------------------------ doing


def _announce(
    store: HistoryStore, batch: Batch, arriving: Arriving, ready: _Ready, new: NewEntry
) -> tuple[Intent, journal.Announced, str | None]:
    """The first commit point: everything a crash would need to finish the change."""
    extension = None
    if ready.wish.changes:
        # Nobody else has done anything: the state that the command made is the state to be.
        is_alone = ready.wish.changes is ready.changes
        snapshot = ready.world if is_alone else edited(batch, store.tip(), ready.wish.changes)
        extension = Extension(store, batch, snapshot, new)
    kept = _keep_own_version(batch, ready, new)
    announced = journal.Announced(
        ready.arrival, new, extension.commit if extension else None,
        extension.attrs_commit if extension else None, arriving.upper,
        arriving.running.world_id, arriving.may_rename, arriving.running.started_ns,
        arriving.running.intent_id, overwritten.look(store.root, ready.arrival.plan),
    )  # fmt: skip
    intent = store.new_intent(journal.ARRIVE, journal.to_payload(announced))
    with store.commit_point(batch) as ledger:
        if kept is not None:
            kept.take_up(ledger)
        ledger.add_intent(intent)
    return intent, announced, kept.ref if kept is not None else None


def _keep_own_version(batch: Batch, ready: _Ready, new: NewEntry) -> recovery.Recovery | None:
    """Where a path is left to somebody else's edit, the command's version is not dropped."""
    if not ready.wish.conflicts:
        return None
    return recovery.pin(batch, ready.world, new, "conflict", tuple(ready.wish.conflicts))


def _apply(store: HistoryStore, intent: Intent, ready: _Ready, source: LayerSource) -> Report:
    for path, mode in ready.arrival.marks:
        source.clean(path, mode)
    applier = journal.applier_for(store, intent, source)
    applier.fill(ready.staged)
    times = {one.path: Times(one.times, one.owner) for one in ready.arrival.touches if not one.only}
    return applier.carry_out(ready.staged, times)


def _applier(store: HistoryStore, running: Running, source: LayerSource) -> Applier:
    """To look only: its scratch directory goes again."""
    return Applier(
        store.root, store.scratch(f"look-{running.command_id}"), store.objects,
        Trash(store.trash_dir), exclusions=store.exclusions, under=running.command_id,
        layer=source,
    )  # fmt: skip


def _only_noted(
    store: HistoryStore, batch: Batch, arriving: Arriving, ready: _Ready, new: NewEntry
) -> Arrived:
    """Nothing to change in the tree: times at most, or conflicts alone."""
    give_touches(store.root, ready.arrival.touches, arriving.running.started_ns)
    kept = _keep_own_version(batch, ready, new)
    journal.mark_decided(arriving.upper.parent)
    with store.commit_point(batch if kept else None) as ledger:
        if kept is not None:
            kept.take_up(ledger)
        entry = ledger.add(new, None)
        if arriving.running.intent_id:
            ledger.drop_intent(arriving.running.intent_id)
        if new.session_id:
            sessions.touch(ledger, new.session_id)
    return _arrived(entry, ready, kept.ref if kept else None, None)


def _arrived(entry: Entry, ready: _Ready, ref: str | None, report: Report | None) -> Arrived:
    conflicts = dict(ready.wish.conflicts)
    notes = [f"kept directory {display(p)}: it holds other files" for p in
             ready.wish.kept_directories]  # fmt: skip
    notes += [f"kept {display(p)}: it was changed while the command ran" for p in ready.kept]
    left_over = False
    if report is not None:
        late = {c.path: "was changed in that moment; left as it is" for c in report.conflicts}
        conflicts.update(late)
        left_over = bool(late)
        notes += [note for note in notes_of(report) if not note.startswith("moved to trash")]
    return Arrived(
        entry, ready.changes, ready.wish.merged, conflicts, ref, notes, ready.world, left_over
    )


def _in_use(ready: _Ready, report: Report) -> list[RelPath]:
    """Kept although history has what was expected there: somebody has it open for writing, or wrote
    to it in that very moment. What is written through a mapping shows in no time of the file."""
    known = {op.path for op in ready.arrival.plan.ops if op.expect.oid}
    kept = {one.path for one in report.trash_entries if not one.reason.startswith(EXCLUDED)}
    return sorted(known & kept)


def _notes_of_trash(entry: Entry, why: str, paths: list[RelPath]) -> list[str]:
    if not paths:
        return []
    names = ", ".join(display(path) for path in paths[:_MOST_NAMED])
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    said = f"{why}, and now in the trash: {names}{more}"
    return [said + f" (`substrate recover restore {entry.command_id}` brings them back)"]
