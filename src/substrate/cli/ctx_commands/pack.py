"""Make a Context Pack."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from substrate.cli.render import secrets_json, tell_secrets
from substrate.errors import EXIT_OK, NotFoundError, UsageError
from substrate.recorder.packing import (
    Found,
    LogFile,
    Store,
    TranscriptReport,
    Written,
    collect,
    find_secrets,
    find_store,
    pack_log,
    publish_redacted,
    sentences,
    sidecar_of,
    uri_of,
    wants_sidecars,
    write_sidecars,
)

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from substrate.cli.frame import Context
    from substrate.recorder.packing import Pack

NAME = "pack"
HELP = "make a Context Pack of a log, a recorded session or an agent's transcript"
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

other sources:
  ctx pack --session S                   what Substrate recorded, ready to be replayed anywhere
  ctx pack --from claude-code FILE       an agent's transcript: claude-code, codex or gemini

It prints the pack's address. The same log always gives the same address.
"""


def configure(parser: ArgumentParser) -> None:
    from argparse import SUPPRESS

    parser.add_argument("log", nargs="?", metavar="LOG|-", help="JSON or JSON Lines; - is stdin")
    parser.add_argument(
        "--from", dest="agent", metavar="AGENT", help="LOG is a transcript of this agent"
    )
    parser.add_argument(
        "--session",
        metavar="S",
        default=SUPPRESS,
        help="pack this recorded session; @ is the latest",
    )
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
    parser.add_argument(
        "--redact", action="store_true",
        help="replace what looks like a secret in prompts, commands and outputs by [redacted]",
    )  # fmt: skip
    parser.add_argument("--notes", metavar="TEXT", default="", help="for the sidecars")
    parser.epilog = (parser.epilog or "") + "\n" + _LOG


def run(args: Namespace, context: Context) -> int:
    if args.log is None and args.sidecars and not Path(context.cwd, args.sidecars).is_dir():
        args.log, args.sidecars = args.sidecars, _BESIDE  # `ctx pack --sidecars LOG`
    _check(args, context)
    store = find_store(context.cwd)
    listed = set(store.packs())
    made = _made(args, context, store)
    if args.redact:
        made = made._replace(pack=_redacted(store, made.pack, was_listed=made.pack.ref in listed))
    pack = made.pack
    written: list[Written] = []
    if args.sidecars is None and made.is_session and wants_sidecars(store):
        args.sidecars = _BESIDE
    if args.sidecars is not None:
        directory = Path(context.cwd, args.sidecars) if args.sidecars else None
        sidecar = sidecar_of(pack, args.confidence, args.notes)
        written = write_sidecars(pack, sidecar, made.roots, directory)
    _tell(made, written, context, {pack.ref: find_secrets(store.objects, pack.manifest)})
    return EXIT_OK


def _redacted(store: Store, pack: Pack, *, was_listed: bool) -> Pack:
    """Replace the pack by one without secrets; the original stays only if it existed before."""
    with store.writing("redacting"):
        clean = publish_redacted(store, pack)
    if clean.ref != pack.ref and not was_listed:
        collect(store, [pack.ref])
    return clean


def _check(args: Namespace, context: Context) -> None:
    if context.session is not None and (args.log or args.agent):
        raise UsageError(
            "a session and a log are two packs", hint="ctx pack LOG, or ctx pack --session S"
        )
    if args.log is None and context.session is None:
        if args.agent is not None:
            raise UsageError(
                f"no transcript of {args.agent} was named",
                hint=f"ctx pack --from {args.agent} FILE",
            )
        raise UsageError(
            "no log was named",
            hint="ctx pack LOG, or - to read stdin; ctx pack --session S packs a recorded session",
        )
    if (args.confidence or args.notes) and args.sidecars is None:
        raise UsageError("--confidence and --notes are written to sidecars", hint="add --sidecars")


class _Made(NamedTuple):
    pack: Pack
    #: Directories that may contain its outputs.
    roots: tuple[Path, ...]
    #: Sentences about what the pack lacks.
    notes: tuple[str, ...] = ()
    report: TranscriptReport | None = None
    is_session: bool = False


def _made(args: Namespace, context: Context, store: Store) -> _Made:
    if context.session is not None:
        from substrate.cli.render import place_of
        from substrate.recorder.packing import pack_session

        place = place_of(context)
        packed = pack_session(place, store, context.session)
        return _Made(packed.pack, (place.workspace.root,), packed.notes, None, True)
    with _opened(args.log, context, store) as log:
        roots = (context.cwd, *log.roots)
        if args.agent is None:
            return _Made(pack_log(store, log), roots)
        from substrate.cli.render import place_of
        from substrate.recorder.packing import pack_agent_transcript

        path = Path(context.cwd, args.log)
        beside = path.parent if path.is_file() else None
        pack, report = pack_agent_transcript(place_of(context), store, args.agent, log.file, beside)
        return _Made(pack, roots, tuple(sentences(report)), report)


def _tell(
    made: _Made, written: list[Written], context: Context, found: dict[str, list[Found]]
) -> None:
    pack = made.pack
    if context.json:
        context.output.emit_json(
            {
                "pack": pack.ref,
                "uri": uri_of(pack.ref),
                "steps": len(pack.manifest.steps),
                "sidecars": [
                    {"output": item.output, "path": str(item.path) if item.path else None}
                    | ({"why_not": item.why_not} if item.why_not else {})
                    | ({"differs": True} if item.differs else {})
                    for item in written
                ],
            }
            | {"secrets": secrets_json(found)}
            | ({"notes": list(made.notes)} if made.notes else {})
            | ({"transcript": made.report._asdict()} if made.report else {})
        )
        return
    context.output.line(uri_of(pack.ref))
    for note in made.notes:
        context.output.note(note)
    for item in written:
        if item.path is None:
            context.output.note(f"no sidecar for {item.output}: {item.why_not}")
        elif item.differs:
            context.output.note(f"{item.output} is not what was recorded: ctx verify will say so")
    tell_secrets(context, found, "ctx pack --redact")


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
    """Copy a stream to a scratch file: a log is read again to find the line of an error."""
    source = source or sys.stdin.buffer
    path = store.scratch / f"stdin-{os.getpid():x}-{os.urandom(6).hex()}"
    with path.open("x+b") as file:
        path.unlink(missing_ok=True)  # `ctx gc` may have removed it already
        while chunk := source.read(1 << 20):
            file.write(chunk)
        file.seek(0)
        yield file
