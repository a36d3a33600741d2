"""Report what this machine supports, tier by tier, and how to close each gap."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from substrate.cli.frame import Styled
from substrate.cli.render import place_of
from substrate.errors import EXIT_DIFFERENT, EXIT_OK
from substrate.recorder import Finding, probe, promises

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "doctor"
HELP = "say what this machine can do, and how to close each gap"
EXAMPLE = "substrate doctor"


def configure(parser: ArgumentParser) -> None:
    del parser  # no options of its own


def run(args: Namespace, context: Context) -> int:
    """0 if commands run in worlds here, 1 if they run on the real files."""
    del args
    place_of(context).refuse_inside()  # a nested world says nothing about the machine
    found = probe(fresh=True)
    kept = promises(found)
    found += _client(Path(sys.argv[0]))
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


def _client(program: Path) -> list[Finding]:
    """How the installed `substrate` reaches the daemon; empty if this is another program."""
    if program.name != "substrate" or sys.platform != "linux":
        return []
    if not program.is_file():  # the daemon calls us by the name alone
        program = Path(sys.executable).with_name("substrate")
    try:
        with program.open("rb") as file:
            compiled = file.read(4) == b"\x7fELF"
    except OSError:
        return []
    if compiled:
        return [Finding("client", True, detail="compiled")]
    why = "a script, which starts Python: some 15 ms more for each command"
    return [Finding("client", False, why, "apt-get install gcc, then install substrate again")]


def _word(works: bool) -> str:
    return "yes" if works else "no"
