"""Make a Context Pack."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from substrate.errors import EXIT_OK, NotFoundError, UsageError
from substrate.packs.create import LogFile, pack_log
from substrate.packs.hashes import uri_of
from substrate.packs.sidecars import Written, sidecar_of, write_sidecars
from substrate.packs.store import Store, find_store

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from substrate.cli.context import Context
    from substrate.packs.manifest import Pack

NAME = "pack"
HELP = "make a Context Pack of an execution log"
EXAMPLE = "ctx pack run.json --sidecars"

#: `--sidecars` without a directory.
_BESIDE = ""

_LOG = """
a small log:
  {"model": {"identifier": "claude-opus-4-6"}, "system_prompt": "Be careful.",
   "prompts": [{"role": "user", "content": "What does main.py do?"}],
   "steps": [{"type": "tool_call", "tool": "read_file",
              "parameters": {"path": "main.py"}, "output": "print('hi')\\n"}],
   "outputs": [{"name": "answer.md", "content": "It greets."}],
   "environment": {"os": "linux", "runtime": "python3.12"}}

It prints the pack's address. The same log always gives the same address.
"""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("log", nargs="?", metavar="LOG|-", help="JSON or JSON Lines; - is stdin")
    parser.add_argument(
        "--sidecars",
        nargs="?",
        const=_BESIDE,
        metavar="DIR",
        help="write OUTPUT.ctx.json beside each output that is there, or under DIR",
    )
    parser.add_argument(
        "--confidence", metavar="WORD", default="", help="for the sidecars: high, …"
    )
    parser.add_argument("--notes", metavar="TEXT", default="", help="for the sidecars")
    parser.epilog = (parser.epilog or "") + "\n" + _LOG


def run(args: Namespace, context: Context) -> int:
    if args.log is None and args.sidecars and not Path(context.cwd, args.sidecars).is_dir():
        args.log, args.sidecars = args.sidecars, _BESIDE  # `ctx pack --sidecars LOG`
    if args.log is None:
        raise UsageError("no log was named", hint="ctx pack LOG, or ctx pack - to read stdin")
    if (args.confidence or args.notes) and args.sidecars is None:
        raise UsageError("--confidence and --notes are written to sidecars", hint="add --sidecars")
    store = find_store(context.cwd)
    with _opened(args.log, context, store) as log:
        pack = pack_log(store, log)
    written: list[Written] = []
    if args.sidecars is not None:
        directory = Path(context.cwd, args.sidecars) if args.sidecars else None
        sidecar = sidecar_of(pack, args.confidence, args.notes)
        written = write_sidecars(pack, sidecar, (context.cwd, *log.roots), directory)
    _tell(pack, written, context)
    return EXIT_OK


def _tell(pack: Pack, written: list[Written], context: Context) -> None:
    if context.json:
        context.output.emit_json(
            {
                "pack": pack.ref,
                "uri": uri_of(pack.ref),
                "steps": len(pack.manifest.steps),
                "sidecars": [
                    {"output": item.output, "path": str(item.path) if item.path else None}
                    | ({"why_not": item.why_not} if item.why_not else {})
                    for item in written
                ],
            }
        )
        return
    context.output.line(uri_of(pack.ref))
    for item in written:
        if item.path is None:
            context.output.note(f"no sidecar for {item.output}: {item.why_not}")


@contextmanager
def _opened(name: str, context: Context, store: Store) -> Iterator[LogFile]:
    project = store.directory.parent
    if name == "-":
        with _spooled(store) as file:
            yield LogFile("stdin", file, (context.cwd, project))
        return
    path = Path(context.cwd, name)
    try:
        opened = path.open("rb")
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(
            f"there is no file {name}", hint="name the log, or - for stdin"
        ) from None
    except IsADirectoryError:
        raise UsageError(f"{name} is a directory", hint="name the log in it") from None
    with opened as file:
        if file.seekable():
            yield LogFile(name, file, (path.parent, context.cwd, project))
        else:  # ctx pack <(some command)
            with _spooled(store, file) as copy:
                yield LogFile(name, copy, (context.cwd, project))


@contextmanager
def _spooled(store: Store, source: IO[bytes] | None = None) -> Iterator[IO[bytes]]:
    """A stream in a scratch file: a log is read a second time to name a mistake's line."""
    source = source or sys.stdin.buffer
    path = store.scratch / f"stdin-{os.getpid():x}-{os.urandom(6).hex()}"
    with path.open("x+b") as file:
        path.unlink()
        while chunk := source.read(1 << 20):
            file.write(chunk)
        file.seek(0)
        yield file
