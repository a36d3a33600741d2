"""The change in a world's layer, on its way into history and the tree; or held in the world.

`bring_in` in `command/pipeline.py` calls the stages of an `Arrival` in their order. A change
that needs the user's decision is held.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from substrate.errors import (
    DamagedStoreError,
    HalfAppliedError,
    LockedError,
    NotFoundError,
    RefusedError,
    SubstrateError,
    WorkspaceError,
)
from substrate.history.arrival import (
    Arrived,
    Arriving,
    Held,
    Rest,
    arrive,
    foresee,
    mark_decided,
)
from substrate.history.arrival import held_world_rows as held
from substrate.history.record import (
    ARRIVED,
    Excluded,
    InWorld,
    Result,
    Running,
    of_detail,
    record_entry,
    sessions,
)
from substrate.history.store import Entry, HistoryStore
from substrate.model import (
    Change,
    Hold,
    HoldCause,
    RelPath,
    display,
    hold_words,
    is_of_both_sides,
)
from substrate.objects.store import Batch
from substrate.recorder.arrival import already_arrived, world_parts
from substrate.recorder.arrival.code_paths import code_paths
from substrate.recorder.arrival.hold_reasons import collisions as find_collisions
from substrate.recorder.arrival.world_parts import Selection
from substrate.recorder.command import APPLY_FAILED, HELD, outside_edits, own_version
from substrate.recorder.session_context import Place
from substrate.recorder.user_git import GitArrival, GitState, GitWatch, UserGit
from substrate.system import Question, clock, ids
from substrate.system.process import uncollected
from substrate.workspace import IGNORE_NAME, Exclusions
from substrate.workspace.apply import LayerDiff
from substrate.world import Layer
from substrate.world.layer import Base, layer_dirs, read_layer, says_nothing

_SHOWN = 20


class Brought(NamedTuple):
    """The outcome of bringing in one world's change."""

    entry: Entry
    #: What the command changed, among the paths that history records.
    changes: list[Change]
    diff: LayerDiff = LayerDiff()
    conflicts: dict[RelPath, str] = {}  # noqa: RUF012  a tuple: replaced, never changed
    #: Where the command's own version of the conflicting paths is kept.
    recovery_ref: str | None = None
    #: Why it is held; empty if it has arrived.
    causes: tuple[HoldCause, ...] = ()
    #: Paths that can make other programs run code.
    runs_code: tuple[RelPath, ...] = ()
    notes: tuple[str, ...] = ()
    #: The layer still has content.
    is_kept: bool = False
    #: What arrived at excluded paths.
    excluded: Excluded = Excluded()
    #: Most of it has arrived, and the rest is held in the world.
    is_left_over: bool = False
    #: ``held`` or ``discarded``: what the rest of the world is, if only a part was applied.
    rest: str = ""

    @property
    def is_refused_once(self) -> bool:
        """Whether a second apply succeeds, now that the user has seen the reason."""
        return is_of_both_sides(self.causes)

    @property
    def held(self) -> str:
        """The causes for people; empty if it has arrived."""
        return hold_words(self.causes)

    @property
    def with_version(self) -> tuple[str, ...]:
        """The notes, and how to get the command's own version of the paths in conflict."""
        return (*self.notes, *own_version(self.entry.command_id if self.recovery_ref else ""))


class Request(NamedTuple):
    running: Running
    layer: Layer
    result: Result
    #: None: the world was held, and file times must show what others did.
    git: GitWatch | None
    #: Why the caller wants it held, or empty.
    hold: tuple[HoldCause, ...] = ()
    #: Processes that still run in the world.
    left_running: int = 0
    #: The user has decided to apply it: do not hold it for code that it makes run.
    is_decided: bool = False
    #: The user knows that both sides changed the repository, and wants the world's version.
    knows_collisions: bool = False
    #: The command that left processes running: no entry if they changed nothing more.
    rest_of: str = ""
    #: A world that waited, as it was found before the lock was taken.
    waiting: Held | None = None
    #: Which part of that world to bring in.
    selection: Selection = Selection()


def new_world(
    place: Place, store: HistoryStore, asked: Question | None, world_id: str = ""
) -> InWorld:
    """The id of a new world, and the possible places of its directory.

    Earlier outside edits, as far as the watcher's answer `asked` shows them, are recorded first.
    """
    world_id = world_id or ids.new_id("wld")
    return InWorld(
        world_id,
        (
            place.workspace.store / "worlds" / world_id,
            place.environment.substrate_home / "worlds" / world_id,
        ),
        is_watched=outside_edits.catch_up(store, asked),
    )


