"""The refs that an undone command moved in the user's repository: move them back, or leave them.

The user must choose (`Choice.branches`): taking back a commit's files and leaving its branch, or
the other way round, is rarely what the user wants.
"""

from __future__ import annotations

from collections.abc import Sequence

from substrate.errors import MovedBranchesError, RefusedError
from substrate.history.arrival import GIT_BACK
from substrate.history.reversal import (
    Branches,
    Choice,
    Outcome,
    Picked,
    newest_command,
    ref_names,
    undo,
)
from substrate.history.store import REVERSING_KINDS, TO_MOVE, Entry, HistoryStore
from substrate.recorder.user_git import restore_git_bytes
from substrate.recorder.user_git.ref_moves import (
    Effect,
    effect_since,
    git_state,
    how_to_put_back,
    joined,
    moved_again,
    outstanding,
    put_back,
)
from substrate.workspace import Workspace, find_workspace

ALREADY_BACK = "your branches are already where they were before it"


def to_move(
    workspace: Workspace, moved_by: Sequence[Entry], choice: Choice, verb: str, files_only: str
) -> Effect:
    """What an undo moves in the user's repository; empty if the refs stay.

    `verb`: the arguments after `substrate` that repeat this call; `files_only`: those that leave
    the branches alone. Raises `MovedBranchesError` if
    the user has to choose, and `RefusedError` if the refs have moved again since.
    """
    effect = outstanding(workspace, joined(entry.detail.get("git") for entry in moved_by))
    if not effect or choice.branches is Branches.STAY:
        return {}
    again = moved_again(workspace, effect)
    if choice.branches is Branches.WITH:
        if again:
            raise RefusedError(
                f"nothing was changed: {', '.join(again)} moved again since that command, so"
                " --with-git cannot move it back",
                hint=f"take back the files alone with `substrate {files_only}`",
            )
        return effect
    if choice.paths or choice.dry_run:
        return {}
    names = ", ".join(ref_names(effect))
    if again:
        hint = f"{', '.join(again)} moved again since, so branches cannot go back; files only: "
        raise MovedBranchesError(
            f"this command also moved {names} in your git repository",
            hint=f"{hint}`substrate {files_only}`",
            can_move=False,
        )
    raise MovedBranchesError(
        f"this command also moved {names} in your git repository",
        hint=f"files and branches: `substrate {verb} --with-git`;"
        f" files only: `substrate {files_only}`",
    )


def move(workspace: Workspace, store: HistoryStore, effect: Effect, outcome: Outcome) -> Outcome:
    """Move the refs back, after the files. The undo's entry records what moved, for `redo`."""
    if not effect:
        return outcome
    moved: Effect = {}
    is_back = False
    if outcome.conflicts:
        said = "conflicts are left, so no ref of your git repository was moved"
    else:
        # A repository that the command removed or replaced came back with its refs.
        workspace = find_workspace(workspace.root)
        before = git_state(workspace)
        effect = outstanding(workspace, effect)
        is_back = not effect
        said = put_back(workspace, effect, outcome.what) if effect else ALREADY_BACK
        restore_git_bytes.stashes_back(store, _undone(store, outcome))
        moved = effect_since(workspace, before)
    outcome = outcome._replace(
        notes=[*outcome.notes, said],
        refs=tuple(ref_names(moved)),
        incomplete=not (moved or is_back),
    )
    if outcome.entry is not None:
        more: Effect = {"git": moved} if moved else {}
        with store.commit_point() as ledger:
            entry = ledger.add_detail(outcome.entry, **{TO_MOVE: None}, **more)
            ledger.set_meta(TO_MOVE, "")
        outcome = outcome._replace(entry=entry)
    return outcome


def _undone(store: HistoryStore, outcome: Outcome) -> list[Entry]:
    return [entry for seq in outcome.undone if (entry := store.ledger.by_seq(seq)) is not None]


def files_of_git(store: HistoryStore, outcome: Outcome) -> Outcome:
    """Before refs move: restore objects, config and the like, and nested repositories."""
    entry = outcome.entry
    if entry is None:
        return outcome
    plan = restore_git_bytes.planned(store, _undone(store, outcome))
    if plan and GIT_BACK not in entry.detail:
        with store.commit_point() as ledger:
            entry = ledger.add_detail(entry, **plan)
    outcome, done = _git_files_back(store, outcome, entry.command_id)
    more = restore_git_bytes.noted(entry.detail, done)
    if more:
        with store.commit_point() as ledger:
            entry = ledger.add_detail(entry, **more)
    return outcome._replace(entry=entry)


