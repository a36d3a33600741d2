"""Export packs to one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from substrate.cli.render import secrets_json, tell_secrets
from substrate.errors import EXIT_OK, RefusedError, UsageError
from substrate.recorder.packing import (
    Found,
    envelope,
    export,
    find_secrets,
    find_store,
    pack_refs,
    redacted_pack,
    statement,
)
from substrate.system.files import write_atomic

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "export"
HELP = "write packs to a file that others can import"
EXAMPLE = "ctx export latest run.ctx.tar.gz"

_MORE = """
A bundle is a tar archive, gzipped if FILE ends in .gz or .tgz, with everything the packs need and
the packs they were forked from. ctx import FILE takes it in elsewhere. What looks like a secret is
named; --redact replaces it in prompts, commands and outputs (not in files), under a new id.
"""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("refs", nargs="+", metavar="REF", help="the packs: hash, ctx:// or tag")
    parser.add_argument("file", metavar="FILE", help="what to write")
    parser.add_argument(
        "--format",
        choices=("bundle", "in-toto", "dsse"),
        default="bundle",
        help="in-toto: one pack as an in-toto statement; dsse: the same in an envelope",
    )
    parser.add_argument("--no-parents", action="store_true", help="without the packs forked from")
    parser.add_argument(
        "--redact", action="store_true",
        help="replace what looks like a secret in prompts, commands and outputs by [redacted]",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="write over a FILE that is there")
    parser.epilog = (parser.epilog or "") + "\n" + _MORE


def run(args: Namespace, context: Context) -> int:
    store = find_store(context.cwd)
    path = Path(context.cwd, args.file)
    if path.exists() and not args.force:
        raise RefusedError(
            f"{args.file} is there already", hint="choose another name, or add --force"
        )
    packs = [pack_refs.load(store, name) for name in args.refs]
    if args.redact:
        with store.writing("redacting"):
            packs = [redacted_pack(store, pack) for pack in packs]
    found = {pack.ref: find_secrets(store.objects, pack.manifest) for pack in packs}
    if args.format != "bundle":
        if len(packs) != 1:
            raise UsageError("a statement is about one pack", hint="name one pack and a file")
        told = statement(packs[0]) if args.format == "in-toto" else envelope(packs[0])
        write_atomic(path, json.dumps(told, indent=2).encode() + b"\n", mode=0o644)
        _tell(context, [packs[0].ref], path, 0, found)
        return EXIT_OK
    done = export(store, [pack.ref for pack in packs], path, parents=not args.no_parents)
    for ref in done.packs:  # includes the packs they were forked from
        found.setdefault(ref, find_secrets(store.objects, store.load(ref).manifest))
    _tell(context, list(done.packs), path, done.objects, found)
    return EXIT_OK


def _tell(
    context: Context, packs: list[str], path: Path, objects: int, found: dict[str, list[Found]]
) -> None:
    size = path.stat().st_size
    if context.json:
        context.output.emit_json(
            {"file": str(path), "packs": packs, "objects": objects, "bytes": size}
            | {"secrets": secrets_json(found)}
        )
        return
    count = f"{len(packs)} pack" + ("" if len(packs) == 1 else "s")
    context.output.line(f"{path}: {count}, {objects:,} objects, {size:,} bytes")
    tell_secrets(context, found, "ctx export --redact")
