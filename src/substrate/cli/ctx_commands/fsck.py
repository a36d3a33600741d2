"""Check the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from substrate.cli.frame import Styled
from substrate.errors import EXIT_DAMAGED, EXIT_OK
from substrate.recorder.packing import StoreFinding, check_store, find_store

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "fsck"
HELP = "check every object, pack and graph snapshot, and say what each damage breaks"
EXAMPLE = "ctx fsck"

_BREAKS_SHOWN = 10


_MORE = """
It changes nothing, and exits 6 if something is damaged.
A damaged object heals when its content is packed or imported again.
"""


def configure(parser: ArgumentParser) -> None:
    parser.epilog = (parser.epilog or "") + "\n" + _MORE


def run(args: Namespace, context: Context) -> int:
    store = find_store(context.cwd)
    output = context.output
    health = check_store(store, lambda done, total: output.progress("checking", done, total))
    health = health._replace(findings=(*health.findings, *_of_graph(store.directory)))
    if context.json:
        output.emit_json(
            {
                "sound": health.is_sound,
                "objects": health.objects,
                "packs": health.packs,
                "bytes": health.bytes,
                "findings": [
                    finding._asdict() | {"breaks": list(finding.breaks)}
                    for finding in health.findings
                ],
            }
        )
        return EXIT_OK if health.is_sound else EXIT_DAMAGED
    for finding in health.findings:
        _show(finding, context)
    output.line(
        f"{health.objects:,} objects, {health.bytes:,} bytes, {health.packs:,} packs: ",
        _verdict(health.is_sound),
    )
    return EXIT_OK if health.is_sound else EXIT_DAMAGED


def _of_graph(ctx: Path) -> Iterator[StoreFinding]:
    graph = ctx / "graph"
    if not graph.is_dir():
        return
    from substrate.recorder.code_graph import Layout, damage

    for path, hint in damage(Layout(graph)):
        what = str(path.relative_to(ctx))
        yield StoreFinding("damaged", what, f"it is not as it was written: {hint}")


def _verdict(is_sound: bool) -> Styled:
    return Styled("sound", "green") if is_sound else Styled("damaged", "red")


def _show(finding: StoreFinding, context: Context) -> None:
    kind = Styled(finding.kind, "yellow" if finding.kind == "stray" else "red")
    context.output.line(kind, "  ", finding.what)
    context.output.line("  ", finding.problem)
    for place in finding.breaks[:_BREAKS_SHOWN]:
        context.output.line("  breaks ", place)
    if len(finding.breaks) > _BREAKS_SHOWN:
        context.output.line(f"  and {len(finding.breaks) - _BREAKS_SHOWN} more (--json lists all)")
