"""Show what one command changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.output import Styled, name_fields
from substrate.cli.render import is_in_workspace, node_json, paths_of, place_of
from substrate.errors import EXIT_OK, NotFoundError
from substrate.model.paths import display
from substrate.recorder import ask

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.context import Context
    from substrate.history.file_changes import FileChange
    from substrate.history.store import HistoryStore
    from substrate.recorder.place import Place

NAME = "diff"
HELP = "show what one command changed"
EXAMPLE = "substrate diff @ src/app.py"

_SIGNS = {"added": "A", "modified": "M", "deleted": "D", "mode": "m", "type": "T"}


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "id", nargs="?", default="@", metavar="ID", help="default: the last command"
    )
    parser.add_argument("paths", nargs="*", metavar="PATH", help="only these files or directories")
    parser.add_argument("--stat", action="store_true", help="a line per file instead of the text")


def run(args: Namespace, context: Context) -> int:
    place = place_of(context)
    output = context.output
    with place.existing_history() as store:
        found = _find(store, place, args)
        if context.json:
            document: dict[str, object] = {
                "command_id": found.entry.command_id,
                "files": [_json(change) for change in found.files],
            }
            if found.target.holder is not None:
                document["asked_for"] = args.id
            output.emit_json(document)
            return EXIT_OK
        if found.target.holder is not None:
            output.note(
                f"{args.id} is no longer kept on its own; this is all of {found.entry.command_id}"
            )
        if not found.files:
            where = f" in {', '.join(args.paths)}" if args.paths else ""
            output.note(f"{found.entry.command_id} changed no files{where}")
        if args.stat:
            _stat(found.files, context)
        else:
            _text(store, found, context)
    return EXIT_OK


def _find(store: HistoryStore, place: Place, args: Namespace) -> ask.Diff:
    try:
        return ask.diff(store, args.id, paths_of(place, args.paths), place.session)
    except NotFoundError as error:
        if is_in_workspace(place, args.id):
            raise NotFoundError(
                error.message, hint=f"for a file of the last command: substrate diff @ {args.id}"
            ) from None
        raise


def _json(change: FileChange) -> dict[str, object]:
    return {
        **name_fields(change.path),
        "change": change.change,
        "binary": change.binary,
        "additions": change.additions,
        "deletions": change.deletions,
        "old": node_json(change.old),
        "new": node_json(change.new),
    }


def _stat(files: list[FileChange], context: Context) -> None:
    rows = [
        (
            _SIGNS[f.change],
            "binary" if f.binary else f"+{f.additions} -{f.deletions}",
            display(f.path) + _beyond_git(f),
        )
        for f in files
    ]
    context.output.table(rows)


def _beyond_git(change: FileChange) -> str:
    if change.change == "mode" and change.old.mode != change.new.mode:
        return f"  ({change.old.mode:04o} → {change.new.mode:04o})"
    if change.change == "type":
        return f"  ({change.old.kind.value} → {change.new.kind.value})"
    return ""


def _text(store: HistoryStore, found: ask.Diff, context: Context) -> None:
    """Git renders contents; what git cannot say (exact modes, empty directories) comes first."""
    for change in found.files:
        note = _beyond_git(change)
        if note or change.old.kind.value == "directory" or change.new.kind.value == "directory":
            sign = _SIGNS[change.change]
            context.output.line(Styled(f"{sign} {display(change.path)}{note}", "bold"))
    if found.old_commit is None or found.new_commit is None or not found.files:
        return
    text = store.git.diff_text(found.old_commit, found.new_commit, [f.path for f in found.files])
    context.output.diff(text)
