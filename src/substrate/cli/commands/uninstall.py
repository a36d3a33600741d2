"""Remove Substrate from this account: the daemon, and what it wrote into agents' settings.

Its lines in `.git/info/exclude` stay as long as the histories: without them, git would list the
history in a project as an untracked repository.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from substrate.cli.frame import Styled
from substrate.cli.render import show_removal, size, surroundings_of
from substrate.coding_agents import (
    AGENTS,
    carry_out_removal,
    locked,
    plan_removal,
    remove_shims,
    shim_names,
)
from substrate.errors import EXIT_DIFFERENT, EXIT_OK, RefusedError
from substrate.model import display
from substrate.recorder import check_purge, leftovers, purge
from substrate.system.process import process

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from pathlib import Path

    from substrate.cli.frame import Context
    from substrate.recorder import Leftovers

NAME = "uninstall"
HELP = "stop the daemon and take back what was set up; history stays, unless --purge"
EXAMPLE = "substrate uninstall --dry-run"

_PACKAGE = "substrate-recorder"


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--purge", action="store_true",
        help="also remove all histories, recovery snapshots and settings; lists them and asks",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="only show what would be removed")
    parser.add_argument("--yes", action="store_true", help="purge without asking")


def run(args: Namespace, context: Context) -> int:
    around = surroundings_of(context)
    agents = list(AGENTS)
    found = leftovers(context.environment)
    with locked(around):
        removals, shims = plan_removal(agents, around), shim_names(around)
        if not context.json:
            for one in removals:
                show_removal(one, context)
            _show(found, shims, args, context)
        if args.dry_run:
            return _end(args, context, found, [])
        if args.purge:
            check_purge(context.environment, found)
            _confirm(args, context)
        _stop_daemon(context)
        carry_out_removal(removals, agents, around)
        for name in shims:
            remove_shims(around, name)
    return _end(args, context, found, purge(context.environment, found) if args.purge else [])


def _show(found: Leftovers, shims: list[str], args: Namespace, context: Context) -> None:
    line = context.output.line
    for name in shims:
        line(f"  remove    shims {name}")
    verb = "remove" if args.purge else "keep  "
    for common in found.excludes:
        line(f"  {verb}    our lines in {_name(common)}/info/exclude")
    for project in found.histories:
        held = f", {project.held_worlds} held world(s)" if project.held_worlds else ""
        line(f"  {verb}    {_name(project.store)}  {size(project.size_bytes)}{held}")
    for root, count in found.snapshots:
        line(f"  {verb}    {count} recovery snapshot(s) of {_name(root)}")
    for path in found.home:
        line(f"  {verb}    {_name(path)}")


def _confirm(args: Namespace, context: Context) -> None:
    """Ask on the terminal, or require --yes: what is purged cannot be restored."""
    if args.yes:
        return
    if sys.stdin.isatty() and context.output.is_terminal and not context.json:
        context.output.line("Nothing brings this back. Type purge to remove it, or Enter to stop:")
        context.output.flush()
        if sys.stdin.readline().strip() == "purge":
            return
    raise RefusedError(
        "nothing was removed: --purge needs a confirmation",
        hint="look with --dry-run, then add --yes",
    )


def _stop_daemon(context: Context) -> None:
    # -P: not a directory `substrate` of the project.
    words = [sys.executable, "-P", "-m", "substrate", "daemon", "stop"]
    process.run(words, cwd=context.cwd, env=dict(context.environment.variables))


def _end(args: Namespace, context: Context, found: Leftovers, left: list[str]) -> int:
    if context.json:
        context.output.emit_json(
            {
                "dry_run": args.dry_run,
                "purged": args.purge and not args.dry_run,
                "excludes": [_name(path) for path in found.excludes],
                "histories": [_name(one.store) for one in found.histories],
                "recovery_snapshots": {_name(root): count for root, count in found.snapshots},
                "home": [_name(path) for path in found.home],
                "left": left,
            }
        )
        return EXIT_DIFFERENT if left else EXIT_OK
    for text in left:
        context.output.note(f"not removed: {text}")
    if args.dry_run:
        context.output.line("Nothing was changed. Without --dry-run it is.")
    else:
        context.output.line(
            "to remove the programs, the way you installed them: ",
            Styled(f"pipx uninstall {_PACKAGE}", "cyan"), ", ",
            Styled(f"uv tool uninstall {_PACKAGE}", "cyan"), " or ",
            Styled(f"pip uninstall {_PACKAGE}", "cyan"),
        )  # fmt: skip
    return EXIT_DIFFERENT if left else EXIT_OK


def _name(path: Path) -> str:
    return display(os.fsencode(path))
