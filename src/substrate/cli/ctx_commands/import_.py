"""Import packs from an exported file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from substrate.errors import EXIT_OK, UsageError
from substrate.recorder.packing import MAX_BYTES, find_store, import_bundle, uri_of

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "import"
HELP = "take in packs from a bundle, every object checked"
EXAMPLE = "ctx import run.ctx.tar.gz"

_GIB = 1 << 30


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="what `ctx export` wrote")
    parser.add_argument(
        "--max-size",
        type=float,
        metavar="GIB",
        default=MAX_BYTES / _GIB,
        help=f"refuse a bundle that unpacks to more ({MAX_BYTES // _GIB})",
    )
    parser.epilog = (
        parser.epilog or ""
    ) + "\n\nAll of it is taken in, or none: a bundle that is wrong anywhere changes nothing."


def run(args: Namespace, context: Context) -> int:
    if not args.max_size > 0:
        raise UsageError("--max-size must be above 0", hint="it is in GiB")
    store = find_store(context.cwd)
    done = import_bundle(store, Path(context.cwd, args.file), int(args.max_size * _GIB))
    if context.json:
        context.output.emit_json(
            {
                "packs": list(done.packs),
                "objects": done.objects,
                "bytes": done.bytes,
                "signatures": done.signatures,
            }
        )
        return EXIT_OK
    for ref in done.packs:
        context.output.line(uri_of(ref))
    return EXIT_OK
