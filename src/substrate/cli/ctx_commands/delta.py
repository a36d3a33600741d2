"""What differs between two commits, down to symbols, and what that can break."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.render import delta_json, progress_on, show_delta
from substrate.errors import EXIT_OK, UsageError
from substrate.recorder.code_graph import impact

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "delta"
HELP = "compare two commits: files, symbols, and what depends on them"
EXAMPLE = "ctx delta main HEAD --human"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("older", nargs="?", metavar="BASE", help="the older side")
    parser.add_argument("newer", nargs="?", metavar="HEAD", help="the newer side (default HEAD)")
    parser.add_argument("--base", metavar="REV", help="the older side, as an option")
    parser.add_argument("--head", metavar="REV", help="the newer side, as an option")
    parser.add_argument("--human", action="store_true", help="for people instead of JSON")


def run(args: Namespace, context: Context) -> int:
    base = _one_side("older", args.older, args.base)
    head = _one_side("newer", args.newer, args.head)
    if base is None:
        raise UsageError(
            "the older side is not named", hint="ctx delta BASE [HEAD], or --base REV [--head REV]"
        )
    progress = progress_on(context.output)
    found = impact.delta_between(context.cwd, base, "HEAD" if head is None else head, progress)
    if args.human and not context.json:
        show_delta(context.output, found)
    else:
        context.output.emit_json(delta_json(found))
    return EXIT_OK


def _one_side(side: str, word: str | None, option: str | None) -> str | None:
    if word is not None and option is not None:
        raise UsageError(
            f"the {side} side is named twice: {word} and {option}",
            hint="name both sides as words, or both by --base and --head",
        )
    return option if word is None else word
