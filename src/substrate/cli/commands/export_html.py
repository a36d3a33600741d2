"""Write a part of history as one HTML file that anyone can open."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from substrate.cli.frame import Styled, plural
from substrate.cli.render import place_of
from substrate.errors import EXIT_OK, RefusedError, UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "export-html"
HELP = "write commands and their diffs as one HTML file, secrets blacked out"
EXAMPLE = "substrate export-html since:2h review.html"

#: A word that is a scope, and hardly the name of a file.
_SCOPE = re.compile(r"@(~\d+)?|[csp]-[0-9a-z]+|since:.*")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "first", metavar="SCOPE|FILE",
        help="what to show: a command, a prompt p-…, a session s-…, A..B, since:X;"
        " alone: the file to write, with all of history",
    )  # fmt: skip
    parser.add_argument("second", nargs="?", metavar="FILE", help="the file to write")
    parser.add_argument(
        "--with-private", action="store_true",
        help="also the contents of private files (.env, keys, …), redacted like all else",
    )  # fmt: skip


def run(args: Namespace, context: Context) -> int:
    scope, name = (args.first, args.second) if args.second else ("", args.first)
    place = place_of(context)
    if not args.second and _SCOPE.fullmatch(name):
        raise UsageError(
            f"{name} is what to export; the name of the file is missing",
            hint=f"substrate export-html {name} FILE",
        )
    path = Path(context.cwd, name)
    from substrate.page import export_html

    found = export_html(place, scope, private=args.with_private)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise RefusedError(f"{name} exists already", hint="name another file") from None
    except OSError as error:
        raise RefusedError(
            f"cannot write {name}: {error.strerror}", hint="name a file in a directory of yours"
        ) from error
    with os.fdopen(fd, "wb") as file:
        file.write(found.data)
    if context.json:
        context.output.emit_json(
            {
                "path": str(path),
                "entries": found.entries,
                "secrets": found.secrets,
                "private_files_left_out": found.left_out,
                "bytes": len(found.data),
            }
        )
        return EXIT_OK
    blacked = plural(found.secrets, "secret")
    context.output.line(
        Styled(name, "bold"), f": {plural(found.entries, 'command')}, {blacked} blacked out"
    )
    if found.left_out:
        context.output.note(
            f"{plural(found.left_out, 'private file')} without contents; --with-private adds them"
        )
    context.output.note("look at it before you share it: rules do not find every secret")
    return EXIT_OK
