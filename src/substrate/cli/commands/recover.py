"""Find and restore the content that Substrate replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrate.cli.frame import (
    RESTORE,
    Output,
    Styled,
    choose_hunks,
    hunk_json,
    show_hunk,
)
from substrate.cli.render import paths_of, place_of, show_reversal, size, when
from substrate.errors import EXIT_DIFFERENT, EXIT_OK, NotFoundError, UsageError
from substrate.model import Kind, RelPath, display, is_within, name_fields
from substrate.recorder import (
    BroughtBack,
    Match,
    Policy,
    RestoreChoice,
    Tombstone,
    pattern,
    recovery_hunks,
    restore_recovery,
)
from substrate.recorder import snapshot as snapshots
from substrate.recorder.recover import Found, Snapshots, opened, trash_views
from substrate.system import clock

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterator

    from substrate.cli.frame import Context
    from substrate.recorder.arrival import PickedHunks

NAME = "recover"
HELP = "list, search and bring back what was there before Substrate changed it"
EXAMPLE = "substrate recover search TODO"
_DAY_NS = 86_400 * 1_000_000_000
_DAYS = 30
_MOST_HITS = 100


def configure(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(
        dest="action", required=True, metavar="list|show|search|restore|prune"
    )
    lists = verbs.add_parser("list", help="every snapshot, newest first")
    lists.add_argument("--pruned", action="store_true", help="what was pruned, and why")
    show = verbs.add_parser("show", help="one snapshot, or one file of it")
    show.add_argument("ref", metavar="REF")
    show.add_argument("path", nargs="?", metavar="PATH")
    show.add_argument(
        "--hunks", action="store_true",
        help="what restoring it would change now, hunk by hunk, with ids for `restore --hunk`",
    )  # fmt: skip
    find = verbs.add_parser("search", help="a text in every snapshot, tracked or untracked")
    find.add_argument("pattern", metavar="PATTERN")
    find.add_argument("--regex", action="store_true", help="PATTERN is a regular expression")
    find.add_argument("-i", "--ignore-case", action="store_true", help="Case does not matter")
    find.add_argument("-w", "--word", action="store_true", help="only whole words")
    find.add_argument(
        "--limit", type=int, default=_MOST_HITS, metavar="N",
        help=f"stop after N hits (default {_MOST_HITS}, 0: find all)",
    )  # fmt: skip
    find.add_argument("--context", type=int, default=0, metavar="N", help="lines around each hit")
    find.add_argument("--binary", action="store_true", help="search binary contents too")
    find.add_argument("--in", dest="ref", metavar="REF", help="only in this snapshot")
    restore = verbs.add_parser("restore", help="bring back what it kept, or only some paths of it")
    restore.add_argument("ref", metavar="REF")
    restore.add_argument(
        "paths", nargs="*", default=[], metavar="PATH", help="none: all that it kept"
    )
    restore.add_argument(
        "--untracked", action="store_true", help="only what was untracked (a rewrite's snapshot)"
    )
    restore.add_argument("--to", metavar="DIR", help="write it there instead of into place")
    restore.add_argument(
        "--with-git", action="store_true", help="index and HEAD as they were (a rewrite's snapshot)"
    )
    which = restore.add_mutually_exclusive_group()
    which.add_argument(
        "--hunk", action="append", metavar="H",
        help="only this hunk (repeatable); `recover show REF --hunks` lists them",
    )  # fmt: skip
    which.add_argument(
        "-p", "--patch", action="store_true", help="ask hunk by hunk what to restore"
    )
    restore.add_argument("--dry-run", action="store_true", help="print the plan, change nothing")
    prune = verbs.add_parser("prune", help="let old or redundant snapshots go; says what went")
    prune.add_argument(
        "--older-than", type=float, metavar="DAYS",
        help=f"captured longer ago than this; default {_DAYS}, or never with --redundant",
    )  # fmt: skip
    prune.add_argument(
        "--redundant", action="store_true", help="those whose content is all kept elsewhere"
    )
    prune.add_argument("--dry-run", action="store_true", help="print what would go")


def run(args: Namespace, context: Context) -> int:
    place = place_of(context)
    is_question = args.action in ("list", "show", "search") or args.dry_run
    with opened(place, settles=not is_question) as found:
        try:
            status = _act(found, args, context)
        finally:
            for note in found.notes:
                context.output.note(note)
        if status is not None:
            return status
        one = found.find(args.ref)
    if args.action == "restore" and (args.with_git or args.untracked):
        raise UsageError(
            f"{one.name} is history's: it knows of no index, HEAD or untracked files",
            hint="leave out --with-git and --untracked",
        )
    if args.action == "show":
        return _show_hunks(one, args, context)
    paths = paths_of(place, args.paths)
    picked: PickedHunks | None = dict.fromkeys(args.hunk) if args.hunk else None
    if args.patch:
        asking = RESTORE._replace(listed_by=f"substrate recover show {one.name} --hunks")
        picked = choose_hunks(context, recovery_hunks(place, one.ref, paths), asking)
        if not picked:
            context.output.line("nothing was chosen: nothing was changed")
            return EXIT_OK
    outcome = restore_recovery(place, one.ref, paths, dry_run=args.dry_run, picked=picked)
    return show_reversal(context.output, outcome, dry_run=args.dry_run)


def _show_hunks(one: Found, args: Namespace, context: Context) -> int:
    place = place_of(context)
    paths = paths_of(place, [args.path] if args.path is not None else [])
    hunks = recovery_hunks(place, one.ref, paths)
    if context.json:
        shown = [{**name_fields(hunk.path), **hunk_json(hunk)} for hunk in hunks]
        context.output.emit_json({**_json(one), "hunks": shown})
        return EXIT_OK
    for hunk in hunks:
        show_hunk(context.output, hunk)
    if not hunks:
        context.output.note(f"{one.name}: restoring it would change nothing now")
    return EXIT_OK


def _act(found: Snapshots, args: Namespace, context: Context) -> int | None:
    """Run the action; None: the caller does it through history."""
    if args.action == "list":
        return _pruned(found, context) if args.pruned else _list(found, context)
    if args.action == "show" and not args.hunks:
        return _show(found, args.ref, args.path, context)
    if args.action == "search":
        return _search(found, args, context)
    if args.action == "prune":
        return _prune(found, args, context)
    one = found.find(args.ref)
    by_hunk = args.hunks if args.action == "show" else bool(args.hunk or args.patch)
    if by_hunk:
        _refuse_hunks(one, args)
        return None
    if args.to is not None:
        return _write_out(found, one, args, context)
    return _bring_back(found, one, args, context) if one.source == "rewrite" else None


def _refuse_hunks(one: Found, args: Namespace) -> None:
    if one.source == "rewrite" or not one.commit:
        raise UsageError(
            f"{one.name} has no hunks: it is restored path by path",
            hint=f"substrate recover restore {one.name} PATH",
        )
    if getattr(args, "to", None) is not None:
        raise UsageError("--to does not go with hunks", hint="leave one of them out")


# -- list, show -----------------------------------------------------------------------------------


def _list(found: Snapshots, context: Context) -> int:
    everything = found.all()
    if context.json:
        context.output.emit_json({"recoveries": [_json(one) for one in everything]})
        return EXIT_OK
    rows = [
        (when(one.ts_ns), Styled(one.name, "cyan"), f"before {one.operation}", one.operation_id,
         str(one.dirty_files), size(one.size_bytes))
        for one in everything
    ]  # fmt: skip
    if not rows:
        context.output.line("no snapshots")
        return EXIT_OK
    header = ("when (UTC)", "snapshot", "why", "operation", "files", "size")
    context.output.table(rows, header=header, right=(4, 5), spare=(3, 5, 4, 0, 2))
    return EXIT_OK


def _json(one: Found) -> dict[str, object]:
    return {
        "ref": one.ref,
        "name": one.name,
        "source": one.source,
        "commit": one.commit.hex() or None,
        "ts": clock.iso(one.ts_ns),
        "operation": one.operation,
        "command_id": one.operation_id,
        "paths": [display(path) for path in one.paths],
        "dirty_files": one.dirty_files,
        "size_bytes": one.size_bytes,
    }


def _pruned(found: Snapshots, context: Context) -> int:
    stones = found.tombstones()
    if context.json:
        context.output.emit_json({"pruned": [stone._asdict() for stone in stones]})
    else:
        _show_stones(context.output, stones)
    return EXIT_OK


def _show_stones(output: Output, stones: list[Tombstone]) -> None:
    for stone in stones:
        output.line(Styled(stone.ref, "cyan"), f"  {stone.why}; {stone.lost_count} content(s) lost")
        for name in stone.lost[:20]:
            output.line("  ", name)


def _show(found: Snapshots, ref: str, path: str | None, context: Context) -> int:
    one = found.find(ref)
    if path is not None:
        return _show_file(found, one, path, context)
    if context.json:
        context.output.emit_json(_json(one))
        return EXIT_OK
    context.output.line(f"{one.ref}: before {one.operation} {one.operation_id}")
    about = f"captured {when(one.ts_ns)} UTC; {one.dirty_files} file(s) of work, "
    context.output.line(about + size(one.size_bytes))
    untracked = one.kept.meta.untracked if one.kept else ()
    for changed in one.paths:
        how = "  (untracked)" if changed in untracked else ""
        if trash_views.place_of(one, changed) is not None:
            context.output.line("  ", display(changed), "  (in the trash)")
            continue
        there = snapshots.lookup(one.reader, one.state, changed).kind is not Kind.ABSENT
        context.output.line("  ", display(changed), how if there else "  (was not there)")
    context.output.line("to bring it back: ", Styled(_whole(one), "cyan"))
    return EXIT_OK


def _whole(one: Found) -> str:
    more = " --with-git" if one.source == "rewrite" else ""
    return f"substrate recover restore {one.name}{more}"


def _show_file(found: Snapshots, one: Found, path: str, context: Context) -> int:
    wanted = found.rel_path(one, path)
    kept = trash_views.content(one, wanted)
    if kept is None:
        node = snapshots.lookup(one.reader, one.state, wanted)
        if node.kind not in (Kind.FILE, Kind.SYMLINK):
            raise NotFoundError(
                f"{one.name} holds no file {display(wanted)}",
                hint=f"`substrate recover show {one.name}` lists what it kept",
            )
        kept = one.reader.read_blob(node.oid), node.mode
    data, mode = kept
    if context.json:
        import base64

        context.output.emit_json(
            {**name_fields(wanted), "mode": f"{mode:04o}",
             "content_b64": base64.b64encode(data).decode()}
        )  # fmt: skip
    else:
        context.output.block(data)
    return EXIT_OK


# -- search ---------------------------------------------------------------------------------------


_SEARCH_MORE = "-i ignores case, `substrate recover list` shows what is kept"


def _search(found: Snapshots, args: Namespace, context: Context) -> int:
    """Like grep: 0 if something was found, 1 if not."""
    if args.limit < 0:
        raise UsageError("--limit takes a number of 0 or more", hint="--limit 0 finds all")
    # One more than is shown: to know whether there are more.
    wanted = pattern(
        args.pattern, regex=args.regex, ignore_case=args.ignore_case, word=args.word,
        context=args.context, binary=args.binary, most=args.limit + 1 if args.limit else 0,
    )  # fmt: skip
    first = _First(args.limit)
    if context.json:
        matches = [_match_json(match) for match in first.of(found.search(wanted, args.ref))]
        context.output.emit_json({"matches": matches, "truncated": first.is_cut})
        return EXIT_OK if matches else EXIT_DIFFERENT
    status = EXIT_DIFFERENT
    for match in first.of(found.search(wanted, args.ref)):  # print each match as it is found
        _show_match(context.output, match)
        status = EXIT_OK
    if first.is_cut:
        context.output.note(f"stopped after {args.limit} hits; --limit 0 finds all")
    if status == EXIT_DIFFERENT:
        where = args.ref or "any kept snapshot"
        context.output.note(f"no line in {where} matches {args.pattern!r}; {_SEARCH_MORE}")
    return status


class _First:
    """Passes on matches with at most `limit` hits together; 0: all of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.is_cut = False

    def of(self, matches: Iterator[Match]) -> Iterator[Match]:
        left = self._limit
        for match in matches:
            if self._limit and len(match.hits) > left:
                self.is_cut = True
                if left:
                    yield match._replace(hits=match.hits[:left])
                return
            left -= len(match.hits)
            yield match


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace").rstrip("\r")


