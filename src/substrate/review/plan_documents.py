"""Previews: what a verb would do, as JSON, with its plan's id and the words to carry it out."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from substrate.errors import RefusedError, SubstrateError, UsageError
from substrate.model import Node, RelPath, display, hold_words, is_of_both_sides, name_fields
from substrate.recorder import (
    Branches,
    Choice,
    HistoryStore,
    Outcome,
    Place,
    Take,
    plan_id,
    queries,
    redo_command,
    roll_back,
    typed_path,
    undo_command,
    undo_hunks,
    undo_scope,
)
from substrate.recorder.arrival import Selection, held_worlds
from substrate.review.change_documents import content_of, hunk_fields, is_binary
from substrate.review.plan_request import PlanRequest
from substrate.review.scope_words import scope_meant

Document = dict[str, object]
#: Files of a preview that come with their lines; the others only have a name.
_MOST_SHOWN_FILES = 200


class Preview(NamedTuple):
    plan_id: str
    document: Document
    #: What carries it out: the words of the command line, without `--plan`.
    words: tuple[str, ...]


def preview(place: Place, wanted: PlanRequest) -> Preview:
    """What carrying it out now would do. Changes nothing."""
    if wanted.verb in ("apply", "discard"):
        return _of_world(place, wanted)
    files: list[Document] = []
    choice = Choice(
        paths=wanted.paths,
        take=Take(wanted.take) if wanted.take else None,
        skip_conflicts=wanted.skip_conflicts,
        dry_run=True,
        branches=Branches(wanted.branches) if wanted.branches else None,
        look=lambda store, outcome: files.extend(_files(store, outcome)),
    )
    outcome, words = _planned(place, wanted, choice)
    words = (*words, *_options(place, wanted))
    found = plan_id(outcome)
    document: Document = {
        "plan_id": found,
        "verb": wanted.verb,
        "what": outcome.what,
        "restored": [display(path) for path in outcome.restored],
        "deleted": [display(path) for path in outcome.deleted],
        "merged": [display(path) for path in outcome.merged],
        "kept": [display(path) for path in outcome.kept],
        "conflicts": [{**name_fields(p), "reason": why} for p, why in outcome.conflicts.items()],
        "files": files,
        "besides": list(outcome.besides),
        "notes": outcome.notes,
        "commands": [one.command_id for one in outcome.commands],
        "in_a_terminal": "substrate " + " ".join(map(shlex.quote, words)),
    }
    return Preview(found, document, words)


def _planned(place: Place, wanted: PlanRequest, choice: Choice) -> tuple[Outcome, tuple[str, ...]]:
    if wanted.verb == "redo" and not wanted.scope:
        return redo_command(place, choice), ("redo",)
    if wanted.verb == "rollback":
        if not wanted.scope:
            raise UsageError("rollback needs a scope", hint="scope: the id of a command")
        meant = scope_meant(wanted.scope, place)
        if meant.single is None:
            raise UsageError("rollback goes to one command", hint="scope: the id of a command")
        return roll_back(place, choice, to=meant.single), ("rollback", "--to", meant.single)
    meant = scope_meant(wanted.scope, place)
    if wanted.hunks:
        picked = dict.fromkeys(wanted.hunks)
        words = [f"--hunk={one}" for one in wanted.hunks]
        return undo_hunks(place, meant.find, picked, choice), ("undo", *meant.words, *words)
    if meant.single is not None:
        return undo_command(place, meant.single, choice), ("undo", meant.single)
    return undo_scope(place, meant.find, choice), ("undo", *meant.words)


def _options(place: Place, wanted: PlanRequest) -> tuple[str, ...]:
    out = [f"--path={typed_path(place, path)}" for path in wanted.paths]
    if wanted.take:
        out.append(f"--take={wanted.take}")
    if wanted.skip_conflicts:
        out.append("--skip-conflicts")
    if wanted.branches:
        out.append(f"--{wanted.branches}")
    return tuple(out)


def _files(store: HistoryStore, outcome: Outcome) -> list[Document]:
    """Now → after, of each file in the plan."""
    merged, deleted = set(outcome.merged), set(outcome.deleted)
    ops = [op for op in outcome.plan.ops if op.expect.has_content or op.become.has_content]
    out = []
    for number, op in enumerate(sorted(ops, key=lambda one: one.path)):
        is_deleted = op.path in deleted
        status = "deleted" if is_deleted else "merged" if op.path in merged else "restored"
        document: Document = {**name_fields(op.path), "status": status}
        if number < _MOST_SHOWN_FILES:
            now, after = content_of(store, op.expect), content_of(store, op.become)
            document |= {"now_bytes": len(now), "after_bytes": len(after)}
            document["binary"] = is_binary(now) or is_binary(after)
            document |= hunk_fields(now, after, whole=False)
            if status == "merged":
                document["yours"] = _outside_lines(store, op.path)
        out.append(document)
    return out


def _outside_lines(store: HistoryStore, path: RelPath) -> list[int]:
    """The lines, as the file is now, that were written outside Substrate."""
    try:
        found = queries.blame(store, path, None)
    except SubstrateError:
        return []
    return [one.number for one in found if one.author and one.author.kind == "external"]


# -- held worlds ----------------------------------------------------------------------------------


def _of_world(place: Place, wanted: PlanRequest) -> Preview:
    picked = dict.fromkeys(wanted.hunks) if wanted.hunks else None
    selection = Selection(wanted.paths, picked)
    foresee = wanted.verb == "apply"
    found = held_worlds.diff_world(place, wanted.scope, selection, foresee=foresee)
    world, foreseen = found.world, found.foreseen
    if wanted.verb == "apply" and is_of_both_sides(world.causes):
        # To apply it now means the world's side, also against commits that came after the refusal.
        raise RefusedError(
            f"{world.world_id} and the project both changed the repository: decide in a terminal",
            hint=f"substrate world diff {world.world_id}; then: world apply, or world discard",
        )
    files: Sequence[Mapping[str, object]] = [
        {**name_fields(one.path), "change": one.change, "binary": one.binary,
         "additions": one.additions, "deletions": one.deletions,
         "runs_code": one.path in found.runs_code}
        for one in found.files
    ]  # fmt: skip
    merged = [display(path) for path in foreseen.merged] if foreseen else []
    conflicts = [
        {**name_fields(path), "reason": why}
        for path, why in (foreseen.conflicts.items() if foreseen else ())
    ]
    held = hold_words(foreseen.causes) if foreseen else ""
    name = _id_of_world_plan(wanted, found, [*merged, held, *map(str, conflicts)])
    hunks = [f"--hunk={one}" for one in wanted.hunks]
    paths = [typed_path(place, path) for path in wanted.paths]
    words = ("world", wanted.verb, *hunks, "--", world.world_id, *paths)
    document: Document = {
        "plan_id": name,
        "verb": wanted.verb,
        "what": f"{wanted.verb} {world.world_id}",
        "world_id": world.world_id,
        "command": world.command,
        "restored": [],
        "deleted": [display(one.path) for one in found.files if one.change == "deleted"],
        "merged": merged,
        "conflicts": conflicts,
        "would_be_held": held,
        "runs_code": [display(path) for path in found.runs_code],
        "files": list(files),
        "patch": found.text.decode("utf-8", "backslashreplace"),
        "notes": [],
        "in_a_terminal": "substrate " + " ".join(shlex.quote(one) for one in words if one != "--"),
    }
    return Preview(name, document, words)


def _id_of_world_plan(
    wanted: PlanRequest, found: held_worlds.WorldDiff, foreseen: list[str]
) -> str:
    """A hash of what was chosen, and of every state that it changes: kind, mode, content."""
    world = found.world
    relied_on = [
        wanted.verb, world.world_id, world.state,
        [path.hex() for path in wanted.paths], list(wanted.hunks),
        [[one.path.hex(), _written(one.old), _written(one.new), one.beyond and one.times[1]]
         for one in found.layer.entries],
        foreseen,
    ]  # fmt: skip
    return "pl-" + hashlib.sha256(json.dumps(relied_on).encode()).hexdigest()[:32]


def _written(node: Node) -> list[object]:
    xattrs = [[name.hex(), value.hex()] for name, value in node.xattrs]
    return [node.kind.name, node.mode, node.oid.hex(), xattrs]
