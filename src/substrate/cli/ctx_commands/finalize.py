"""Make a pack of a draft."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.errors import EXIT_OK
from substrate.recorder.packing import finalize, find_draft, find_store, uri_of

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "finalize"
HELP = "make a pack of an edited draft"
EXAMPLE = "ctx finalize 1e7070df4df2.draft.json"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("draft", metavar="DRAFT", help="its path, or its name in .ctx/drafts")
    parser.epilog = (
        parser.epilog or ""
    ) + "\n\nThe new pack's parent is the pack that the draft was forked from."


def run(args: Namespace, context: Context) -> int:
    store = find_store(context.cwd)
    path = find_draft(store, args.draft, context.cwd)
    done = finalize(store, path, context.cwd)
    if context.json:
        context.output.emit_json(
            {
                "pack": done.pack.ref,
                "uri": uri_of(done.pack.ref),
                "parent": done.pack.manifest.parent,
                "unchanged": done.unchanged,
            }
        )
        return EXIT_OK
    context.output.line(uri_of(done.pack.ref))
    if done.unchanged:
        context.output.note("nothing was changed in the draft but its parent")
    if done.kept is not None:
        context.output.note(f"the draft stays where it is: {done.kept}")
    return EXIT_OK