@contextmanager
def arrival_of(place: Place, request: Request) -> Iterator[Arrival]:
    """The stages of one arrival, inside history's lock; they are called in this order."""
    with (
        uncollected(),
        place.history() as store,
        store.writing("record a command"),
        store.new_batch() as batch,
    ):
        if request.waiting is not None:
            _refuse_decided(store, request.waiting)
        request = _with_base(store, request)
        base = request.running.base_commit
        if not base or not store.objects.has(base):
            request = _begun_anew(store, request)
        yield Arrival(place, store, batch, request)


class Arrival:
    def __init__(self, place: Place, store: HistoryStore, batch: Batch, request: Request) -> None:
        self._place = place
        self._store = store
        self._batch = batch
        self._request = request
        self._user_git = UserGit(place.workspace)
        #: While processes still run in the world: what of it arrives now.
        self._stamps: already_arrived.Stamps = {}
        self._git = GitArrival(LayerDiff(), ())
        self._code: tuple[RelPath, ...] = ()
        #: What stays in a held world of which only a part arrives.
        self._rest: Rest | None = None

    @property
    def _diff(self) -> LayerDiff:
        return self._git.diff

    def read_layer(self) -> bool:
        """What the command changed. Returns whether there is anything."""
        request, layer = self._request, self._request.layer
        if says_nothing(layer):
            return False
        is_live = request.left_running > 0
        stamps = already_arrived.look(layer) if is_live else {}
        diff = read(self._store, self._batch, layer, request.running, may_vanish=is_live)
        diff = self._selected(already_arrived.only_new(layer, diff))
        self._stamps = already_arrived.still_there(layer, stamps) if is_live else {}
        self._git = GitArrival(diff, ())
        return not request.rest_of or bool(diff.entries or diff.emptied)

    def _selected(self, diff: LayerDiff) -> LayerDiff:
        """The part of a held world that the user named."""
        world = self._request.waiting
        if world is None:
            return diff
        found = world_parts.divide(
            self._batch, diff, world.parts, self._request.selection, world.world_id
        )
        if found.leaves_pending or found.leaves_discarded:
            stays_held = found.leaves_pending and world.state != held.DISCARDED
            self._rest = Rest(world, held.HELD if stays_held else held.DISCARDED)
        return found.taken

    def note_nothing(self) -> Brought:
        """Record a command that changed nothing."""
        request, store = self._request, self._store
        if request.rest_of:
            return _nothing_more(store, request)
        result = self._with_outside(request.result)
        entry = record_entry.note(store, request.running, result)
        if request.left_running:
            held.keep_detached(store, self._batch, request.running, None)
        notes = ("the command changed nothing: no world is held",) if request.hold else ()
        return Brought(entry, [], notes=notes, is_kept=request.left_running > 0)

    def decide(self) -> tuple[HoldCause, ...]:
        """Why the change must be held; empty if it can arrive."""
        request, layer = self._request, self._request.layer
        self._git = self._user_git.look_after(
            layer.upper, self._diff, request.git, request.running.started_ns,
            may_merge=not request.left_running and not request.hold,
        )  # fmt: skip
        collisions = _collisions(self._store, request, self._git)
        self._code = tuple(code_paths(self._place, layer, self._diff.entries))
        return request.hold or _why_held(self._store, request, collisions, self._code)

    def hold(self, causes: tuple[HoldCause, ...]) -> Brought:
        """Keep the change in its world, for the user to decide."""
        return self._held(self._with_outside(self._result).with_outcome(HELD), causes)

    def _held(self, result: Result, causes: tuple[HoldCause, ...]) -> Brought:
        diff, running = self._diff, self._request.running
        entry = held.hold(self._store, running, result, "held", causes)
        if not self._request.left_running:
            layer_dirs.open_up(self._request.layer)
        return Brought(entry, diff.changes(), diff, causes=causes, runs_code=self._code,
                       notes=tuple(self._said), is_kept=True)  # fmt: skip

    def commit_and_apply(self) -> Brought:
        """Commit off the line, apply to the tree, advance the branch: `history.arrival.arrive`."""
        request, store, git, diff = self._request, self._store, self._git, self._diff
        running, layer = request.running, request.layer
        stood = self._user_git.refs_before(diff, request.git)
        arriving = Arriving(
            running, self._result, diff, layer.upper,
            request.left_running == 0 and self._rest is None,
            partial(self._user_git.undisturbed, git, running.started_ns), self._rest,
        )  # fmt: skip
        try:
            arrived = arrive(store, self._batch, arriving)
        except (HalfAppliedError, DamagedStoreError):
            raise
        except (SubstrateError, OSError) as error:
            failed = HoldCause(Hold.APPLY_FAILED, (_in_words(error),))
            return self._held(self._result.with_outcome(APPLY_FAILED), (failed,))
        is_later = self._user_git.update_index(layer.upper, git, request.git)
        arrived = _with_git_effect(self._place, store, stood, arrived, is_later=is_later)
        said = [*self._said, *git.notes]
        brought = _brought(self._place.workspace.root, arrived, diff, self._code, said)
        if self._rest is not None:
            word = "discarded" if self._rest.kind == held.DISCARDED else "held"
            brought = brought._replace(is_kept=True, rest=word)
        elif arrived.is_left_over:
            left = HoldCause(Hold.PARTLY_APPLIED, tuple(map(display, arrived.conflicts)))
            held.keep(store, running, (left,))
        elif request.left_running:
            already_arrived.remember(layer, self._stamps)
            held.keep_detached(store, self._batch, running, arrived.world)
            brought = brought._replace(is_kept=True)
        if brought.is_kept and not request.left_running:
            layer_dirs.open_up(layer)
        return brought

    @property
    def _said(self) -> list[str]:
        return [f"{display(one.path)}: {one.reason}" for one in self._diff.left_out[:_SHOWN]]

    @property
    def _result(self) -> Result:
        result = self._request.result
        if not self._code:
            return result
        names = [display(path) for path in self._code]
        return result._replace(detail={**result.detail, "runs_code": names})

    def _with_outside(self, result: Result) -> Result:
        """Add moved refs outside the workspace: a commit in a linked worktree leaves no other
        trace."""
        effect = self._user_git.effect_outside(self._request.git)
        return result._replace(detail={**result.detail, "git": effect}) if effect else result


