"""How large history is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.render import place_of, size, when
from substrate.errors import EXIT_OK
from substrate.recorder import metrics
from substrate.system import clock

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "stats"
HELP = "say how large history is"
EXAMPLE = "substrate stats --json"


def configure(parser: ArgumentParser) -> None:
    del parser  # no options of its own


def run(args: Namespace, context: Context) -> int:
    del args
    with place_of(context).existing_history() as store:
        found = metrics.measure(store)
        cap = store.config.disk_cap_bytes
    last = found.last_compaction_ns
    if context.json:
        context.output.emit_json(
            {
                "size_bytes": found.size_bytes,
                "trash_bytes": found.trash_bytes,
                "disk_cap_bytes": cap,
                "commits": found.commits,
                "commands": found.commands,
                "checkpoints": found.checkpoints,
                "sessions": found.sessions,
                "last_compaction": clock.iso(last) if last else None,
            }
        )
        return EXIT_OK
    context.output.table(
        [
            ("size", f"{size(found.size_bytes)} of {size(cap)}"),
            ("trash", size(found.trash_bytes)),
            ("commits", str(found.commits)),
            ("commands", str(found.commands)),
            ("checkpoints", str(found.checkpoints)),
            ("sessions", str(found.sessions)),
            ("last compaction", when(last) + " UTC" if last else "never"),
        ]
    )
    return EXIT_OK
