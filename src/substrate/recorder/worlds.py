"""What lies in a world's layer becomes history and comes into the tree, or waits there.

The order of `bring_in` is DESIGN's: read the layer, write what it holds, commit beside the
line, apply, advance the branch. What can be decided by nobody but a person is held.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import NamedTuple

from substrate.errors import (
    HalfAppliedError,
    LockedError,
    RefusedError,
    SubstrateError,
    WorkspaceError,
)
from substrate.history import held, record, sessions
from substrate.history.arrival_journal import mark_decided
from substrate.history.arrive import Arrived, Arriving, arrive, foresee
from substrate.history.ledger import Entry
from substrate.history.record import InWorld, Result, Running
from substrate.history.store import HistoryStore
from substrate.model.nodes import Change
from substrate.model.paths import RelPath, display
from substrate.objects.batch import Batch
from substrate.recorder import fresh_index, outside_edits, seen_before
from substrate.recorder.collisions import BOTH_SIDES, told
from substrate.recorder.git_arrival import GitArrival, GitWatch, look_after_git, undisturbed
from substrate.recorder.git_outside import is_outside
from substrate.recorder.place import Place
from substrate.recorder.runs_code import runs_code
from substrate.recorder.user_git import GitState, effect_since, git_state
from substrate.system import ids
from substrate.system.cycles import uncollected
from substrate.system.files import read_bytes_or_none
from substrate.system.watch_talk import Question
from substrate.workspace.exclude import IGNORE_NAME, Exclusions
from substrate.workspace.layer import LayerDiff
from substrate.workspace.locate import Workspace
from substrate.world.changes import Base, read_layer
from substrate.world.nothing_done import says_nothing
from substrate.world.protocol import Layer

_SHOWN = 20


class Brought(NamedTuple):
    """How it went with one world's change."""

    entry: Entry
    #: What the command changed of what history keeps.
    changes: list[Change]
    diff: LayerDiff = LayerDiff()
    conflicts: dict[RelPath, str] = {}  # noqa: RUF012  a tuple: replaced, never changed
    #: Where the command's own version of the conflicting paths is kept.
    recovery_ref: str | None = None
    #: Why it waits in its world; empty if it has arrived.
    held: str = ""
    #: Paths that can make other programs run code.
    runs_code: tuple[RelPath, ...] = ()
    notes: tuple[str, ...] = ()
    #: The layer still holds something.
    is_kept: bool = False

    @property
    def is_refused_once(self) -> bool:
        """Whether who asks again, now that he knows, gets it."""
        return self.held.startswith(BOTH_SIDES)


class Request(NamedTuple):
    running: Running
    layer: Layer
    result: Result
    #: None: the world had waited, and files' times must tell what others did.
    git: GitWatch | None
    #: Asked to wait, or empty.
    hold: str = ""
    #: Processes that still run in the world.
    left_running: int = 0
    #: Somebody has looked at it and decided: nothing is held any more.
    is_decided: bool = False
    #: He was told that his repository was changed on both sides, and wants the world's.
    knows_collisions: bool = False
    #: The command whose processes went on: without anything new from them there is no entry.
    rest_of: str = ""


def new_world(
    place: Place, store: HistoryStore, asked: Question | None, world_id: str = ""
) -> InWorld:
    """The id of a world to be, and where its directory may come to stand.

    What others changed before it, as far as `asked` tells, is recorded first.
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


def bring_in(place: Place, request: Request) -> Brought:
    """Record a world's change and apply it. The caller removes the layer unless it is kept."""
    with (
        uncollected(),
        place.history() as store,
        store.writing("record a command"),
        store.new_batch() as batch,
    ):
        request = _with_base(store, request)
        base = request.running.base_commit
        if not base or not store.objects.has(base):
            request = _begun_anew(store, request)
        if says_nothing(request.layer):
            if request.rest_of:
                return _nothing_more(store, request)
            entry = record.note(store, request.running, _with_outside(place, request))
            if request.left_running:
                held.keep_detached(store, batch, request.running, None)
            notes = ("the command changed nothing: no world is held",) if request.hold else ()
            return Brought(entry, [], notes=notes, is_kept=request.left_running > 0)
        return _bring_in(place, store, batch, request)


def _with_base(store: HistoryStore, request: Request) -> Request:
    """Of a command that began before the baseline was taken, what it began with."""
    running = request.running
    if running.base_commit:
        return request
    record.ensure_baseline(store)  # who was to take it beside the command could not
    return request._replace(running=running._replace(base_commit=record.base_of(store, running)))


