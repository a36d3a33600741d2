"""Undo, redo, rollback and restore: update history, plan, snapshot, apply, record."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from substrate.errors import ChangedMeanwhileError, NotFoundError
from substrate.history.query import Scope, resolve, scopes
from substrate.history.record import Prompt, prompts, sessions
from substrate.history.reversal import (
    Branches,
    ChangeHunk,
    Choice,
    Effect,
    Later,
    Outcome,
    Picked,
    Recovery,
    hunks,
    newest_command,
    recovery_refs,
    ref_names,
    rollback,
    undo,
)
from substrate.history.store import Entry, HistoryStore
from substrate.model import ABSENT, RelPath, display, is_within
from substrate.objects.snapshots import snapshot as snapshots
from substrate.recorder import queries
from substrate.recorder.arrival import PickedHunks
from substrate.recorder.command import outside_edits
from substrate.recorder.plan_ids import check_plan
from substrate.recorder.repeat_call import naming_the_call
from substrate.recorder.session_context import Place
from substrate.recorder.user_git import UserGit
from substrate.system import user_notes
from substrate.workspace.apply import Trash

_TRIES = 3


def undo_scope(place: Place, find: Callable[[HistoryStore], Scope], choice: Choice) -> Outcome:
    """Take back what `find` chooses, as one entry."""

    def act(store: HistoryStore, choice: Choice) -> Outcome:
        return _scope_back(place, store, find(store), choice)

    return _changing(place, "undo", act, choice)


def undo_hunks(
    place: Place,
    find: Callable[[HistoryStore], Scope],
    picked: Mapping[str, tuple[bytes, ...] | None],
    choice: Choice,
) -> Outcome:
    """Take back some hunks of what `find` chooses; `picked` is as in `reversal.undo_hunks`."""

    def act(store: HistoryStore, choice: Choice) -> Outcome:
        scope = find(store)
        words = " ".join([f"undo {scope.words}", *(f"--hunk {one}" for one in picked)])
        with naming_the_call(place, words, choice):
            return hunks.undo_hunks(store, scope, picked, choice, place.agent_id)

    return _changing(place, "undo", act, choice)


def prompt_named(place: Place, store: HistoryStore, named: str | None) -> Prompt:
    """The prompt with this id; without one, the newest of the named session or of all."""
    if named is not None:
        return prompts.resolve(store.ledger, named)
    if place.session is None:
        return prompts.latest(store.ledger)
    return prompts.latest(store.ledger, [sessions.resolve(store.ledger, place.session).session_id])


def undo_command(place: Place, target: str | None, choice: Choice) -> Outcome:
    """Take back what `target` names, or the session's newest command that changed anything.

    If that command cannot be undone, nothing is changed and an error says why.
    """

    def act(store: HistoryStore, choice: Choice) -> Outcome:
        if target is None:
            session = sessions.for_question(store, place.session)
            return _take_back(
                place, store, newest_command.to_undo(store, session.session_id), choice
            )
        found = resolve(store, target, place.session)
        if found.session is not None:
            session_id = sessions.whole(store.ledger, target).session_id
            return _scope_back(place, store, scopes.of_session(store, session_id), choice)
        if found.prompt is not None:
            return _scope_back(place, store, scopes.of_prompt(store, found.prompt), choice)
        if found.entry is None or found.holder is not None:
            return undo.undo_target(store, found, choice, place.agent_id)
        effect = newest_command.effect_of(store, found.entry, newest_command.waiting_worlds(store))
        if effect is Effect.NOTHING:
            outcome = undo.undo_target(store, found, choice, place.agent_id)
            return outcome._replace(subject=found.entry)
        return _take_back(place, store, Picked(found.entry, effect), choice)

    return _changing(place, "undo", act, choice)


def scope_to_undo(place: Place, store: HistoryStore, target: str | None) -> Scope:
    """What `undo` without further words means: `target`, or the session's newest command."""
    if target is None:
        session = sessions.for_question(store, place.session)
        picked = newest_command.to_undo(store, session.session_id)
        return scopes.of_command(store, picked.entry.command_id, None)
    found = resolve(store, target, place.session)
    if found.session is not None:
        return scopes.of_session(store, sessions.whole(store.ledger, target).session_id)
    if found.prompt is not None:
        return scopes.of_prompt(store, found.prompt)
    return scopes.of_command(store, target, place.session)


def redo_command(place: Place, choice: Choice) -> Outcome:
    """Take back the session's newest undo or rollback that changed anything."""

    def act(store: HistoryStore, choice: Choice) -> Outcome:
        session = sessions.for_question(store, place.session)
        newest = newest_command.to_redo(store, session.session_id)
        return _take_back(place, store, newest, choice, call="redo")

    return _changing(place, "redo", act, choice)