def _refuse_decided(store: HistoryStore, world: Held) -> None:
    """Another call may have applied or discarded it while this one waited for the lock."""
    now = held.find(store, world.world_id)
    # A part that another call applied or discarded leaves a new intent for the rest.
    if now.state != world.state or (now.state == "held" and now.intent_id != world.intent_id):
        raise NotFoundError(
            f"{world.world_id} is no longer {world.state}: another call decided on it",
            hint="`substrate world list` shows what waits now",
        )


def _with_base(store: HistoryStore, request: Request) -> Request:
    """Fill in the base of a command that began before the baseline was taken."""
    running = request.running
    if running.base_commit:
        return request
    record_entry.ensure_baseline(store)  # the process beside the command could not take it
    return request._replace(
        running=running._replace(base_commit=record_entry.base_of(store, running))
    )


def _begun_anew(store: HistoryStore, request: Request) -> Request:
    """The history was put aside while the command ran: hold its change.

    Its base is lost, so applying it could undo other edits. It is compared with the present state.
    """
    running = request.running
    record_entry.ensure_baseline(store)
    session = sessions.for_recording(store, running.session_id, running.agent_id)
    base = store.tip_commit
    assert base is not None
    result = request.result
    return request._replace(
        running=running._replace(session_id=session, base_commit=base),
        result=result._replace(detail={**result.detail, "history_lost": True}),
        hold=request.hold or (HoldCause(Hold.HISTORY_REPLACED),),
    )


def _in_words(error: SubstrateError | OSError) -> str:
    if isinstance(error, LockedError):  # only the user can tell whether its owner is alive
        return f"{error.message} ({error.hint})"
    if isinstance(error, SubstrateError):
        return error.message
    reason = error.strerror or str(error)
    name = error.filename
    return f"{reason}: {display(os.fsencode(name))}" if isinstance(name, str | bytes) else reason


def _nothing_more(store: HistoryStore, request: Request) -> Brought:
    entry = store.ledger.by_command_id(request.rest_of)
    if entry is None:  # its entry is gone: the history was put aside or rebuilt since
        return Brought(record_entry.note(store, request.running, request.result), [])
    for place in request.running.places:
        if place.is_dir():
            mark_decided(place)
    with store.commit_point() as ledger:
        ledger.drop_intent(request.running.intent_id)
    return Brought(entry, [])


class Foreseen(NamedTuple):
    """What applying a world's change would do now."""

    merged: tuple[RelPath, ...] = ()
    #: Paths that would keep another process's version, with the reason.
    conflicts: dict[RelPath, str] = {}  # noqa: RUF012  a tuple: replaced, never changed
    #: Why it would stay held; empty if it would arrive.
    causes: tuple[HoldCause, ...] = ()

    @property
    def held(self) -> str:
        """The causes for people."""
        return hold_words(self.causes)


