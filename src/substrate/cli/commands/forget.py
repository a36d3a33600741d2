"""Remove content from everything that Substrate recorded."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from substrate.cli.render import place_of
from substrate.errors import EXIT_DIFFERENT, EXIT_OK, RefusedError, UsageError
from substrate.model import SHORTEST_SECRET, ForgetRule, display
from substrate.recorder import Forgotten, forget

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "forget"
HELP = "remove a file or a secret from history, trash, outputs and packs"
EXAMPLE = "substrate forget .env --dry-run"

_SHOWN = 20


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "path", nargs="?", metavar="PATH", help="a file or directory: all recorded versions go"
    )
    parser.add_argument(
        "--secret", metavar="TEXT",
        help="a text: replaced by [forgotten] wherever it was recorded; '-' reads it from stdin,"
        " so that it is in no shell history",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="only list what would be removed")
    parser.add_argument("--yes", action="store_true", help="do it without asking")


def run(args: Namespace, context: Context) -> int:
    place = place_of(context)
    if (args.path is None) == (args.secret is None):
        raise UsageError("name a PATH or a --secret, one of the two", hint=EXAMPLE)
    if args.path is not None:
        path = place.rel_path(args.path)
        if not path:
            raise UsageError(
                "the whole workspace cannot be forgotten",
                hint="to start over, with the old history put aside: substrate history reset",
            )
        rule = ForgetRule(path=path)
    else:
        rule = ForgetRule(secret=_secret(args.secret))
    plan = None if args.dry_run or args.yes else forget(place, rule, dry_run=True)
    if plan is not None and not (plan.is_nothing and _can_ask(args, context)):
        _confirm(args, context, plan)
        plan = None
    done = plan or forget(place, rule, dry_run=args.dry_run)
    if context.json:
        context.output.emit_json(_json(done, dry_run=args.dry_run))
    else:
        _print(done, context, dry_run=args.dry_run)
    return EXIT_DIFFERENT if done.left else EXIT_OK


def _confirm(args: Namespace, context: Context, plan: Forgotten) -> None:
    """Ask on the terminal, or require --yes: what is forgotten cannot be restored."""
    if _can_ask(args, context):
        _print(plan, context, dry_run=True, asks=True)
        context.output.line("Nothing brings this back. Type forget to remove it, or Enter to stop:")
        context.output.flush()
        if sys.stdin.readline().strip() == "forget":
            return
    raise RefusedError(
        "nothing was removed: forgetting needs a confirmation",
        hint="look with --dry-run, then add --yes",
    )


def _can_ask(args: Namespace, context: Context) -> bool:
    is_terminal = sys.stdin.isatty() and context.output.is_terminal
    return is_terminal and not context.json and args.secret != "-"


def _secret(given: str) -> str:
    text = sys.stdin.readline().rstrip("\n") if given == "-" else given
    if len(text) < SHORTEST_SECRET:
        raise UsageError(
            f"the text is shorter than {SHORTEST_SECRET} characters: it would match everywhere",
            hint="give the whole secret",
        )
    return text


def _json(done: Forgotten, *, dry_run: bool) -> dict[str, object]:
    return {
        "dry_run": dry_run,
        "entries": {
            command_id: [display(path) for path in paths]
            for command_id, paths in done.history.entries.items()
        },
        "command_texts": list(done.history.texts),
        "recovery_states": len(done.history.recoveries),
        "trash": list(done.trash),
        "outputs": [str(path) for path in done.outputs],
        "spans": done.spans,
        "packs": done.packs,
        "graph_dropped": done.graph_dropped,
        "left": list(done.left),
        "not_searched": list(done.not_searched),
    }


def _print(done: Forgotten, context: Context, *, dry_run: bool, asks: bool = False) -> None:
    """`asks`: a question follows the plan."""
    line = context.output.line
    if done.is_nothing:
        line("Nothing recorded here holds it.")
        _print_limits(done, context)
        return
    line("Would be removed:" if dry_run else "Removed for good:")
    rows = [
        *(f"{cid}: {', '.join(map(display, p))}" for cid, p in done.history.entries.items()),
        *(f"{cid}: the command's own text" for cid in done.history.texts),
        *(f"trash {name}" for name in done.trash),
        *(f"output {path}" for path in done.outputs),
        *(f"pack {old[7:19]} → {new[7:19] or 'a new id'}" for old, new in done.packs.items()),
    ]
    for row in rows[:_SHOWN]:
        line("  ", row)
    if len(rows) > _SHOWN:
        line(f"  … and {len(rows) - _SHOWN} more (--json lists all)")
    if done.history.recoveries:
        line(f"  {len(done.history.recoveries)} recovery snapshot(s)")
    if done.spans:
        line(f"  {done.spans} span(s) of the trace")
    if done.graph_dropped:
        line("  the code graph in .ctx; `ctx index` builds it again")
    for text in done.left:
        context.output.note(f"not removed: {text}")
    _print_limits(done, context)
    if dry_run and not asks:
        line("Nothing was changed. Run it again without --dry-run to remove it for good.")


def _print_limits(done: Forgotten, context: Context) -> None:
    context.output.note(f"not searched: {'; '.join(done.not_searched)}")