def _take_back(
    place: Place, store: HistoryStore, picked: Picked, choice: Choice, call: str = ""
) -> Outcome:
    """`call`: the arguments that repeat it, if not those of `undo`."""
    entry = picked.entry
    call = call or f"undo {entry.command_id}"
    in_git_only = picked.effect in (Effect.REFS, Effect.GIT)
    if in_git_only and choice.branches is Branches.WITH:
        outcome = UserGit(place.workspace).only_refs(store, picked, choice, place.agent_id)
    elif picked.effect is not Effect.FILES:
        raise newest_command.refuse(store, picked)
    else:
        effect = UserGit(place.workspace).to_move([entry], choice, call)
        announced = choice._replace(moving=effect)
        with naming_the_call(place, call, choice):
            outcome = undo.undo_entry(store, entry, announced, place.agent_id)
        outcome = _with_branches(place, store, effect, choice, outcome)
    world = newest_command.waiting_worlds(store).get(entry.command_id)
    if world is not None:
        said = f"a part of {entry.command_id} still waits: `substrate world diff {world.world_id}`"
        outcome.notes.append(said)
    if outcome.kept and outcome.entry is None and not choice.dry_run:
        outcome.notes.extend(newest_command.before(store, entry))
    return outcome._replace(passed_over=picked.passed_over, subject=entry)


def _scope_back(place: Place, store: HistoryStore, scope: Scope, choice: Choice) -> Outcome:
    call = f"undo {scope.words}"
    effect = UserGit(place.workspace).to_move(scope.entries, choice, call)
    announced = choice._replace(moving=effect)
    with naming_the_call(place, call, choice):
        outcome = undo.undo_scope(store, scope, announced, place.agent_id)
    waiting = newest_command.waiting_worlds(store)
    for entry in scope.entries:
        if entry.command_id in waiting:
            world = waiting[entry.command_id].world_id
            outcome.notes.append(f"a world of it still waits: `substrate world diff {world}`")
    outcome.notes.extend(_left_uncertain(scope.entries))
    return _with_branches(place, store, effect, choice, outcome)


def _left_uncertain(entries: list[Entry]) -> list[str]:
    """Files that others wrote while an observed command ran: it is not known what is whose."""
    found = [
        str(name)
        for entry in entries
        for name in (entry.detail.get("uncertain") or ())  # type: ignore[attr-defined]
    ]
    if not found:
        return []
    return [f"left as they are, because others wrote them at the same time: {', '.join(found)}"]


def _with_branches(
    place: Place, store: HistoryStore, effect: dict[str, object], choice: Choice, outcome: Outcome
) -> Outcome:
    if choice.dry_run:
        if effect:
            names = ", ".join(ref_names(effect))
            outcome.notes.append(f"would move back in your git repository: {names}")
        return outcome
    git = UserGit(place.workspace)
    if choice.branches is Branches.WITH and not outcome.conflicts:
        outcome = git.files_back(store, outcome)
    left = outcome.incomplete
    outcome = git.move(store, effect, outcome)
    outcome = outcome._replace(incomplete=left or outcome.incomplete)
    return git.notes(store, choice, outcome)


def roll_back(
    place: Place,
    choice: Choice,
    *,
    to: str | None = None,
    checkpoint: str | None = None,
    session: str | None = None,
    prompt: str | None = None,
    exact: bool = False,
) -> Outcome:
    """Go back to a command, a checkpoint, a prompt's start or a session's end; one is named."""

    def act(store: HistoryStore, choice: Choice) -> Outcome:
        if checkpoint is not None:
            point = rollback.to_checkpoint(store, checkpoint, session or place.session)
        elif prompt is not None:
            point = rollback.to_prompt(store, prompts.resolve(store.ledger, prompt))
        elif to is not None:
            point = rollback.to_entry(store, to, session or place.session)
        else:
            assert session is not None
            point = rollback.to_session(store, session)
        call = f"rollback {point.option}{' --exact' if exact else ''}"
        effect: dict[str, object] = {}
        if choice.branches is Branches.WITH:
            after = store.ledger.live(session_id=point.session_id, after_pos=point.pos)
            effect = UserGit(place.workspace).to_move(after, choice, call, files_only=call)
        announced = choice._replace(moving=effect)
        with naming_the_call(place, call, choice):
            outcome = rollback.roll_back(store, point, announced, exact=exact, agent=place.agent_id)
        return _with_branches(place, store, effect, choice, outcome)

    return _changing(place, "rollback", act, choice, scans=exact)


def restore_recovery(
    place: Place, ref: str, paths: tuple[RelPath, ...], *, dry_run: bool,
    picked: PickedHunks | None = None,
) -> Outcome:  # fmt: skip
    """Restore what a recovery ref kept: the paths its operation replaced, or those named.

    `picked`: only these hunks of what it would change; no files out of the trash then.
    """

    def act(store: HistoryStore, choice: Choice) -> Outcome:
        return recovery_restore(
            store, ref, paths, place.agent_id, dry_run=choice.dry_run, picked=picked
        )

    return _changing(place, "restore", act, Choice(dry_run=dry_run), scans=True)