def _begun_anew(store: HistoryStore, request: Request) -> Request:
    """The history was put aside while the command ran: nobody can tell what its change is a
    change of, and whose edits it would take back. It waits, compared with the present state."""
    running = request.running
    record.ensure_baseline(store)
    session = sessions.for_recording(store, running.session_id, running.agent_id)
    base = store.tip_commit
    assert base is not None
    result = request.result
    return request._replace(
        running=running._replace(session_id=session, base_commit=base),
        result=result._replace(detail={**result.detail, "history_lost": True}),
        hold=request.hold or "the history was put aside while the command ran",
    )


def _with_outside(place: Place, request: Request) -> Result:
    """A commit in a linked worktree changes nothing in the workspace itself."""
    result = request.result
    if request.git is None or not is_outside(place.workspace):
        return result
    effect = effect_since(place.workspace, request.git.state)
    return result._replace(detail={**result.detail, "git": effect}) if effect else result


def _bring_in(place: Place, store: HistoryStore, batch: Batch, request: Request) -> Brought:
    running, layer = request.running, request.layer
    stamps = seen_before.look(layer) if request.left_running else {}
    is_live = request.left_running > 0
    diff = seen_before.only_new(layer, read(store, batch, layer, running, may_vanish=is_live))
    stamps = seen_before.still_there(layer, stamps) if is_live else {}
    if request.rest_of and not (diff.entries or diff.emptied):
        return _nothing_more(store, request)
    git = look_after_git(
        place.workspace, layer.upper, diff, request.git, running.started_ns,
        may_merge=not is_live and not request.hold,
    )  # fmt: skip
    diff = git.diff
    collisions = _collisions(store, request, git)
    code = tuple(runs_code(diff.entries, lambda path: configs(place, layer, path)))
    reason = request.hold or _why_held(store, request, collisions, code)
    said = [f"{display(one.path)}: {one.reason}" for one in diff.left_out[:_SHOWN]]
    result = request.result
    if code:
        names = [display(path) for path in code]
        result = result._replace(detail={**result.detail, "runs_code": names})
    if reason:
        result = _with_outside(place, request._replace(result=result))
        entry = held.hold(store, running, result, "held", reason)
        return Brought(entry, diff.changes(), diff, held=reason, runs_code=code,
                       notes=tuple(said), is_kept=True)  # fmt: skip
    stood = _refs_before(place.workspace, diff, request.git)
    arriving = Arriving(
        running, result, diff, layer.upper, request.left_running == 0,
        partial(undisturbed, place.workspace, git, running.started_ns),
    )  # fmt: skip
    try:
        arrived = arrive(store, batch, arriving)
    except HalfAppliedError:
        raise
    except (SubstrateError, OSError) as error:
        message = _in_words(error)
        entry = held.hold(store, running, result, "held", message)
        return Brought(entry, diff.changes(), diff, held=message, runs_code=code,
                       notes=tuple(said), is_kept=True)  # fmt: skip
    if git.fresh is not None and request.git is not None:
        fresh_index.put_in_place(place.workspace, layer.upper, git.fresh, request.git.stamps[0])
    if stood is not None:
        arrived = _with_git_effect(place, store, stood, arrived)
    brought = _brought(place.workspace.root, arrived, diff, code, [*said, *git.notes])
    if arrived.is_left_over:
        left = "some of it could not be applied: " + ", ".join(map(display, arrived.conflicts))
        held.keep(store, running, left)
    elif request.left_running:
        seen_before.remember(layer, stamps)
        held.keep_detached(store, batch, running, arrived.world)
        brought = brought._replace(is_kept=True)
    return brought


def _in_words(error: SubstrateError | OSError) -> str:
    if isinstance(error, LockedError):  # only a person can tell whether its owner still lives
        return f"{error.message} ({error.hint})"
    return error.message if isinstance(error, SubstrateError) else error.strerror or str(error)


def _refs_before(workspace: Workspace, diff: LayerDiff, git: GitWatch | None) -> GitState | None:
    """Where the user's refs stood that the change can move: of a world that had waited, now."""
    if not _reaches_git(workspace, diff):
        return None
    return git.state if git is not None else git_state(workspace)


def _reaches_git(workspace: Workspace, diff: LayerDiff) -> bool:
    """Whether the user's refs can have moved: most commands leave his repository alone."""
    if workspace.git_dir is None or workspace.git_common_dir is None:
        return False
    inside = []
    for place in (workspace.git_dir, workspace.git_common_dir):
        if not place.is_relative_to(workspace.root):
            return True  # no layer tells
        inside.append(os.fsencode(place.relative_to(workspace.root)) + b"/")
    changed = (one.path + b"/" for one in diff.entries)
    return any(path.startswith(one) or one.startswith(path) for path in changed for one in inside)