def _match_json(match: Match) -> dict[str, object]:
    return {
        **name_fields(match.path),
        "oid": match.oid.hex(),
        "snapshots": list(match.snapshots),
        "hits": [
            {"line": hit.line, "text": _text(hit.text), "before": [_text(b) for b in hit.before],
             "after": [_text(a) for a in hit.after]}
            for hit in match.hits
        ],
    }  # fmt: skip


def _show_match(output: Output, match: Match) -> None:
    more = f"  (and {len(match.snapshots) - 1} more)" if len(match.snapshots) > 1 else ""
    output.line(Styled(match.snapshots[0], "cyan"), ":", display(match.path), more)
    for hit in match.hits:
        for number, line in enumerate(hit.before, start=hit.line - len(hit.before)):
            output.line(f"  {number}- ", _text(line))
        output.line(f"  {hit.line}: " if hit.line else "  ", _text(hit.text))
        for number, line in enumerate(hit.after, start=hit.line + 1):
            output.line(f"  {number}- ", _text(line))


# -- restore, prune -------------------------------------------------------------------------------


def _chosen(found: Snapshots, one: Found, args: Namespace) -> tuple[RelPath, ...]:
    if not args.untracked:
        return tuple(found.rel_path(one, text) for text in args.paths)
    if args.paths or one.kept is None:
        raise UsageError(
            "--untracked brings back what was untracked, of a rewrite's snapshot",
            hint="leave it out, or leave out the paths",
        )
    if not one.kept.meta.untracked:
        raise NotFoundError(f"{one.name} has no untracked files", hint="leave out --untracked")
    return one.kept.meta.untracked


