"""Show what a command, a prompt, a session or a range changed."""

from __future__ import annotations

import os
from shlex import quote
from typing import TYPE_CHECKING

from substrate.cli.frame import (
    Styled,
    add_scope_options,
    has_scope_option,
    hunk_json,
    scope_finder,
    scope_of_id,
    show_hunk,
)
from substrate.cli.render import is_in_workspace, node_json, paths_of, place_of
from substrate.errors import EXIT_OK, NotFoundError, UsageError
from substrate.model import RelPath, display, is_within, name_fields
from substrate.recorder import queries, scopes, typed_path
from substrate.recorder.command import outside_edits

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from substrate.cli.frame import Context
    from substrate.recorder import FileChange, HistoryStore, Place, Scope

NAME = "diff"
HELP = "show what a command, a prompt or a range changed"
EXAMPLE = "substrate diff @ src/app.py"

#: How many paths a hint names.
_SUGGESTED = 3
_SIGNS = {"added": "A", "modified": "M", "deleted": "D", "mode": "m", "type": "T"}


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "id", nargs="?", metavar="ID",
        help="a command, a prompt, a session, or a range A..B (after A, up to B);"
        " default: the last command",
    )  # fmt: skip
    parser.add_argument("paths", nargs="*", metavar="PATH", help="only these files or directories")
    add_scope_options(parser)
    parser.add_argument(
        "--external", action="store_true",
        help="edits made outside Substrate; goes with --since and A..B",
    )  # fmt: skip
    parser.add_argument("--stat", action="store_true", help="a line per file instead of the text")
    parser.add_argument(
        "--hunks", action="store_true", help="hunk by hunk, with ids for `undo --hunk`"
    )
    parser.add_argument("--word", action="store_true", help="mark changed words, not lines")
    parser.add_argument(
        "--patch", action="store_true",
        help="only the patch, binary files included, as `git apply` takes it",
    )  # fmt: skip


def run(args: Namespace, context: Context) -> int:
    place = place_of(context)
    output = context.output
    _check_shape(args)
    if has_scope_option(args) and args.id is not None and not scopes.is_range(args.id):
        args.paths.insert(0, args.id)  # the word after an option that chooses is a path
        args.id = None
    find = scope_finder(args, place)
    with place.existing_history() as store:
        if find is not None:
            return _of_scope(store, find, args, context)
        args.id = args.id or "@"
        named = scope_of_id(store, args.id, place.session)
        if named is None and args.hunks:
            named = scopes.of_command(store, args.id, place.session)
        if named is not None:
            return _of_scope(store, lambda _: named, args, context)
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
            output.note(_nothing(store, place, found, args.paths))
        ends = None if found.new_commit is None else (found.old_commit, found.new_commit)
        _show(store, found.files, ends, args, context)
    return EXIT_OK


def _check_shape(args: Namespace) -> None:
    shapes = {
        "--stat": args.stat, "--word": args.word, "--patch": args.patch, "--hunks": args.hunks
    }  # fmt: skip
    wanted = [name for name, given in shapes.items() if given]
    if len(wanted) > 1:
        raise UsageError(f"{' and '.join(wanted)} do not go together", hint="choose one of them")


def _of_scope(
    store: HistoryStore,
    find: Callable[[HistoryStore], Scope],
    args: Namespace,
    context: Context,
) -> int:
    place, output = place_of(context), context.output
    with store.rehearsing("diff"):
        last = store.ledger.last_pos()
        if args.external:
            outside_edits.agree(place, store, records=False)
        scope = find(store)
        found = queries.scope_diff(store, scope, paths_of(place, args.paths), hunks=args.hunks)
        files = found.files if found else []
        if context.json:
            document = _scope_json(scope, files, last)
            if args.hunks:
                hunks = found.hunks if found else []
                document["hunks"] = [{**name_fields(h.path), **hunk_json(h)} for h in hunks]
            output.emit_json(document)
            return EXIT_OK
        if found is None or not files:
            output.note(f"{scope.name}: no file changed")
        elif args.hunks:
            for hunk in found.hunks:
                show_hunk(output, hunk)
        else:
            _show(store, files, (found.old_tree, found.new_tree), args, context)
    return EXIT_OK


def _scope_json(scope: Scope, files: list[FileChange], last_pos: int) -> dict[str, object]:
    """`last_pos`: of the newest entry that is recorded; the ids of later ones would not resolve."""
    named = scope.words.split(" ")
    prompt = {"prompt_id": named[1]} if named[0] == "--prompt" else {}
    return {
        **prompt,
        "scope": scope.name,
        "commands": [entry.command_id for entry in scope.entries if entry.pos <= last_pos],
        "files": [_json(change) for change in files],
    }


def _find(store: HistoryStore, place: Place, args: Namespace) -> queries.Diff:
    try:
        return queries.diff(store, args.id, paths_of(place, args.paths), place.session)
    except NotFoundError as error:
        if is_in_workspace(place, args.id):
            raise NotFoundError(
                error.message,
                hint=f"for a file of the last command: substrate diff @ {quote(args.id)}",
            ) from None
        raise


def _nothing(store: HistoryStore, place: Place, found: queries.Diff, typed: list[str]) -> str:
    """Why the diff is empty: the command changed nothing, or other paths than those named."""
    name = found.entry.command_id
    paths = paths_of(place, typed)
    if not paths:
        return f"{name} changed no files"
    text = f"{name} changed no files in {', '.join(map(display, paths))}"
    changed = queries.changed_files(store, found.entry)
    # Answers name paths from the workspace's root; arguments are taken from the current directory.
    from_root = [RelPath(os.fsencode(one).rstrip(b"/")) for one in typed]
    meant = [path for path in changed if any(is_within(path, one) for one in from_root)]
    named = meant or changed
    if not named:
        return text
    words = " ".join(quote(typed_path(place, path)) for path in named[:_SUGGESTED])
    return f"{text}; to see what it did change: substrate diff {name} {words}"


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


def _show(
    store: HistoryStore,
    files: list[FileChange],
    ends: tuple[bytes | None, bytes] | None,
    args: Namespace,
    context: Context,
) -> None:
    """Git renders contents; what git cannot show (exact modes, empty directories) comes first.

    `ends`: two commits or trees; None for the baseline.
    """
    output = context.output
    if args.stat:
        _stat(files, context)
        return
    if args.patch:
        beyond = [display(change.path) for change in files if _is_beyond_text(change)]
        if beyond:
            output.note(f"a patch cannot say all of: {', '.join(beyond)}")
    else:
        _beyond_text(files, context)
    if ends is None or not files:
        return
    names = [change.path for change in files]
    text = store.git.diff_text(*ends, names, words=args.word, whole=args.patch)
    if args.patch:
        output.block(text)
    else:
        output.diff(text)


def _is_beyond_text(change: FileChange) -> bool:
    directories = "directory" in (change.old.kind.value, change.new.kind.value)
    return bool(_beyond_git(change)) or directories


def _beyond_text(files: list[FileChange], context: Context) -> None:
    for change in files:
        note = _beyond_git(change)
        if _is_beyond_text(change):
            sign = _SIGNS[change.change]
            context.output.line(Styled(f"{sign} {display(change.path)}{note}", "bold"))
