"""A diagram of the modules, or of a change and what it can break."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from substrate.cli.frame import Styled
from substrate.cli.render import place_of, progress_on
from substrate.errors import EXIT_OK, NotFoundError, UsageError
from substrate.recorder.code_graph import impact

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context
    from substrate.recorder.code_graph import Picture

NAME = "graph"
HELP = "draw the modules, or a change and what it can break"
EXAMPLE = "ctx graph --impact HEAD --out impact.html"
#: The format for each file name extension.
_ENDINGS = {"": "html", "html": "html", "htm": "html", "svg": "svg", "dot": "dot", "gv": "dot"}


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--format", choices=("html", "svg", "dot"), help="default html, or by --out"
    )
    parser.add_argument("--impact", metavar="REV|COMMAND-ID", help="draw this change")
    parser.add_argument("--commit", metavar="REV", help="modules as of REV (default HEAD)")
    parser.add_argument("--path", metavar="P", default="", help="only modules below P")
    parser.add_argument("--out", metavar="FILE", help="write there instead of stdout")


def run(args: Namespace, context: Context) -> int:
    from substrate.recorder.code_graph import to_dot, to_html, to_svg

    form = args.format or _form_by_name(args.out or "")
    if context.output.is_terminal and form != "dot" and not (args.out or context.json):
        raise UsageError(
            f"the picture is {form}, which a terminal cannot show",
            hint=f"ctx graph --out graph.{form} writes a file to open; a pipe gets it as it is",
        )
    picture, what = _picture(args, context)
    text = {
        "html": lambda: to_html(picture, what),
        "svg": lambda: to_svg(picture),
        "dot": lambda: to_dot(picture),
    }[form]()
    if args.out:
        _write(context.cwd / args.out, text)
    if context.json:
        context.output.emit_json(
            {
                "title": picture.title,
                "out": args.out,
                "nodes": [node._asdict() for node in picture.nodes],
                "edges": [edge._asdict() for edge in picture.edges],
            }
        )
    elif args.out:
        context.output.line(picture.title, ": ", Styled(args.out, "cyan"))
    else:
        context.output.block(text.encode("utf-8", "replace"))
    return EXIT_OK


def _form_by_name(out: str) -> str:
    ending = Path(out).suffix[1:].lower()
    form = _ENDINGS.get(ending)
    if form is None:
        raise UsageError(
            f"{out}: no picture of the kind {ending} can be drawn",
            hint="name it .html, .svg or .dot (dot -Tpng makes a PNG of that), or say --format",
        )
    return form


def _picture(args: Namespace, context: Context) -> tuple[Picture, str]:
    from substrate.recorder.code_graph import Picture, of_change, of_modules

    progress = progress_on(context.output)
    if args.impact is None:
        snapshot = impact.snapshot_at(context.cwd, args.commit, progress)
        name = args.path or context.cwd.name
        return of_modules(snapshot, args.path), f"Modules of {name}"
    found = impact.impact_of(context.cwd, args.impact, place_of(context), progress)
    what = f"Impact of {args.impact}"
    if found.entry is not None:
        what = f"Impact of {found.entry.command_id}: {found.entry.command.splitlines()[0][:80]}"
    if found.delta is None:
        return Picture("no file that was there before has changed", [], []), what
    return of_change(found.delta), what


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, "utf-8")
    except FileNotFoundError:
        raise NotFoundError(f"there is no directory {file.parent}", hint="make it first") from None
    except IsADirectoryError:
        raise UsageError(f"{file} is a directory", hint="name a file in it") from None