def _write_out(found: Snapshots, one: Found, args: Namespace, context: Context) -> int:
    directory = context.cwd / args.to
    paths = _chosen(found, one, args)
    if args.dry_run:
        names = [p for p, _ in found.files(one) if not paths or any(is_within(p, s) for s in paths)]
        if context.json:
            document = {"to": str(directory), "dry_run": True, "plan": [display(p) for p in names]}
            context.output.emit_json(document)
        else:
            context.output.line(f"{len(names)} file(s) would be written to {directory}")
        return EXIT_OK
    written = found.write_out(one, directory, paths)
    if context.json:
        document = {"to": str(directory), "written": [display(path) for path in written]}
        context.output.emit_json(document)
    else:
        context.output.line(f"{len(written)} file(s) written to {directory}")
    return EXIT_OK


def _bring_back(found: Snapshots, one: Found, args: Namespace, context: Context) -> int:
    choice = RestoreChoice(_chosen(found, one, args), args.with_git, args.dry_run)
    done = found.bring_back(one, choice)
    if context.json:
        context.output.emit_json(_brought_json(done, args.dry_run))
    else:
        _show_brought(context.output, done, args.dry_run, one)
    return EXIT_DIFFERENT if done.conflicts else EXIT_OK


def _brought_json(done: BroughtBack, dry_run: bool) -> dict[str, object]:
    ops = done.plan.ops
    out: dict[str, object] = {
        "commit": None,
        "restored": [display(op.path) for op in ops if op.become.kind is not Kind.ABSENT],
        "deleted": [display(op.path) for op in ops if op.become.kind is Kind.ABSENT],
        "merged": [],
        "conflicts": [{**name_fields(p), "reason": why} for p, why in done.conflicts.items()],
        "recovery_ref": done.snapshot.ref if done.snapshot else None,
        "recover_with": done.recover_with or None,
        "notes": done.notes,
    }
    if dry_run:
        out |= {"dry_run": True, "plan": done.plan.describe()}
    return out


