"""Start a pack from another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.errors import EXIT_OK
from substrate.recorder.packing import drafts, find_store, pack_refs, short
from substrate.recorder.packing import fork as make_draft

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "fork"
HELP = "write a draft of a pack, to be edited and finalized"
EXAMPLE = "ctx fork latest"

_MORE = """
In the draft, content is named by its address. To change one, put the content there instead:
  {"role": "user", "content_ref": "sha256:…"}   becomes   {"role": "user", "content": "New words"}
content_b64 and path do as well; in a step, output, output_b64 and output_path.
Every fork gets a draft of its own. ctx finalize DRAFT makes a pack of it.
"""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("ref", metavar="REF", help="the pack: hash, ctx:// or tag")
    parser.epilog = (parser.epilog or "") + "\n" + _MORE


def run(args: Namespace, context: Context) -> int:
    store = find_store(context.cwd)
    pack = pack_refs.load(store, args.ref)
    with store.writing("forking a pack"):
        path = make_draft(store, pack)
    if context.json:
        context.output.emit_json({"draft": str(path), "parent": pack.ref})
        return EXIT_OK
    context.output.line(str(path))
    others = [other.name for other in drafts(store) if other.name.startswith(short(pack.ref))]
    if len(others) > 1:
        context.output.note(f"there are {len(others)} drafts of this pack: {', '.join(others)}")
    context.output.note(f"edit it, then: ctx finalize {path.name}")
    return EXIT_OK
