"""Name packs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import Styled
from substrate.errors import EXIT_OK, UsageError
from substrate.recorder.packing import find_store, pack_refs, short

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "tag"
HELP = "give a pack a name, or list the names"
EXAMPLE = "ctx tag before-upgrade latest"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="such as v1.2 or team/fix")
    parser.add_argument("ref", nargs="?", metavar="REF", help="the pack: hash, ctx:// or tag")
    parser.add_argument("--delete", action="store_true", help="take the name away; the pack stays")


def run(args: Namespace, context: Context) -> int:
    store = find_store(context.cwd)
    if args.name is None:
        if args.delete:
            raise UsageError("no tag was named", hint="ctx tag --delete NAME")
        _list(pack_refs.tags(store), context)
    elif args.delete:
        if args.ref is not None:
            raise UsageError("--delete takes a name only", hint=f"ctx tag --delete {args.name}")
        _tell(context, args.name, None, pack_refs.delete_tag(store, args.name))
    else:
        if args.ref is None:
            raise UsageError("no pack was named", hint=f"ctx tag {args.name} latest")
        pack = pack_refs.load(store, args.ref)
        _tell(context, args.name, pack.ref, pack_refs.set_tag(store, args.name, pack.ref))
    return EXIT_OK


def _list(found: dict[str, str], context: Context) -> None:
    if context.json:
        listed = [{"name": name, "pack": ref} for name, ref in found.items()]
        context.output.emit_json({"tags": listed})
    elif not found:
        context.output.line("no tags yet: ctx tag NAME REF makes one")
    else:
        rows = [(Styled(name, "yellow"), Styled(short(ref), "cyan")) for name, ref in found.items()]
        context.output.table(rows)


def _tell(context: Context, name: str, now: str | None, before: str | None) -> None:
    if context.json:
        context.output.emit_json({"tag": name, "pack": now, "before": before})
        return
    pieces = [f"{name} is {short(now)}" if now else f"{name} is gone"]
    if before is not None and before != now:
        pieces.append(f" (it was {short(before)}; back with: ctx tag {name} {short(before)})")
    context.output.line(*pieces)
