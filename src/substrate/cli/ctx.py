"""The program `ctx`: the same frame as `substrate`, other verbs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from substrate.cli.main import Program, run_program

_COMMANDS = "substrate.cli.ctx_commands."

#: Every verb and its module, in the order `--help` lists them.
VERBS: Mapping[str, str] = {
    "init": _COMMANDS + "init",
    "pack": _COMMANDS + "pack",
    "log": _COMMANDS + "log",
    "show": _COMMANDS + "show",
    "diff": _COMMANDS + "diff",
    "tag": _COMMANDS + "tag",
    "replay": _COMMANDS + "replay",
    "verify": _COMMANDS + "verify",
    "sign": _COMMANDS + "sign",
    "fork": _COMMANDS + "fork",
    "finalize": _COMMANDS + "finalize",
    "export": _COMMANDS + "export",
    "import": _COMMANDS + "import_",
    "fsck": _COMMANDS + "fsck",
    "gc": _COMMANDS + "gc",
    "index": _COMMANDS + "index",
    "delta": _COMMANDS + "delta",
    "symbols": _COMMANDS + "symbols",
    "refs": _COMMANDS + "refs",
    "impact": _COMMANDS + "impact",
    "context": _COMMANDS + "context",
    "graph": _COMMANDS + "graph",
}

_USAGE = """\
usage: ctx init                  make .ctx in this project
       ctx pack LOG              keep an agent's run as a Context Pack
       ctx index                 read what is in the code, as of HEAD
       ctx VERB …                ask about either
"""


def ctx(argv: Sequence[str] | None = None) -> int:
    """Run one call of `ctx` and return its exit status."""
    # The exit status 2 of a replay means "failed".
    return run_program(argv, Program("ctx", VERBS, _USAGE, {"replay": 64}))
