"""Say what this machine can do, tier by tier, and what would close each gap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.output import Styled
from substrate.cli.render import place_of
from substrate.errors import EXIT_DIFFERENT, EXIT_OK
from substrate.world.probe import probe
from substrate.world.promises import promises

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.context import Context

NAME = "doctor"
HELP = "say what this machine can do, and how to close each gap"
EXAMPLE = "substrate doctor"


def configure(parser: ArgumentParser) -> None:
    del parser  # nothing of its own


def run(args: Namespace, context: Context) -> int:
    """0 if commands run in worlds here, 1 if they run on the real files."""
    del args
    place_of(context).refuse_inside()  # a world in a world says nothing of the machine
    found = probe(fresh=True)
    kept = promises(found)
    status = EXIT_OK if any(p.tier == "workspace" and p.works for p in kept) else EXIT_DIFFERENT
    if context.json:
        context.output.emit_json(
            {
                "tiers": [promise._asdict() for promise in kept],
                "findings": [finding._asdict() for finding in found],
            }
        )
        return status
    context.output.line(Styled("tiers", "bold"))
    context.output.table([(p.tier, _word(p.works), p.strategy or p.why) for p in kept], whole=True)
    context.output.line("")
    context.output.line(Styled("what was found", "bold"))
    context.output.table([(f.name, _word(f.works), f.detail or f.why) for f in found], whole=True)
    gaps = [(f.name, f.fix) for f in found if not f.works and f.fix]
    if gaps:
        context.output.line("")
        context.output.line(Styled("to close a gap", "bold"))
        context.output.table(gaps, whole=True)
    return status


def _word(works: bool) -> str:
    return "yes" if works else "no"
