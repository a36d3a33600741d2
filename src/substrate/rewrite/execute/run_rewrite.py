"""A rewrite: its request, its outcome, and the retries while files change."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from substrate.errors import ChangedMeanwhileError
from substrate.rewrite.execute.background_status import Sweep
from substrate.rewrite.execute.operation_scope import needs_settling, under_way
from substrate.rewrite.execute.working_copy import WorkingCopy, check_ready

if TYPE_CHECKING:
    from pathlib import Path

    from substrate.model import RelPath
    from substrate.rewrite.snapshots import Captured
    from substrate.workspace.apply import Plan

_TRIES = 3


class Request(NamedTuple):
    base: str
    target: str
    #: ``warn`` leaves conflicts in the tree and the index; ``strict`` changes nothing then.
    policy: str = "warn"
    defer_untracked: bool = False
    dry_run: bool = False


class RewriteOutcome(NamedTuple):
    """What a rewrite did, or, for a dry run, would do."""

    base: bytes
    target: bytes
    #: HEAD afterwards: a branch's full name or a commit id.
    head: str
    #: Whether HEAD was at the target before: a conflict then does not make the move fail.
    was_at_target: bool
    #: False: nothing was changed (a dry run, or conflicts under ``strict``).
    changed: bool
    plan: Plan
    merged: tuple[RelPath, ...]
    conflicts: dict[RelPath, str]
    overwritten: tuple[RelPath, ...]
    deferred: tuple[RelPath, ...]
    snapshot: Captured | None
    artifacts: Path | None
    #: The command that restores everything.
    recover_with: str
    notes: list[str]

    @property
    def result(self) -> str:
        if self.conflicts:
            return "conflict"
        return "done" if self.changed else "planned"


def rewrite(copy: WorkingCopy, request: Request) -> RewriteOutcome:
    """Move the working copy from `base` to `target`, keeping all of the user's work in it."""
    check_ready(copy)
    base, target = copy.git.commits([request.base, request.target])
    with copy.locked("rewrite"):
        said = [] if request.dry_run else _settled(copy)
        for attempt in range(_TRIES):
            try:
                outcome = _attempt(copy, request, base, target)
            except ChangedMeanwhileError:
                if attempt == _TRIES - 1:
                    raise
            else:
                return outcome._replace(notes=said + outcome.notes)
    raise AssertionError("unreachable")


def _settled(copy: WorkingCopy) -> list[str]:
    if not needs_settling(copy):
        return []
    from substrate.rewrite.execute.carry_out import settle  # as below

    return settle(copy)


def _attempt(copy: WorkingCopy, request: Request, base: bytes, target: bytes) -> RewriteOutcome:
    with under_way(copy, dry_run=request.dry_run) as now:
        sweep = Sweep(copy)
        # Import only now: git is scanning, and the imports take a third as long as the scan.
        from substrate.rewrite.execute.attempt import Attempt

        return Attempt(copy, request, base, target, now).run(sweep)
