"""A verb that fails in the requested way."""

from __future__ import annotations

import errno
import os
from argparse import ArgumentParser, Namespace

from substrate import errors
from substrate.cli.frame.context import Context

NAME = "fail"
HELP = "fail in a chosen way"
EXAMPLE = "substrate fail bug"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("how")


def run(args: Namespace, context: Context) -> int:
    if args.how == "bug":
        raise ZeroDivisionError("password=hunter2hunter2")
    if args.how == "interrupt":
        raise KeyboardInterrupt
    if args.how == "conflict":
        raise errors.ConflictError("both changed", hint="pick one", paths=("a", "b"))
    if args.how == "flood":
        for number in range(200_000):
            context.output.line(f"line {number}")
        return 0
    if args.how == "late":
        context.output.line("first")
        raise errors.NotFoundError("then")
    if args.how == "twice":
        context.output.emit_json({})
        context.output.emit_json({})
    if args.how == "mixed":
        context.output.line("hello")
        context.output.emit_json({})
    refusal = getattr(errno, args.how, None)
    if refusal is not None:
        raise OSError(refusal, os.strerror(refusal), "some/file")
    raise getattr(errors, args.how)("it went\nwrong \x1b[2J", hint="do better")
