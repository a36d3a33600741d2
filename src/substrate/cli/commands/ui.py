"""Open the page: what agents did in this project, and a way to take it back."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from substrate.cli.frame import Styled
from substrate.cli.render import place_of
from substrate.errors import EXIT_OK, SubstrateError, UsageError
from substrate.system.files import files
from substrate.system.process import process

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "ui"
HELP = "open a page in your browser: what happened here, and a way to take it back"
EXAMPLE = "substrate ui"

_MOST_PORT = 65_535
_OPEN_S = 10.0


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--port",
        type=int,
        default=0,
        metavar="N",
        help="a port of 127.0.0.1; default: a free one",
    )
    parser.add_argument("--no-open", action="store_true", help="print the link, start no browser")
    parser.add_argument("--read-only", action="store_true", help="the page can show, not change")


def run(args: Namespace, context: Context) -> int:
    if not 0 <= args.port <= _MOST_PORT:
        raise UsageError(f"--port takes 0 to {_MOST_PORT}", hint="leave it out for a free one")
    place = place_of(context)
    place.refuse_inside()
    from substrate.page import PageServer

    server = PageServer(place, port=args.port, read_only=args.read_only)
    # Worlds can read our home, but this directory is hidden from them.
    redirect = place.environment.substrate_home / "run" / f"ui-{os.getpid()}.html"

    def ready() -> None:
        link = server.link()
        opened = not args.no_open and not context.json and _open(link, redirect, context)
        if context.json:
            document = {"url": link, "port": server.port, "pid": os.getpid()}
            context.output.emit_json(document)
        elif opened:
            context.output.line("the page is open in your browser; Ctrl-C here closes it")
        else:
            context.output.line("open within a minute, once: ", Styled(link, "cyan"))
            context.output.note("Ctrl-C stops the page; nothing else depends on it")
        context.output.flush()

    try:
        server.serve(ready)
    finally:
        redirect.unlink(missing_ok=True)
    return EXIT_OK


def _open(link: str, redirect: Path, context: Context) -> bool:
    """Start a browser on a private file that leads to the link: process lists show no token."""
    variables = context.environment.variables
    if sys.platform == "darwin":
        program = "open"
    elif variables.get("DISPLAY") or variables.get("WAYLAND_DISPLAY"):
        program = "xdg-open"
    else:
        return False
    text = (
        f'<!doctype html><meta http-equiv="refresh" content="0;url={link}"><title>Substrate</title>'
    )
    try:
        redirect.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write_atomic(redirect, text.encode(), durable=False)
        done = process.run([program, str(redirect)], timeout_s=_OPEN_S)
    except (SubstrateError, OSError):
        return False
    return done.returncode == 0
