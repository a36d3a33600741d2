"""One attempt at a rewrite: survey, decide, preserve, materialize, replay."""

from __future__ import annotations

from pathlib import Path

from substrate.errors import ChangedMeanwhileError, RefusedError
from substrate.model import Kind
from substrate.objects.index import index_file
from substrate.objects.store import Batch, ObjectStore
from substrate.rewrite.execute import carry_out
from substrate.rewrite.execute.background_status import Sweep
from substrate.rewrite.execute.carry_out import Done
from substrate.rewrite.execute.journal import HeadMove, Intent
from substrate.rewrite.execute.operation_scope import UnderWay
from substrate.rewrite.execute.run_rewrite import Request, RewriteOutcome
from substrate.rewrite.execute.working_copy import Head, WorkingCopy
from substrate.rewrite.plan import (
    Conversion,
    Decider,
    Decision,
    Files,
    Survey,
    is_as_recorded,
    look,
)
from substrate.rewrite.snapshots import Captured, Meta, recovery_command, write_artifacts
from substrate.rewrite.snapshots import capture_snapshot as capturing
from substrate.system import umask

_AS_IT_IS = ("HEAD", "@")


class Attempt:
    def __init__(
        self, copy: WorkingCopy, request: Request, base: bytes, target: bytes, now: UnderWay
    ) -> None:
        self.copy = copy
        self.request = request
        self.base = base
        self.target = target
        self.now = now
        self.operation_id = now.operation_id
        self.directory = now.directory
        self.head = copy.head()
        self.move = _head_move(copy, self.head, request.target, target)
        self.store = ObjectStore(copy.common_dir)

    def run(self, sweep: Sweep) -> RewriteOutcome:
        with Batch(self.store) as batch:
            return self._run(batch, sweep)

    def _run(self, batch: Batch, sweep: Sweep) -> RewriteOutcome:
        survey = look(self.copy, self.base, self.target, sweep)
        conversion = Conversion(self.copy, survey, self.store, self.directory)
        decider = Decider(self.copy, survey, batch, conversion, self.directory, umask.current())
        decision = decider.decide(defer_untracked=self.request.defer_untracked)
        if self.request.dry_run:
            return self._outcome(decision, survey, None, None, changed=False)
        captured = self._preserve(batch, survey, decision)
        artifacts = write_artifacts(self.copy, captured) if captured else None
        if decision.conflicts and self.request.policy == "strict":
            return self._outcome(decision, survey, captured, artifacts, changed=False)
        if captured and capturing.verify(self.copy, captured, batch):
            raise ChangedMeanwhileError(
                "files changed while they were being captured; nothing was changed",
                hint="try again",
            )
        done = carry_out.carry_out(self.copy, self._intent(decision), self.store, self.now.lock)
        outcome = self._outcome(decision, survey, captured, artifacts, changed=True)
        return _with(outcome, done)

    def _preserve(self, batch: Batch, survey: Survey, decision: Decision) -> Captured | None:
        """Take a snapshot if user work could be lost; make all objects durable either way."""
        if not (self._has_work(batch, survey) or decision.with_work or decision.overwritten):
            capturing.make_durable(batch)
            return None
        planned = {op.path: op.expect for op in decision.plan.ops}
        kept = {p: n for p, n in planned.items() if n.kind in (Kind.FILE, Kind.SYMLINK)}
        meta = Meta(
            operation="rewrite", operation_id=self.operation_id, workspace=self.copy.name,
            base=self.base.hex(), target=self.request.target, target_commit=self.target.hex(),
            head_ref=self.head.ref, head_commit=self.head.commit.hex(), planned=tuple(planned),
        )  # fmt: skip
        return capturing.capture(self.copy, survey, batch, meta, self.directory, kept)

    def _has_work(self, batch: Batch, survey: Survey) -> bool:
        if survey.staged or survey.unmerged or survey.intent_to_add or survey.untracked:
            return True
        # A file that was only touched, or rewritten with the same bytes, holds no user work.
        files = Files(self.copy.root, batch)
        return any(
            recorded is None or not is_as_recorded(files.node(path), recorded)
            for path, recorded in survey.dirty.items()
        )

    def _intent(self, decision: Decision) -> Intent:
        return Intent(
            directory=self.directory,
            operation_id=self.operation_id,
            operation="rewrite",
            plan=decision.plan,
            entries=decision.entries,
            late=decision.late,
            head=self.move,
            old_index=index_file.fingerprint(self.copy.index_file),
        )

    def _outcome(
        self,
        decision: Decision,
        survey: Survey,
        captured: Captured | None,
        artifacts: Path | None,
        *,
        changed: bool,
    ) -> RewriteOutcome:
        before = self.head.ref.removeprefix("refs/heads/") or self.head.commit.hex()
        back = f"substrate rewrite --base {self.target.hex()} --target {before}"
        at_target = self.head.commit == self.target
        notes = [f"left alone: {text}" for text in (captured.skipped if captured else ())]
        if self.head.commit != self.base and not at_target:
            # HEAD was neither at the base nor at the target: a rewrite in the other direction
            # leads to the base, while the command above would lead to the old HEAD.
            back = f"substrate rewrite --base {self.target.hex()} --target {self.base.hex()}"
        return RewriteOutcome(
            base=self.base,
            target=self.target,
            head=(self.move.ref or self.move.commit or self.head.describe())
            if changed
            else self.head.describe(),
            was_at_target=at_target,
            changed=changed,
            plan=decision.plan,
            merged=decision.merged,
            conflicts=decision.conflicts,
            overwritten=decision.overwritten,
            deferred=survey.untracked if self.request.defer_untracked else (),
            snapshot=captured,
            artifacts=artifacts,
            recover_with=recovery_command(captured.name) if captured else back,
            notes=notes,
        )


def _with(outcome: RewriteOutcome, done: Done) -> RewriteOutcome:
    conflicts = {**outcome.conflicts, **done.late}
    return outcome._replace(conflicts=conflicts, notes=outcome.notes + done.notes)


def _head_move(copy: WorkingCopy, head: Head, text: str, target: bytes) -> HeadMove:
    """A branch name attaches HEAD to it; `HEAD` leaves HEAD alone; anything else detaches it."""
    if text in _AS_IT_IS:
        return HeadMove()
    ref = text if text.startswith("refs/heads/") else f"refs/heads/{text}"
    if copy.branch(ref) is None:
        ref = ""
    if ref and ref == head.ref:
        return HeadMove()
    if not ref and not head.ref and head.commit == target:
        return HeadMove()
    if ref:
        _refuse_elsewhere(copy, ref)
    message = f"rewrite: moving from {head.describe()} to {text}"
    return HeadMove(ref, "" if ref else target.hex(), head.ref, head.commit.hex(), message)


def _refuse_elsewhere(copy: WorkingCopy, ref: str) -> None:
    """Two working copies on one branch would each undo the other's commits."""
    if not (copy.common_dir / "worktrees").is_dir():
        return
    here = str(copy.root)
    for block in copy.git.run("worktree", "list", "--porcelain").decode().split("\n\n"):
        lines = block.splitlines()
        if f"branch {ref}" in lines and f"worktree {here}" not in lines:
            raise RefusedError(
                f"{ref} is checked out in another working copy: {lines[0].partition(' ')[2]}",
                hint="name the commit instead of the branch, or work there",
            )
