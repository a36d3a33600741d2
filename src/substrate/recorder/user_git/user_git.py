"""The user's own repository: everything that the recorder asks of it, or does to it.

    before a command      `wait_for_index`, `watch`, `absent_locks`, `outside`
    its change arrives    `look_after`, `undisturbed`, `refs_before`, `update_index`
    what it did           `effect_since`, `effect_outside`, `code_changed`, `links`
    undo and redo         `to_move`, `move`, `files_back`, `only_refs`, `notes`, `finish`, `unmoved`

History never records a ``.git``; this class is the only way from the rest of the recorder to one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from substrate.recorder.user_git import arrived_index, git_arrival, git_locks, refreshed_index
from substrate.recorder.user_git.git_arrival import GitArrival, GitWatch
from substrate.recorder.user_git.outside_git_dir import (
    GitOutside,
    code_changed,
    git_outside,
    is_outside,
)
from substrate.recorder.user_git.ref_moves import Effect, GitState, effect_since, git_state
from substrate.workspace import Workspace
from substrate.workspace.apply import LayerDiff

if TYPE_CHECKING:  # few commands need these
    from substrate.history.reversal import Choice, Outcome, Picked
    from substrate.history.store import Entry, HistoryStore
    from substrate.recorder.user_git.git_settings import Content, GitLinks


class UserGit:
    """The repository of one workspace; every method also works where there is none."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    # ---------------------------------------------------------------------------- before a command

    def wait_for_index(self) -> None:
        """Wait up to 0.5 s for a fresh index.lock to disappear."""
        git_locks.wait_for_the_index(self._workspace)

    def watch(self) -> GitWatch:
        """The state of the repository now, to compare with when the change arrives."""
        return git_arrival.watch(self._workspace)

    def absent_locks(self, watched: GitWatch) -> tuple[bytes, ...]:
        """Git's locks that do not exist: the world hides them if they appear later."""
        return git_locks.not_held(self._workspace, watched.state)

    def outside(self) -> GitOutside:
        """What a world must know about a git directory that is outside the workspace."""
        return git_outside(self._workspace)

    # ------------------------------------------------------------------- a command's change arrives

    def look_after(
        self,
        upper: Path,
        diff: LayerDiff,
        before: GitWatch | None,
        since_ns: int,
        *,
        may_merge: bool = False,
    ) -> GitArrival:
        """`diff` without what need not arrive, and the collisions; see `look_after_git`."""
        return git_arrival.look_after_git(
            self._workspace, upper, diff, before, since_ns, may_merge=may_merge
        )

    def undisturbed(self, arrival: GitArrival, since_ns: int) -> AbstractContextManager[None]:
        """Keep other gits from changing refs and index while the world's arrive."""
        return git_arrival.undisturbed(self._workspace, arrival, since_ns)

    def refs_before(self, diff: LayerDiff, before: GitWatch | None) -> GitState | None:
        """The refs before the change; for a world that was held, the present ones.

        None if the change cannot move refs.
        """
        if not self._is_reached_by(diff):
            return None
        return before.state if before is not None else git_state(self._workspace)

    def _is_reached_by(self, diff: LayerDiff) -> bool:
        """Whether the refs can have moved: most commands do not touch the repository."""
        workspace, inside = self._workspace, []
        if workspace.git_dir is None or workspace.git_common_dir is None:
            return False
        for place in (workspace.git_dir, workspace.git_common_dir):
            if not place.is_relative_to(workspace.root):
                return True  # outside the workspace: the layer does not show it
            inside.append(os.fsencode(place.relative_to(workspace.root)) + b"/")
        changed = (one.path + b"/" for one in diff.entries)
        return any(
            path.startswith(one) or one.startswith(path) for path in changed for one in inside
        )

    def update_index(self, upper: Path, arrival: GitArrival, before: GitWatch | None) -> bool:
        """After the arrival: give the index the stat data of the files that arrived.

        Returns whether an index that arrived with them was written again.
        """
        if arrival.fresh is not None and before is not None:
            stood = before.stamps[0]
            refreshed_index.put_in_place(self._workspace, upper, arrival.fresh, stood)
        return arrived_index.bring_up_to_date(self._workspace.root, upper, arrival.diff)

    # ----------------------------------------------------------------------------- what it did

    def effect_since(self, before: GitState) -> Effect:
        """What moved since `before`, without branches that other worktrees have checked out."""
        return effect_since(self._workspace, before)

    def effect_outside(self, before: GitWatch | None) -> Effect:
        """The same for a git directory outside the workspace, of which no layer shows anything."""
        if before is None or not is_outside(self._workspace):
            return {}
        return effect_since(self._workspace, before.state)

    def code_changed(self, before: GitWatch) -> list[str]:
        """Files outside the workspace that make git run code, and that changed since."""
        return code_changed(before.code, self._workspace) if before.code else []

    def links(self, home: bytes, own: tuple[bytes, ...], content: Content) -> GitLinks:
        """Paths in the workspace that git's settings name; see `git_settings.links`."""
        from substrate.recorder.user_git import git_settings

        return git_settings.links(os.fsencode(self._workspace.root), home, own, content)

    # ------------------------------------------------------------------------------- undo and redo

    def to_move(
        self, moved_by: Sequence[Entry], choice: Choice, verb: str = "", files_only: str = ""
    ) -> Effect:
        """What an undo of `moved_by` moves; empty if the refs stay.

        `verb`: the arguments after `substrate` that repeat this call; `files_only`: those that
        leave the branches alone, if it is not `--files-only` that does. Raises `MovedBranchesError`
        if the user has to choose, and `RefusedError` if the refs have moved again since.
        """
        from substrate.recorder.user_git import undo_branches as undoing

        verb = verb or undoing.verb_for(moved_by[0])
        return undoing.to_move(
            self._workspace, moved_by, choice, verb, files_only or f"{verb} --files-only"
        )

    def move(self, store: HistoryStore, effect: Effect, outcome: Outcome) -> Outcome:
        """Move the refs back, after the files."""
        from substrate.recorder.user_git import undo_branches as undoing

        return undoing.move(self._workspace, store, effect, outcome)

    def files_back(self, store: HistoryStore, outcome: Outcome) -> Outcome:
        """Before refs move: restore objects, config and the like, and nested repositories."""
        from substrate.recorder.user_git import undo_branches as undoing

        return undoing.files_of_git(store, outcome)

    def only_refs(self, store: HistoryStore, picked: Picked, choice: Choice, by: str) -> Outcome:
        """Take back a command that moved refs and changed no file. `by`: the agent's id."""
        from substrate.recorder.user_git import undo_branches as undoing

        return undoing.only_refs(self._workspace, store, picked, choice, by)

    def notes(self, store: HistoryStore, choice: Choice, outcome: Outcome) -> Outcome:
        """Add notes on how to move back the refs that an undone command moved and that stay."""
        from substrate.recorder.user_git import undo_branches as undoing

        return undoing.with_notes(self._workspace, store, choice, outcome)

    def finish(self, store: HistoryStore) -> list[str]:
        """Move the refs of an undo that was killed before. Inside the lock. Returns messages."""
        from substrate.recorder.user_git import undo_branches as undoing

        return undoing.finish(self._workspace, store)

    def unmoved(self, store: HistoryStore) -> Entry | None:
        """The undo that was killed after it restored the files and before it moved refs."""
        from substrate.recorder.user_git import undo_branches as undoing

        return undoing.unmoved(store)