def foresee_bringing_in(
    place: Place, store: HistoryStore, batch: Batch, request: Request, diff: LayerDiff
) -> Foreseen:
    """What `bring_in` would do. Inside the lock."""
    running, upper = request.running, request.layer.upper
    git = UserGit(place.workspace).look_after(upper, diff, request.git, running.started_ns)
    collisions = _collisions(store, request, git)
    causes = _why_held(store, request, collisions, ())
    if causes:
        return Foreseen(causes=causes)
    try:
        wish = foresee(store, batch, Arriving(running, request.result, git.diff, upper))
    except RefusedError as error:
        return Foreseen(causes=(HoldCause(Hold.APPLY_FAILED, (error.message,)),))
    return Foreseen(tuple(wish.merged), wish.conflicts)


def _with_git_effect(
    place: Place, store: HistoryStore, before: GitState | None, arrived: Arrived, *, is_later: bool
) -> Arrived:
    """Record which of the user's refs the command moved, for its undo.

    `is_later`: an index was written again after the arrival; the undo must not mistake that for
    another program's change.
    """
    effect = UserGit(place.workspace).effect_since(before) if before is not None else {}
    more: dict[str, object] = {"git": effect} if effect else {}
    if is_later and ARRIVED in arrived.entry.detail:
        more[ARRIVED] = clock.now_ns()
    if not more:
        return arrived
    with store.commit_point() as ledger:
        return arrived._replace(entry=ledger.add_detail(arrived.entry, **more))


def read(
    store: HistoryStore, batch: Batch, layer: Layer, running: Running, *, may_vanish: bool = False
) -> LayerDiff:
    """The layer's content against the state that its world started from; see `read_layer`."""
    base = Base(batch, store.snapshot_of(running.base_commit))
    rules = _rules(store, layer)
    try:
        diff = read_layer(layer, base, rules, batch, may_vanish=may_vanish)
    except OSError as error:
        raise WorkspaceError(
            f"the world {layer.world_id} cannot be read: {error.strerror or error}",
            hint=f"it is kept in {layer.directory}; `substrate world apply` tries again",
        ) from error
    return diff if _is_same(layer.lower, store.root) else diff._replace(stood={})


def _is_same(lower: Path, root: Path) -> bool:
    """Whether both are one directory. False if the workspace was moved while the world was held:
    another tree may be there now."""
    try:
        return os.path.samefile(lower, root)
    except OSError:
        return False


def _rules(store: HistoryStore, layer: Layer) -> Exclusions:
    """The exclusion rules as the command left them: it may have edited ``.substrateignore``."""
    store.forget_exclusions()
    if not os.path.lexists(layer.upper / IGNORE_NAME):
        return store.exclusions
    if not (layer.upper / IGNORE_NAME).is_file():  # removed
        return Exclusions(size_cap_bytes=store.config.max_file_bytes)
    return Exclusions.load(layer.upper, size_cap_bytes=store.config.max_file_bytes)


def _collisions(store: HistoryStore, request: Request, git: GitArrival) -> tuple[HoldCause, ...]:
    if request.knows_collisions:
        return ()
    return find_collisions(store, request.running, git.diff, git.collisions)


def _why_held(
    store: HistoryStore,
    request: Request,
    collisions: tuple[HoldCause, ...],
    code: tuple[RelPath, ...],
) -> tuple[HoldCause, ...]:
    if collisions:
        return collisions
    if code and store.config.world_hold_code and not request.is_decided:
        names = tuple(display(path) for path in code[:_SHOWN])
        return (HoldCause(Hold.RUNS_CODE, names, max(0, len(code) - _SHOWN)),)
    return ()


def _brought(
    root: Path, arrived: Arrived, diff: LayerDiff, code: tuple[RelPath, ...], said: list[str]
) -> Brought:
    notes = [*said, *arrived.notes]
    for path, why in list(arrived.conflicts.items())[:_SHOWN]:
        stands = os.path.lexists(root / os.fsdecode(path))
        left = "your version stays" if stands else "nothing was put there"
        notes.append(f"conflict: {display(path)}: {why}; {left}")
    if arrived.merged:
        names = ", ".join(display(path) for path in arrived.merged[:_SHOWN])
        notes.append(f"merged with changes that others made while it ran: {names}")
    return Brought(
        arrived.entry, arrived.changes, diff, arrived.conflicts, arrived.recovery_ref, (), code,
        tuple(notes), arrived.is_left_over, of_detail(arrived.entry.detail),
        arrived.is_left_over,
    )  # fmt: skip


def remove_directory(directory: Path) -> None:
    """Remove a world whose change has arrived or was discarded."""
    held.remove_directory(directory)