def recovery_hunks(place: Place, ref: str, paths: tuple[RelPath, ...]) -> list[ChangeHunk]:
    """The hunks of what `restore_recovery` would change now. Changes nothing."""
    with place.existing_history() as store, store.rehearsing("restore"):
        outside_edits.agree(place, store, asks=False, records=False)
        kept = recovery_refs.resolve(store, ref)
        with store.new_batch() as batch:
            reversal = undo.reversal_for(store, batch, Choice(paths=paths))
            only = None if paths else frozenset(kept.paths)
            reversal.put_exactly(store.snapshot_of(kept.commit), only)
            return hunks.hunks_of(batch, reversal.wish().changes)


def recovery_restore(
    store: HistoryStore, ref: str, paths: tuple[RelPath, ...], agent: str | None, *, dry_run: bool,
    picked: PickedHunks | None = None,
) -> Outcome:  # fmt: skip
    """`ref` is a recovery ref, or the id of an operation that has something in the trash."""
    from substrate.history.reversal import perform, restore_from_trash

    in_trash = bool(Trash(store.trash_dir).under(ref)) if "/" not in ref else False
    known = ref in {one.name for one in recovery_refs.all_recoveries(store.ledger)}
    kept = None if in_trash and not known else recovery_refs.resolve(store, ref)
    choice = Choice(paths=paths, dry_run=dry_run)
    name, command_id = (kept.name, kept.command_id) if kept else (ref, ref)
    for path in paths:
        if not _is_held(store, kept, command_id, path):
            raise NotFoundError(
                f"{name} does not hold {display(path)}",
                hint=f"`substrate recover show {name}` lists what it holds",
            )
    with store.new_batch() as batch:
        reversal = undo.reversal_for(store, batch, choice)
        if kept is not None:
            # A directory among them is restored without its content: later work below it stays.
            only = None if paths else frozenset(kept.paths)
            reversal.put_exactly(store.snapshot_of(kept.commit), only)
        wish = reversal.wish()
        what = f"restore of {name}"
        if picked is not None:
            wish = hunks.only_hunks(batch, wish, picked)
            what = f"restore of {len(picked)} hunks of {name}"
        new = undo.new_entry(store, "restore", what, None, agent)
        outcome = perform(store, batch, wish, new, [], dry_run=dry_run, later=Later.GIVES_WAY)
    if picked is not None:
        return outcome
    if dry_run:
        return outcome._replace(besides=restore_from_trash.describe(store, command_id, paths))
    return restore_from_trash.bring_back(store, command_id, paths, new, outcome)


def _naming_commands(store: HistoryStore, outcome: Outcome) -> Outcome:
    """Add the commands; of several, those that were not undone before."""
    undone = [entry for seq in outcome.undone if (entry := store.ledger.by_seq(seq)) is not None]
    commands = queries.commands_behind(store, undone)
    if outcome.subject is None or outcome.is_redo:
        own = [one.seq for one in (outcome.entry, outcome.subject) if one is not None]
        commands = tuple(
            one for one in commands if b"" not in store.ledger.reversed_paths(one.seq, own)
        )
    return outcome._replace(commands=commands)


def _is_held(store: HistoryStore, kept: Recovery | None, command_id: str, path: RelPath) -> bool:
    """Whether a snapshot or the trash of its operation says something about a path."""
    in_trash = [item.path for item in Trash(store.trash_dir).under(command_id)]
    named = [*in_trash, *(kept.paths if kept else ())]
    if any(is_within(one, path) or is_within(path, one) for one in named):
        return True
    states = [store.tip(), store.snapshot_of(kept.commit)] if kept else []
    return any(snapshots.lookup(store.objects, state, path) != ABSENT for state in states)


def _changing(
    place: Place,
    purpose: str,
    act: Callable[[HistoryStore, Choice], Outcome],
    choice: Choice,
    *,
    scans: bool = False,
) -> Outcome:
    """First record outside edits, then `act`.

    The edits are known from the watcher. A scan is needed if `scans` (the whole tree is concerned),
    if the watcher may have missed something, or after a path turned out to differ from history.

    A dry run does the same, and drops what it recorded. If the caller expects a plan, the plan is
    made again under the lock and compared before anything changes.
    """
    dry_run = choice.dry_run
    with (
        place.existing_history() as store,
        store.rehearsing(purpose) if dry_run else store.writing(purpose),
    ):
        for line in [] if dry_run else UserGit(place.workspace).finish(store):
            user_notes.tell(line)
        for attempt in range(_TRIES):
            asks = not scans and attempt == 0
            known = outside_edits.agree(place, store, asks=asks, records=not dry_run)
            try:
                if choice.expected is not None:
                    check_plan(act(store, choice._replace(dry_run=True)), choice.expected)
                outcome = _naming_commands(store, act(store, choice)._replace(base_known=known))
                if choice.look is not None:
                    choice.look(store, outcome)
                return outcome._replace(notes=[*store.take_said(), *outcome.notes])
            except ChangedMeanwhileError:
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError("unreachable")
