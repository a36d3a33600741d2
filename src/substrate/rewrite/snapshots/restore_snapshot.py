"""Bring a snapshot back into the working copy, with a snapshot of what stands there first."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from substrate.errors import ChangedMeanwhileError, RefusedError
from substrate.model.nodes import Kind, Node
from substrate.model.paths import RelPath, is_within
from substrate.objects import snapshot as snapshots
from substrate.objects.batch import Batch
from substrate.objects.store import ObjectStore
from substrate.rewrite import capture as capturing
from substrate.rewrite import index_file, transition
from substrate.rewrite.artifacts import recovery_command, write_artifacts
from substrate.rewrite.capture import Captured
from substrate.rewrite.decide import Files
from substrate.rewrite.journal import HeadMove, Intent
from substrate.rewrite.kept import Kept
from substrate.rewrite.layout import Planner, Wish, plan_of
from substrate.rewrite.meta import Meta
from substrate.rewrite.survey import look
from substrate.rewrite.sweep import Sweep
from substrate.rewrite.tree_files import files_of
from substrate.rewrite.under_way import UnderWay, under_way
from substrate.rewrite.working_copy import WorkingCopy, check_ready
from substrate.system.files import fsync_file
from substrate.system.process import current_umask
from substrate.workspace.plan import Plan

_TRIES = 3
_INDEX = "index.wanted"


class Choice(NamedTuple):
    #: Files and directories of the snapshot; none: everything the operation changed or met.
    paths: tuple[RelPath, ...] = ()
    #: The index and HEAD as they were, too.
    with_git: bool = False
    dry_run: bool = False


class BroughtBack(NamedTuple):
    plan: Plan
    conflicts: dict[RelPath, str]
    snapshot: Captured | None
    artifacts: Path | None
    recover_with: str
    notes: list[str]


def bring_back(copy: WorkingCopy, kept: Kept, choice: Choice) -> BroughtBack:
    """Put the chosen paths (and, if asked, index and HEAD) back as the snapshot has them."""
    check_ready(copy)
    with copy.locked("restore"):
        for attempt in range(_TRIES):
            try:
                with under_way(copy, dry_run=choice.dry_run) as now:
                    return _Attempt(copy, kept, choice, now).run()
            except ChangedMeanwhileError:
                if attempt == _TRIES - 1:
                    raise
    raise AssertionError("unreachable")


class _Attempt:
    def __init__(self, copy: WorkingCopy, kept: Kept, choice: Choice, now: UnderWay) -> None:
        self.copy = copy
        self.kept = kept
        self.choice = choice
        self.now = now
        self.head = copy.head()
        self.store = ObjectStore(copy.common_dir)

    def run(self) -> BroughtBack:
        move = self._head_move()
        with Batch(self.store) as batch:
            return self._run(batch, move)

    def _run(self, batch: Batch, move: HeadMove) -> BroughtBack:
        files = Files(self.copy.root, batch)
        wishes = {
            path: Wish(files.node(path), node)
            for path, node in self._wanted().items()
            # What is in a directory is listed on its own; the directory itself stays as it is.
            if not files.node(path).kind is node.kind is Kind.DIRECTORY
        }
        layout = Planner(
            self.copy.root, files.node, lambda path: True, 0o777 & ~current_umask()
        ).lay_out(wishes)
        plan = plan_of(layout.ops)
        if self.choice.dry_run:
            return BroughtBack(plan, layout.blocked, None, None, "", [])
        captured = self._preserve(batch, plan)
        artifacts = write_artifacts(self.copy, captured)
        if capturing.verify(self.copy, captured, batch):
            raise ChangedMeanwhileError("files changed meanwhile; nothing was changed")
        wanted_index = self._lay_out_index() if self.choice.with_git else ""
        intent = Intent(
            directory=self.now.directory, operation_id=self.now.operation_id, operation="restore",
            plan=plan, entries={}, late={}, head=move,
            old_index=index_file.fingerprint(self.copy.index_file), index_file=wanted_index,
        )  # fmt: skip
        done = transition.carry_out(self.copy, intent, self.store, self.now.lock)
        return BroughtBack(
            plan, {**layout.blocked, **done.late}, captured, artifacts,
            recovery_command(captured.name), done.notes,
        )  # fmt: skip

    def _wanted(self) -> dict[RelPath, Node]:
        """Named paths: what the snapshot has there. Otherwise also what it says was not there."""
        state = self.kept.state
        if not self.choice.paths:
            return {p: snapshots.lookup(self.store, state, p) for p in self.kept.meta.paths}
        scopes = self.choice.paths
        found = {
            path: node
            for path, node in files_of(self.store, state)
            if any(is_within(path, scope) for scope in scopes)
        }
        for scope in scopes:
            if not any(is_within(path, scope) for path in found):
                raise RefusedError(
                    f"{self.kept.name} holds nothing at {scope.decode('utf-8', 'replace')}",
                    hint=f"`substrate recover show {self.kept.name}` lists what it kept",
                )
        return found

    def _preserve(self, batch: Batch, plan: Plan) -> Captured:
        head = self.head.commit
        survey = look(self.copy, head, head, Sweep(self.copy))
        planned = {op.path: op.expect for op in plan.ops}
        contents = {p: n for p, n in planned.items() if n.kind in (Kind.FILE, Kind.SYMLINK)}
        meta = Meta(
            operation="restore", operation_id=self.now.operation_id, workspace=self.copy.name,
            base=head.hex(), target=self.kept.name, target_commit=head.hex(),
            head_ref=self.head.ref, head_commit=head.hex(), planned=tuple(planned),
        )  # fmt: skip
        if self.choice.with_git:
            meta = meta._replace(target_commit=self.kept.meta.head_commit)
        return capturing.capture(self.copy, survey, batch, meta, self.now.directory, contents)

    # -- index and HEAD -------------------------------------------------------------------------

    def _lay_out_index(self) -> str:
        place = self.now.directory / _INDEX
        if self.kept.index_file:
            place.write_bytes(self.store.read_blob(self.kept.index_file))
        else:
            self.copy.git.run("read-tree", self.kept.index_tree.hex(), index=place)
        fsync_file(place)  # whoever finishes this after a power cut needs it whole
        return _INDEX

    def _head_move(self) -> HeadMove:
        if not self.choice.with_git:
            return HeadMove()
        meta, now = self.kept.meta, self.head
        if now.commit.hex() not in (meta.target_commit, meta.head_commit):
            raise RefusedError(
                f"HEAD has moved on since {self.kept.name} was taken",
                hint="leave out --with-git to bring back the files alone",
            )
        if (now.ref, now.commit.hex()) == (meta.head_ref, meta.head_commit):
            return HeadMove()
        if meta.head_ref and now.ref == meta.head_ref:
            return HeadMove()
        return HeadMove(
            meta.head_ref, "" if meta.head_ref else meta.head_commit, now.ref, now.commit.hex(),
            f"restore: moving back to {meta.head_ref or meta.head_commit}",
        )  # fmt: skip
