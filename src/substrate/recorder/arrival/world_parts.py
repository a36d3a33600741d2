"""Parts of a held world: which of its paths and hunks arrive now, and what stays in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from substrate.errors import NotFoundError, RefusedError
from substrate.history.record import DecidedParts
from substrate.history.reversal import ChangeHunk, hunks
from substrate.model import ABSENT, Kind, RelPath, ancestors, display, is_within
from substrate.objects.store import Batch
from substrate.system import clock
from substrate.workspace.apply import LayerDiff, LayerEntry

_SHOWN_NAMES = 3
#: Hunk ids, each with the lines to put there instead of the new ones, or None.
PickedHunks = Mapping[str, tuple[bytes, ...] | None]


class Selection(NamedTuple):
    """What the user named; by default the whole world, without what was discarded before."""

    paths: tuple[RelPath, ...] = ()
    hunks: PickedHunks | None = None
    #: Of a discarded world the discarded paths are meant, too.
    with_discarded: bool = False

    @property
    def words(self) -> str:
        """For the entry's text: what was named, shortened."""
        names = [display(path) for path in self.paths[:_SHOWN_NAMES]]
        names += ["…"] if len(self.paths) > _SHOWN_NAMES else []
        names += [f"({len(self.hunks)} hunks)"] if self.hunks else []
        return " ".join(["", *names])


WHOLE = Selection()


class Divided(NamedTuple):
    taken: LayerDiff
    #: Whether a change is left that was neither taken nor discarded, and one that was discarded.
    leaves_pending: bool
    leaves_discarded: bool


def divide(
    batch: Batch, diff: LayerDiff, parts: DecidedParts, selection: Selection, world_id: str
) -> Divided:
    """The part of the layer that the selection names."""
    diff = part_of(diff, lambda path: not _is_in(path, parts.applied))
    for path in selection.paths:
        _check_named(diff, path, world_id)
    if selection.paths:
        taken = part_of(diff, lambda path: _is_in(path, selection.paths))
    elif selection.with_discarded:
        taken = diff
    else:
        taken = part_of(diff, lambda path: not _is_in(path, parts.discarded))
    if selection.hunks is not None:
        taken = _with_hunks(batch, taken, selection.hunks)
    whole = {one.path: one.new for one in taken.entries}
    left = [one for one in diff.entries if one.old != one.new and whole.get(one.path) != one.new]
    # A removed directory goes with the last path in it.
    above = {directory for one in left for directory in ancestors(one.path)}
    left = [one for one in left if one.new != ABSENT or one.path not in above]
    discarded = [one for one in left if _is_in(one.path, parts.discarded)]
    # Directories that history did not know: the command removed what was in them.
    emptied = [p for p in diff.emptied if p not in taken.emptied and p not in above]
    pending = [path for path in emptied if not _is_in(path, parts.discarded)]
    return Divided(taken, len(left) > len(discarded) or bool(pending), bool(discarded))


def check_discard(diff: LayerDiff, paths: Iterable[RelPath], world_id: str) -> None:
    """Raise an error if a path cannot be discarded by itself."""
    for path in paths:
        _check_named(diff, path, world_id)
    part_of(diff, lambda one: not _is_in(one, tuple(paths)))


def hunks_in(batch: Batch, diff: LayerDiff) -> list[ChangeHunk]:
    """The hunks of a layer's recorded changes."""
    return hunks.hunks_of(batch, diff.changes())


def _is_in(path: RelPath, scopes: Collection[RelPath]) -> bool:
    return any(is_within(path, scope) for scope in scopes)


def _check_named(diff: LayerDiff, path: RelPath, world_id: str) -> None:
    if not any(is_within(one.path, path) for one in diff.entries):
        raise NotFoundError(
            f"{world_id} has no change in {display(path)}",
            hint=f"`substrate world diff {world_id} --stat` lists what it changed",
        )
    above = {*ancestors(path)}
    for one in diff.entries:
        is_unit = one.beyond and (one.is_whole or one.path.rpartition(b"/")[2] == b".git")
        if is_unit and one.path in above:
            raise RefusedError(
                f"{display(path)} is in {display(one.path)}, which is applied or discarded"
                " as a whole",
                hint=f"name {display(one.path)} instead",
            )


def part_of(diff: LayerDiff, takes: Callable[[RelPath], bool]) -> LayerDiff:
    """The entries that `takes` accepts, and what they need: new directories above them.

    A removed directory stays a directory as long as something that stays is in it.
    """
    by_path = {one.path: one for one in diff.entries}
    taken = {path for path in by_path if takes(path)}
    for path in list(taken):
        if by_path[path].new != ABSENT:
            taken.update(a for a in ancestors(path) if a in by_path and _is_made(by_path[a]))
    left = [p for p, one in by_path.items() if p not in taken and one.old != one.new]
    above_left = {above for path in left for above in ancestors(path)}
    kept_inside = {a for path in left if by_path[path].old != ABSENT for a in ancestors(path)}
    for path in sorted(taken & kept_inside, reverse=True):
        one = by_path[path]
        if one.old.kind is not Kind.DIRECTORY or one.new.kind is Kind.DIRECTORY:
            continue
        if one.new != ABSENT:
            raise RefusedError(
                f"{display(path)} was a directory and is none any more: what was in it goes with"
                " it",
                hint=f"name {display(path)} as a whole",
            )
        taken.discard(path)
        kept_inside.update(ancestors(path))
    return LayerDiff(
        tuple(
            one._replace(is_whole=one.is_whole and one.path not in above_left)
            for one in diff.entries if one.path in taken
        ),
        tuple(one for one in diff.left_out if takes(one.path)),
        tuple(path for path in diff.emptied if takes(path) and path not in above_left),
        {path: seen for path, seen in diff.stood.items() if path in taken},
    )  # fmt: skip


def _is_made(one: LayerEntry) -> bool:
    return one.new.kind is Kind.DIRECTORY and one.old.kind is not Kind.DIRECTORY


def _with_hunks(batch: Batch, diff: LayerDiff, picked: PickedHunks) -> LayerDiff:
    """`diff` with only the picked hunks of each file."""
    known = hunks_in(batch, diff)
    nodes = hunks.with_only(batch, known, picked)
    if not nodes:
        raise NotFoundError("no hunk was named", hint="see `substrate world diff ID --hunks`")
    gone = {a for path, node in nodes.items() if node == ABSENT for a in ancestors(path)}
    by_path = {one.path: one for one in diff.entries}
    emptied = {a for a in gone if a in by_path and by_path[a].new == ABSENT}
    now = clock.now_ns()
    # A file that is neither the old nor the new one gets a time of its own, for build tools.
    entries = tuple(
        one._replace(new=nodes[one.path], times=(now, now))
        if one.path in nodes and nodes[one.path] != one.new else one
        for one in diff.entries
    )  # fmt: skip
    return part_of(diff._replace(entries=entries), lambda path: path in nodes or path in emptied)
