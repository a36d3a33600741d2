"""List packs and their lineage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import Piece, Styled
from substrate.errors import EXIT_OK, UsageError
from substrate.recorder.packing import SHOWN, find_store, hex_of, lineage, pack_refs, short

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "log"
HELP = "list the packs, newest first, as a tree of forks"
EXAMPLE = "ctx log --limit 10"

_LIMIT = 50


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--limit", type=int, default=_LIMIT, metavar="N", help=f"at most N packs ({_LIMIT}); 0: all"
    )


def run(args: Namespace, context: Context) -> int:
    if args.limit < 0:
        raise UsageError(f"--limit cannot be {args.limit}", hint="0 lists all")
    store = find_store(context.cwd)
    everything = lineage.entries(store)
    shown = everything[: args.limit] if args.limit else everything
    names = _names(pack_refs.tags(store), pack_refs.latest(store))
    if context.json:
        listed = [_fields(entry, names.get(entry.ref, [])) for entry in shown]
        context.output.emit_json({"packs": listed, "total": len(everything)})
        return EXIT_OK
    if not everything:
        context.output.line("no packs yet: ctx pack LOG makes one")
    rows = lineage.draw(shown)
    width = max((len(row.drawing) for row in rows), default=0)
    for row in rows:
        drawing = row.drawing if row.entry is None else f"{row.drawing:<{width}}  "
        context.output.line(drawing, *_pieces(row.entry, names))
    if len(shown) < len(everything):
        context.output.line(
            Styled(f"{len(everything) - len(shown)} more: ctx log --limit 0", "dim")
        )
    return EXIT_OK


def _names(tags: dict[str, str], latest: str | None) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, ref in tags.items():
        found.setdefault(ref, []).append(name)
    if latest is not None:
        found.setdefault(latest, []).insert(0, pack_refs.LATEST)
    return found


def _pieces(entry: lineage.Entry | None, names: dict[str, list[str]]) -> list[Piece]:
    if entry is None:
        return []
    out: list[Piece] = [Styled(hex_of(entry.ref)[:SHOWN], "cyan"), "  "]
    if entry.damage:
        out.append(Styled(f"damaged: {entry.damage}; ctx fsck tells more", "red"))
    else:
        when = entry.created[:19].replace("T", " ") or "time not recorded"
        steps = f"{entry.steps} step" + ("" if entry.steps == 1 else "s")
        out += [f"{when:<19}  ", Styled(entry.model, "bold"), f"  {steps}"]
    if entry.ref in names:
        out.append(Styled(f"  ({', '.join(names[entry.ref])})", "yellow"))
    if entry.parent:
        out.append(Styled(f"  fork of {short(entry.parent)}", "dim"))
    return out


def _fields(entry: lineage.Entry, names: list[str]) -> dict[str, object]:
    fields: dict[str, object] = {
        "hash": entry.ref,
        "created": entry.created or None,
        "model": entry.model,
        "steps": entry.steps,
        "outputs": entry.outputs,
        "parent": entry.parent or None,
        "names": names,
    }
    if entry.damage:
        fields["damage"] = entry.damage
    return fields