def _git_files_back(
    store: HistoryStore, outcome: Outcome, under: str
) -> tuple[Outcome, restore_git_bytes.Restored]:
    done = restore_git_bytes.bring_back(store, _undone(store, outcome), under)
    incomplete = outcome.incomplete or bool(done.left)
    notes = [*outcome.notes, *done.notes()]
    files = outcome.git_files + done.objects + len(done.paths)
    return outcome._replace(notes=notes, incomplete=incomplete, git_files=files), done


def unmoved(store: HistoryStore) -> Entry | None:
    """The undo, if any, that was killed after it restored the files and before it moved refs."""
    command_id = store.ledger.meta(TO_MOVE)
    entry = store.ledger.by_command_id(str(command_id)) if command_id else None
    return entry if entry is not None and entry.detail.get(TO_MOVE) else None


def finish(workspace: Workspace, store: HistoryStore) -> list[str]:
    """Move the refs of an undo that was killed before. Inside the lock. Returns messages."""
    entry = unmoved(store)
    effect = entry.detail.get(TO_MOVE) if entry else None
    if entry is None or not isinstance(effect, dict):
        return []
    undone = tuple(store.ledger.reversed_whole_by(entry.seq))
    outcome = undo.without_files(entry)._replace(entry=entry, what=entry.command, undone=undone)
    left = outstanding(workspace, effect) or effect
    done = move(workspace, store, left, files_of_git(store, outcome))
    return [f"finished an interrupted {entry.command}: {said}" for said in done.notes]


def only_refs(
    workspace: Workspace, store: HistoryStore, picked: Picked, choice: Choice, agent_id: str
) -> Outcome:
    """Take back a command that moved refs and changed no file.

    The refs move first: after a kill in between, the same call only records the undo.
    """
    entry = picked.entry
    if newest_command.is_undone(store, entry):
        raise undo.already_undone(entry)
    verb = verb_for(entry)
    effect = to_move(workspace, [entry], choice, verb, f"{verb} --files-only")
    outcome = undo.without_files(entry)
    if choice.dry_run:
        names = ", ".join(ref_names(effect)) or "nothing"
        return outcome._replace(notes=[f"would move back in your git repository: {names}"])
    new = undo.new_undo(store, entry, agent_id)
    outcome, done = _git_files_back(store, outcome, new.command_id)
    left = outcome.incomplete
    if effect:
        outcome = move(workspace, store, effect, outcome)
        if outcome.incomplete:
            return outcome
    elif picked.effect is newest_command.Effect.REFS:
        outcome.notes.append(ALREADY_BACK)
    git = effect_back(outcome, effect)
    noted = undo.note_undone(
        store, entry, new, {**restore_git_bytes.noted({}, done), **({"git": git} if git else {})}
    )
    return outcome._replace(entry=noted, incomplete=left)


def effect_back(outcome: Outcome, effect: Effect) -> Effect:
    """What a redo has to move: the same refs in the opposite direction."""
    out: Effect = {}
    refs, head = effect.get("refs"), effect.get("head")
    if isinstance(refs, dict):
        out["refs"] = {name: [now, was] for name, (was, now) in refs.items()}
    if isinstance(head, list):
        out["head"] = head[::-1]
    return out if outcome.refs else {}


def verb_for(entry: Entry) -> str:
    return "redo" if entry.kind in REVERSING_KINDS else f"undo {entry.command_id}"


def with_notes(
    workspace: Workspace, store: HistoryStore, choice: Choice, outcome: Outcome
) -> Outcome:
    """Add notes on how to move back the refs that an undone command moved and that stay."""
    if choice.branches is Branches.WITH:
        return outcome
    notes = list(outcome.notes)
    undone = _undone(store, outcome)
    for entry in undone:
        inside = restore_git_bytes.nested(store, entry)
        if inside:
            notes.append(
                f"{entry.command_id} also changed {', '.join(inside)}, which stays as it is;"
                f" --with-git takes that back, too"
            )
    moved_by = [entry for entry in undone if entry.detail.get("git")]
    left = outstanding(workspace, joined(entry.detail["git"] for entry in moved_by))
    lines = how_to_put_back(left)
    if lines:
        names = ", ".join(entry.command_id for entry in moved_by)
        notes.append(
            f"{names} also moved refs of your git repository; they stay where they"
            f" are. To put them back: {'; '.join(lines)} (or use --with-git)"
        )
    return outcome._replace(notes=notes)
