"""Move a git working copy to another commit, keeping the user's work in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import Output, Styled
from substrate.errors import EXIT_DIFFERENT, EXIT_OK
from substrate.model import display, name_fields
from substrate.recorder import Request, RewriteOutcome, rewrite_working_copy

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context
    from substrate.recorder import Place

NAME = "rewrite"
HELP = "move a git working copy to another commit, keeping the work in it"
EXAMPLE = "substrate rewrite --base HEAD~1 --target main"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--base", required=True, metavar="REV", help="the commit the files on disk are based on"
    )
    parser.add_argument(
        "--target", required=True, metavar="REF",
        help="where to go; a branch becomes HEAD, a commit detaches it; no branch moves",
    )  # fmt: skip
    parser.add_argument("--repo", metavar="DIR", help="the working copy; default: where you are")
    parser.add_argument(
        "--workspace", metavar="NAME", dest="name",
        help="a name for this working copy in its recovery refs; default: default",
    )  # fmt: skip
    parser.add_argument(
        "--policy", choices=("warn", "strict"), default="warn",
        help="conflicts: warn leaves them in tree and index, strict changes nothing",
    )  # fmt: skip
    parser.add_argument(
        "--defer-untracked", action="store_true",
        help="leave untracked files in the snapshot instead of the tree",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="print the plan, change nothing")


def run(args: Namespace, context: Context) -> int:
    request = Request(args.base, args.target, args.policy, args.defer_untracked, args.dry_run)
    start = context.cwd / args.repo if args.repo else context.cwd

    def place() -> Place:
        # Import only if needed: history takes as much start-up time as everything else.
        from substrate.cli.render import place_of

        return place_of(context)

    outcome = rewrite_working_copy(start, request, args.name, place)
    if context.json:
        context.output.emit_json(_json(outcome, request))
    else:
        _show(context.output, outcome, request)
    return _status(outcome, request)


def _status(outcome: RewriteOutcome, request: Request) -> int:
    """A conflict is a nonzero exit status, except when HEAD was at the target before: the
    remaining clean-up must not look like a failed merge."""
    if not outcome.conflicts:
        return EXIT_OK
    cleaning_up = outcome.was_at_target and outcome.changed
    return EXIT_OK if cleaning_up else EXIT_DIFFERENT


def _json(outcome: RewriteOutcome, request: Request) -> dict[str, object]:
    snapshot = outcome.snapshot
    out: dict[str, object] = {
        "outcome": outcome.result,
        "changed": outcome.changed,
        "policy": request.policy,
        "base": outcome.base.hex(),
        "target": outcome.target.hex(),
        "head": outcome.head,
        "paths": [name_fields(op.path) for op in outcome.plan.ops],
        "merged": [name_fields(path) for path in outcome.merged],
        "conflicts": [{**name_fields(p), "reason": why} for p, why in outcome.conflicts.items()],
        "overwritten_ignored": [name_fields(path) for path in outcome.overwritten],
        "deferred": [name_fields(path) for path in outcome.deferred],
        "deferred_with": _deferred_with(outcome),
        "recovery_ref": snapshot.ref if snapshot else None,
        "recovery_oid": snapshot.commit.hex() if snapshot else None,
        "artifacts": str(outcome.artifacts) if outcome.artifacts else None,
        "recover_with": outcome.recover_with,
        "notes": outcome.notes,
    }
    if request.dry_run:
        out["dry_run"] = True
        out["plan"] = outcome.plan.describe()
    return out


def _show(output: Output, outcome: RewriteOutcome, request: Request) -> None:
    if request.dry_run:
        output.line(Styled(f"rewrite to {request.target}", "bold"), "  (dry run)")
        for line in outcome.plan.describe() or ["no file would change"]:
            output.line(line)
    elif outcome.changed:
        count = len(outcome.plan.ops)
        output.line(Styled(f"{outcome.head}", "bold"), f"  {count} path(s) changed")
    for path in outcome.merged:
        output.line("  ", Styled("merged with your work", "yellow"), f"  {display(path)}")
    for path in outcome.overwritten:
        output.line("  ", Styled("ignored file replaced", "yellow"), f"  {display(path)}")
    for path, why in outcome.conflicts.items():
        output.line(Styled("conflict", "red"), f"  {display(path)}: {why}")
    if outcome.conflicts and not outcome.changed and not request.dry_run:
        output.line("nothing was changed (--policy strict)")
    for note in outcome.notes:
        output.note(note)
    if request.dry_run:
        return
    if outcome.snapshot:
        output.line(f"snapshot: {outcome.snapshot.ref} {outcome.snapshot.commit.hex()}")
        output.line(f"artifacts: {outcome.artifacts}")
    if outcome.conflicts and outcome.changed:
        output.line("to settle a conflict: edit the file, then `git add` it")
    if outcome.deferred and outcome.changed:
        count = len(outcome.deferred)
        output.line(f"{count} untracked file(s) are in the snapshot only; to bring them back: ",
                    Styled(str(_deferred_with(outcome)), "cyan"))  # fmt: skip
    if outcome.changed:
        output.line("to take this back: ", Styled(outcome.recover_with, "cyan"))
    elif outcome.snapshot:
        output.line("to bring that snapshot back: ", Styled(outcome.recover_with, "cyan"))


def _deferred_with(outcome: RewriteOutcome) -> str | None:
    if not (outcome.deferred and outcome.snapshot and outcome.changed):
        return None
    return f"substrate recover restore {outcome.snapshot.name} --untracked"