def _nothing_more(store: HistoryStore, request: Request) -> Brought:
    entry = store.ledger.by_command_id(request.rest_of)
    if entry is None:  # forgotten meanwhile
        return Brought(record.note(store, request.running, request.result), [])
    for place in request.running.places:
        if place.is_dir():
            mark_decided(place)
    with store.commit_point() as ledger:
        ledger.drop_intent(request.running.intent_id)
    return Brought(entry, [])


class Foreseen(NamedTuple):
    """How it would go with a world's change, as things stand now."""

    merged: tuple[RelPath, ...] = ()
    #: Paths that would be left as somebody else made them, with the reason.
    conflicts: dict[RelPath, str] = {}  # noqa: RUF012  a tuple: replaced, never changed
    #: Why it would go on waiting; empty if it would arrive.
    held: str = ""


def foresee_bringing_in(
    place: Place, store: HistoryStore, batch: Batch, request: Request, diff: LayerDiff
) -> Foreseen:
    """Inside the lock: what `bring_in` would meet."""
    running, upper = request.running, request.layer.upper
    git = look_after_git(place.workspace, upper, diff, request.git, running.started_ns)
    collisions = _collisions(store, request, git)
    reason = _why_held(store, request, collisions, ())
    if reason:
        return Foreseen(held=reason)
    try:
        wish = foresee(store, batch, Arriving(running, request.result, git.diff, upper))
    except RefusedError as error:
        return Foreseen(held=error.message)
    return Foreseen(tuple(wish.merged), wish.conflicts)


def _with_git_effect(
    place: Place, store: HistoryStore, before: GitState, arrived: Arrived
) -> Arrived:
    """Where the command moved the user's refs, for who undoes it."""
    effect = effect_since(place.workspace, before)
    if not effect:
        return arrived
    with store.commit_point() as ledger:
        return arrived._replace(entry=ledger.add_detail(arrived.entry, git=effect))


def read(
    store: HistoryStore, batch: Batch, layer: Layer, running: Running, *, may_vanish: bool = False
) -> LayerDiff:
    """What the layer holds, against the state that its world started from; see `read_layer`."""
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
    """Not if the workspace was moved while the world waited: another tree may stand there now."""
    try:
        return os.path.samefile(lower, root)
    except OSError:
        return False


def _rules(store: HistoryStore, layer: Layer) -> Exclusions:
    """As the command left them: it may have edited ``.substrateignore``."""
    store.forget_exclusions()
    if not os.path.lexists(layer.upper / IGNORE_NAME):
        return store.exclusions
    if not (layer.upper / IGNORE_NAME).is_file():  # removed
        return Exclusions(size_cap_bytes=store.config.max_file_bytes)
    return Exclusions.load(layer.upper, size_cap_bytes=store.config.max_file_bytes)


def _collisions(store: HistoryStore, request: Request, git: GitArrival) -> str:
    if request.knows_collisions:
        return ""
    return told(store, request.running, git.diff, git.collisions)


def _why_held(
    store: HistoryStore,
    request: Request,
    collisions: str,
    code: tuple[RelPath, ...],
) -> str:
    if collisions:
        return collisions
    if code and store.config.world_hold_code and not request.is_decided:
        names = ", ".join(display(path) for path in code[:_SHOWN])
        return f"it changes what other programs run: {names}"
    return ""


def configs(place: Place, layer: Layer, path: RelPath) -> tuple[bytes, bytes]:
    def content(root: Path) -> bytes:
        file = root / os.fsdecode(path)
        try:
            return b"" if file.is_symlink() else read_bytes_or_none(file) or b""
        except OSError:
            return b""

    return content(place.workspace.root), content(layer.upper)


def _brought(
    root: Path, arrived: Arrived, diff: LayerDiff, code: tuple[RelPath, ...], said: list[str]
) -> Brought:
    notes = [*said, *arrived.notes]
    for path, why in list(arrived.conflicts.items())[:_SHOWN]:
        stands = os.path.lexists(root / os.fsdecode(path))
        left = "it was left as it stands" if stands else "nothing was put there"
        notes.append(f"conflict: {display(path)}: {why}; {left}")
    if arrived.recovery_ref:
        name = arrived.entry.command_id
        notes.append(
            f"the command's own version is kept: `substrate recover show {name}`,"
            f" `substrate recover restore {name}`"
        )
    if arrived.merged:
        names = ", ".join(display(path) for path in arrived.merged[:_SHOWN])
        notes.append(f"merged with what others changed meanwhile: {names}")
    return Brought(
        arrived.entry, arrived.changes, diff, arrived.conflicts, arrived.recovery_ref, "", code,
        tuple(notes), arrived.is_left_over,
    )  # fmt: skip


def remove_directory(directory: Path) -> None:
    """The end of a world: its change has arrived or was discarded."""
    held.remove_directory(directory)
