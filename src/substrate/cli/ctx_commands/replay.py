"""Replay a pack and compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import Styled
from substrate.cli.render import progress_of, replayed_json, show_replayed
from substrate.errors import EXIT_OK, SubstrateError, UsageError
from substrate.recorder.packing import Store, find_store, load, short
from substrate.recorder.replay import Replayed, ReplayOptions, replay_pack

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context

NAME = "replay"
HELP = "carry out a pack's steps again, in a private tree, and compare"
EXAMPLE = "ctx replay latest"

_EXITS = {"exact": EXIT_OK, "degraded": 1, "failed": 2}

_MORE = """
exit status:
  0 exact      every step gave what was recorded
  1 degraded   every step could be carried out, some gave something else
  2 failed     a step could not be carried out
  64           usage

The steps' commands are run, on this machine, as you: replay packs of people you trust. The tree
they work in is the pack's own, laid out in a temporary directory; your files are not touched by
the built-in tools. docs/REPLAY.md says what a world adds to that, and how to register tools.
"""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "pack", nargs="*", metavar="REF", help="hash, prefix, ctx://…, tag or latest"
    )
    parser.add_argument("--all", action="store_true", help="every pack of the store")
    parser.add_argument(
        "--rerun-nondeterministic",
        dest="rerun",
        action="store_true",
        help="also carry out steps marked as not deterministic, where a tool is known for them",
    )
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="for each step (default 600)"
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set a variable for the commands; NAME alone takes yours. For secrets, which a "
        "pack holds as placeholders",
    )
    parser.add_argument(
        "--in-place-of-world", dest="strategy", metavar="STRATEGY", help="copy-diff or direct"
    )
    parser.add_argument(
        "--net",
        metavar="MODE",
        default="open",
        help="what the commands reach: open (default), off or allow:HOST:PORT,…; takes a world",
    )
    parser.add_argument(
        "--trust-tools",
        action="store_true",
        help="let the programs of this project's .ctx/config.json run, now and from now on",
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave the replayed tree, and say where"
    )
    parser.add_argument("--verbose", "-v", action="store_true", help="every step, every diff")
    parser.epilog = (parser.epilog or "") + "\n" + _MORE


def run(args: Namespace, context: Context) -> int:
    if args.all == bool(args.pack):
        raise UsageError("name a pack, or give --all", hint="ctx replay latest; ctx replay --all")
    if args.timeout <= 0:
        raise UsageError(
            "--timeout takes a number of seconds above 0", hint="leave it out for 10 minutes"
        )
    store = find_store(context.cwd)
    options = ReplayOptions(
        args.rerun, args.timeout, _variables(args, context), args.strategy, args.keep,
        args.net, args.trust_tools,
    )  # fmt: skip
    if args.all or len(args.pack) > 1:
        return _many(store, _refs(store, args), options, args, context)
    pack = load(store, args.pack[0])
    progress = progress_of(context.output, "replaying step")
    replayed = replay_pack(store, pack, context.environment, options, progress)
    if context.json:
        context.output.emit_json(replayed_json(replayed))
    else:
        show_replayed(context.output, replayed, verbose=args.verbose)
    return _EXITS[replayed.fidelity]


def _refs(store: Store, args: Namespace) -> list[str]:
    return store.packs() if args.all else [load(store, text).ref for text in args.pack]


def _many(
    store: Store, refs: list[str], options: ReplayOptions, args: Namespace, context: Context
) -> int:
    """Replay one pack after another; an unreadable pack counts as failed, and the rest go on."""
    if not refs:
        context.output.note("there is no pack in this store yet; `ctx pack` makes one")
    done: list[Replayed] = []
    unreadable: dict[str, str] = {}
    for number, ref in enumerate(refs):
        context.output.progress("replaying pack", number, len(refs))
        try:
            replayed = replay_pack(store, store.load(ref), context.environment, options)
        except SubstrateError as error:
            unreadable[ref] = error.message
            if not context.json:
                context.output.line(
                    f"{short(ref)}  ", Styled("failed", "red"), f"  {error.message}"
                )
            continue
        done.append(replayed)
        if not context.json:
            show_replayed(context.output, replayed, verbose=args.verbose, one_line=True)
    counts = {word: sum(one.fidelity == word for one in done) for word in _EXITS}
    counts["failed"] += len(unreadable)
    if context.json:
        context.output.emit_json(
            {
                "packs": [replayed_json(one) for one in done]
                + [
                    {"pack": ref, "fidelity": "failed", "error": unreadable[ref]}
                    for ref in unreadable
                ],
                "summary": {"packs": len(refs), **counts},
            }
        )
    else:
        said = ", ".join(f"{count} {word}" for word, count in counts.items())
        context.output.line(f"{len(refs)} pack{'' if len(refs) == 1 else 's'}: {said}")
    return max((_EXITS[word] for word, count in counts.items() if count), default=EXIT_OK)


def _variables(args: Namespace, context: Context) -> dict[str, str]:
    out = {}
    for text in args.env:
        name, equals, value = text.partition("=")
        if not name or "\0" in text:
            raise UsageError(f"--env {text}: no variable is named", hint="--env NAME=VALUE")
        if not equals:
            found = context.environment.get(name)
            if found is None:
                raise UsageError(
                    f"--env {name}: you have no such variable", hint="--env NAME=VALUE"
                )
            value = found
        out[name] = value
    return out