def _show_brought(output: Output, done: BroughtBack, dry_run: bool, one: Found) -> None:
    if dry_run:
        output.line(Styled(f"restore of {one.name}", "bold"), "  (dry run)")
        for line in done.plan.describe() or ["nothing would change"]:
            output.line(line)
    else:
        output.line(Styled(f"restore of {one.name}", "bold"), f"  {len(done.plan.ops)} path(s)")
    for path, why in done.conflicts.items():
        output.line(Styled("conflict", "red"), f"  {display(path)}: {why}")
    for note in done.notes:
        output.note(note)
    if done.recover_with:
        output.line("to take this back: ", Styled(done.recover_with, "cyan"))


def _prune(found: Snapshots, args: Namespace, context: Context) -> int:
    days = args.older_than
    if days is None and not args.redundant:
        days = _DAYS
    if days is not None and days < 0:
        raise UsageError("--older-than cannot be negative", hint="give a number of days")
    min_age_ns = None if days is None else int(days * _DAY_NS)
    gone = found.prune(Policy(min_age_ns, args.redundant), dry_run=args.dry_run)
    if context.json:
        document: dict[str, object] = {"pruned": [stone._asdict() for stone in gone]}
        if args.dry_run:
            document["dry_run"] = True
        context.output.emit_json(document)
        return EXIT_OK
    verb = "would go" if args.dry_run else "pruned"
    context.output.line(f"{len(gone)} snapshot(s) {verb}")
    _show_stones(context.output, gone)
    return EXIT_OK
