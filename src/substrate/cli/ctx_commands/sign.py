"""Sign a pack."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from substrate.errors import EXIT_OK
from substrate.recorder.packing import find_store, pack_refs, short, signatures

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "sign"
HELP = "sign a pack with an SSH key"
EXAMPLE = "ctx sign latest --key ~/.ssh/id_ed25519"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("ref", metavar="REF", help="the pack: hash, ctx:// or tag")
    parser.add_argument("--key", metavar="FILE", required=True, help="an SSH key of yours")
    parser.epilog = (parser.epilog or "") + "\n\nctx verify ARTIFACT --signed-by FILE checks it."


def run(args: Namespace, context: Context) -> int:
    store = find_store(context.cwd)
    pack = pack_refs.load(store, args.ref)
    with store.writing("signing a pack"):
        path = signatures.sign(store, pack.ref, Path(context.cwd, Path(args.key).expanduser()))
    if context.json:
        context.output.emit_json({"pack": pack.ref, "signature": str(path)})
    else:
        context.output.line(f"signed {short(pack.ref)}: {path}")
    return EXIT_OK
