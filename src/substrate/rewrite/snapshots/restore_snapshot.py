"""Restore a snapshot into the working copy, after taking a snapshot of its current state."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from substrate.errors import ChangedMeanwhileError, RefusedError
from substrate.model import Kind, Node, RelPath, is_within
from substrate.objects.index import index_file
from substrate.objects.snapshots import snapshot as snapshots
from substrate.objects.store import Batch, ObjectStore
from substrate.rewrite.execute import (
    HeadMove,
    Intent,
    Sweep,
    UnderWay,
    WorkingCopy,
    carry_out,
    check_ready,
    under_way,
)
from substrate.rewrite.plan import Files, Planner, Wish, look, plan_of
from substrate.rewrite.snapshots import capture_snapshot as capturing
from substrate.rewrite.snapshots.artifacts import recovery_command, write_artifacts
from substrate.rewrite.snapshots.capture_snapshot import Captured
from substrate.rewrite.snapshots.list_snapshots import Kept
from substrate.rewrite.snapshots.snapshot_metadata import Meta
from substrate.rewrite.snapshots.tree_files import files_of
from substrate.system import umask
from substrate.system.files import fsync_file
from substrate.workspace.apply import Plan

_TRIES = 3
_INDEX = "index.wanted"


class RestoreChoice(NamedTuple):
    #: Files and directories of the snapshot; empty: everything the operation changed or found.
    paths: tuple[RelPath, ...] = ()
    #: Also restore the index and HEAD.
    with_git: bool = False
    dry_run: bool = False


class BroughtBack(NamedTuple):
    plan: Plan
    conflicts: dict[RelPath, str]
    snapshot: Captured | None
    artifacts: Path | None
    recover_with: str
    notes: list[str]


def bring_back(copy: WorkingCopy, kept: Kept, choice: RestoreChoice) -> BroughtBack:
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
    def __init__(self, copy: WorkingCopy, kept: Kept, choice: RestoreChoice, now: UnderWay) -> None:
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
            # A directory's contents have their own paths; the directory itself stays unchanged.
            if not files.node(path).kind is node.kind is Kind.DIRECTORY
        }
        layout = Planner(
            self.copy.root, files.node, lambda path: True, 0o777 & ~umask.current()
        ).lay_out(wishes)
        plan = plan_of(layout.ops)
        if self.choice.dry_run:
            return BroughtBack(plan, layout.blocked, None, None, "", [])
        captured = self._preserve(batch, plan)
        artifacts = write_artifacts(self.copy, captured)
        if capturing.verify(self.copy, captured, batch):
            raise ChangedMeanwhileError("files changed at the same time; nothing was changed")
        wanted_index = self._lay_out_index() if self.choice.with_git else ""
        intent = Intent(
            directory=self.now.directory, operation_id=self.now.operation_id, operation="restore",
            plan=plan, entries={}, late={}, head=move,
            old_index=index_file.fingerprint(self.copy.index_file), index_file=wanted_index,
        )  # fmt: skip
        done = carry_out.carry_out(self.copy, intent, self.store, self.now.lock)
        return BroughtBack(
            plan, {**layout.blocked, **done.late}, captured, artifacts,
            recovery_command(captured.name), done.notes,
        )  # fmt: skip

    def _wanted(self) -> dict[RelPath, Node]:
        """The named paths in the snapshot; if none are named, all of its paths, absent ones too."""
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
        fsync_file(place)  # must be whole to finish this after a power cut
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
