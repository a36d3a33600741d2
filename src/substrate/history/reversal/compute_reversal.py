"""The state of the workspace when some commits are taken back and everything else stays.

Pure planning on snapshots: nothing here touches the workspace.

Example: session s takes back its two commands, the user's edit between them stays.

    line:   P ── c1(s) ── e(outside) ── c2(s) ── tip
    steps:  (after=c2, before=e), then (after=c1, before=P)       newest first
    each step is merged into the present state of every path it changed
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from substrate.model import ABSENT, Change, Kind, Node, RelPath, ancestors, is_within, parent
from substrate.objects.snapshots import (
    Blobs,
    Collision,
    Merged,
    Snapshot,
    Take,
    is_document,
    merge_node,
)
from substrate.objects.snapshots import snapshot as snapshots
from substrate.objects.store import Batch


class Step(NamedTuple):
    """Take back the difference between two states of the line."""

    before: Snapshot
    after: Snapshot


class Wish(NamedTuple):
    """The wanted state of the paths concerned, against their present state (`Change.old`)."""

    changes: list[Change]
    merged: list[RelPath]
    conflicts: dict[RelPath, str]
    #: Directories that would be removed but still contain something that stays.
    kept_directories: list[RelPath]
    #: Paths in conflict that keep their present state, because the user chose so.
    kept: tuple[RelPath, ...] = ()


class Reversal:
    """Accumulates steps into one wish. `tip` is the present workspace (already scanned)."""

    def __init__(
        self,
        batch: Batch,
        tip: Snapshot,
        blobs: Blobs,
        *,
        scope: Iterable[RelPath] = (),
        take: Take | None = None,
    ) -> None:
        self._batch = batch
        self._tip = tip
        self._blobs = blobs
        self._scope = tuple(scope)
        self._take = take
        self._wanted: dict[RelPath, Node] = {}
        self._merged: set[RelPath] = set()
        self._conflicts: dict[RelPath, str] = {}
        self._kept: set[RelPath] = set()
        self._parents_seen: dict[RelPath, Snapshot] = {}
        self._present = snapshots.Lookup(batch, tip)

    def take_back(self, step: Step) -> None:
        for change in snapshots.diff(self._batch, step.after, step.before):
            if self._in_scope(change.path) and change.path not in self._conflicts:
                self._bring(change, step.before)

    def put_exactly(
        self,
        target: Snapshot,
        only: Collection[RelPath] | None = None,
        unseen_then: Callable[[Change], bool] = lambda _: False,
    ) -> None:
        """Without merging, set every path in scope to its state in `target`.

        With `only`, set just these paths: a path below one of them must be named itself. A path
        that is missing from `target` only because it was `unseen_then` stays.
        """
        for change in snapshots.diff(self._batch, self._tip, target):
            if change.new == ABSENT and unseen_then(change):
                continue
            if self._in_scope(change.path) and (only is None or change.path in only):
                self._want(change.path, change.new, target)

    def wish(self) -> Wish:
        self._add_missing_parents()
        kept = self._keep_filled_directories()
        changes = []
        for path in sorted(self._wanted):
            old = self._now(path)
            if old != self._wanted[path] and path not in self._conflicts:
                changes.append(Change(path, old, self._wanted[path]))
        merged = sorted(self._merged - set(self._conflicts))
        conflicts = dict(sorted(self._conflicts.items()))
        return Wish(changes, merged, conflicts, kept, tuple(sorted(self._kept)))

    # -- one path -------------------------------------------------------------------------------

    def _bring(self, change: Change, before: Snapshot) -> None:
        ours = self._view(change.path)
        blobs = self._blobs._replace(is_document=is_document(change.path))
        outcome = merge_node(change.old, ours, change.new, blobs, None)
        if isinstance(outcome, Collision) and self._take is not None:
            outcome = merge_node(change.old, ours, change.new, blobs, self._take)
            if isinstance(outcome, Merged) and outcome.node == ours:
                self._kept.add(change.path)
        if isinstance(outcome, Collision):
            self._conflicts[change.path] = outcome.why
            return
        if outcome.both:
            self._merged.add(change.path)
        self._want(change.path, outcome.node, before)

    def _want(self, path: RelPath, node: Node, source: Snapshot) -> None:
        self._wanted[path] = node
        if node != ABSENT:
            self._parents_seen[path] = source
        else:  # an earlier step may have brought it back: it no longer needs its directories
            self._parents_seen.pop(path, None)

    def _in_scope(self, path: RelPath) -> bool:
        return not self._scope or any(is_within(path, scope) for scope in self._scope)

    def _now(self, path: RelPath) -> Node:
        return self._present.node(path)

    def _view(self, path: RelPath) -> Node:
        """The state of the path with the wishes so far."""
        wanted = self._wanted.get(path)
        return wanted if wanted is not None else self._now(path)

    # -- directories ----------------------------------------------------------------------------

    def _add_missing_parents(self) -> None:
        """A file that comes back needs its directories, with their former modes.

        If the user has a file or link where such a directory was, that is a conflict.
        """
        complete: set[RelPath] = set()  # directories that exist, or come back
        for path, source in list(self._parents_seen.items()):
            if parent(path) in complete:
                continue
            for above in reversed(ancestors(path)):
                node = self._view(above)
                if node.kind is Kind.DIRECTORY:
                    continue
                wished_away = above in self._wanted and node == ABSENT
                stood = snapshots.lookup(self._batch, source, above)
                if node == ABSENT and stood.kind is Kind.DIRECTORY:
                    # Also if an earlier step wanted to remove the directory: its content came back.
                    self._wanted[above] = stood
                elif not wished_away or stood.kind is not Kind.DIRECTORY:
                    self._conflicts[path] = f"a {node.kind.value} is where its directory was"
                    break
            else:
                complete.add(parent(path))

    def _keep_filled_directories(self) -> list[RelPath]:
        """Keep a directory that should be removed but in which something stays."""
        kept = []
        filled = {parent(p) for p, n in self._wanted.items() if n != ABSENT}
        doomed = [p for p, n in self._wanted.items() if n == ABSENT]
        for path in sorted(doomed, key=lambda p: p.count(b"/"), reverse=True):
            now = self._now(path)
            if now.kind is Kind.DIRECTORY and (path in filled or self._anything_stays(path)):
                del self._wanted[path]
                kept.append(path)
        for path, node in list(self._wanted.items()):
            # A file cannot replace a directory in which something stays.
            if node.kind not in (Kind.DIRECTORY, Kind.ABSENT):
                now = self._now(path)
                if now.kind is Kind.DIRECTORY and (path in filled or self._anything_stays(path)):
                    self._conflicts[path] = "a directory with other files in it is there now"
        return sorted(kept)

    def _anything_stays(self, directory: RelPath) -> bool:
        prefix = directory + b"/"
        at = self._present.directory(directory)
        for name in at.names() if at is not None else ():
            child = RelPath(prefix + name)
            if child in self._conflicts or self._wanted.get(child) != ABSENT:
                return True
        return False


def text_merger(
    merge_file: Callable[[bytes, bytes, bytes, str | None], tuple[bytes, int] | None],
) -> Callable[[bytes, bytes, bytes, Take | None], bytes | None]:
    """Adapt git's file merge: None if the file is binary or lines conflict."""

    def merge(base: bytes, ours: bytes, theirs: bytes, take: Take | None) -> bytes | None:
        outcome = merge_file(base, ours, theirs, take.value if take else None)
        if outcome is None or outcome[1] != 0:  # a negative count: not text
            return None
        return outcome[0]

    return merge
