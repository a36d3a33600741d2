"""Apply a plan to the user's tree without losing anything: stage, then carry out; or resume.

    stage      read every path, write everything new into scratch; the tree is not touched
    carry_out  path by path: check again, exchange, verify what came out; sync; dispose of the old
    resume     after a crash, the same from wherever the earlier attempt stopped

An error in the middle reverses what was done. `docs/decisions/0003` has the reasons.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from substrate.errors import (
    DiskFullError,
    HalfAppliedError,
    SubstrateError,
    WorkspaceError,
)
from substrate.model import BlobReader, RelPath
from substrate.workspace.apply import (
    remove_subtree,
    rewrite_in_place,
    scratch_recovery,
)
from substrate.workspace.apply.apply_cases import handler_of
from substrate.workspace.apply.apply_context import (
    Conflict,
    Excluder,
    Item,
    Mismatch,
    Noted,
    Site,
    State,
    Step,
)
from substrate.workspace.apply.layer_source import LayerSource
from substrate.workspace.apply.plan import Plan, Times, shown
from substrate.workspace.apply.staging import Stage
from substrate.workspace.apply.trash import Trash, TrashEntry
from substrate.workspace.paths import SEARCH, Directory, Seen

__all__ = ["Applier", "Conflict", "Noted", "Report", "Staged"]


_NO_TIMES: Mapping[RelPath, Times] = {}


class Report(NamedTuple):
    """What happened to each path of the plan."""

    done: tuple[RelPath, ...]
    #: Was already in the wanted state.
    already: tuple[RelPath, ...]
    #: Left alone: not in the expected state.
    conflicts: tuple[Conflict, ...]
    #: Directories to remove that still hold something.
    kept_directories: tuple[Noted, ...]
    #: Were hard links and are now separate files.
    broken_links: tuple[RelPath, ...]
    #: Sockets, devices, and attributes that this file system does not support.
    cannot_restore: tuple[Noted, ...]
    #: Paths whose old state is in the trash.
    trashed: tuple[RelPath, ...]
    trash_entries: tuple[TrashEntry, ...]
    #: Paths that also got the requested times.
    timed: frozenset[RelPath] = frozenset()

    @property
    def complete(self) -> bool:
        """Whether every path is as the plan wants it."""
        return not (self.conflicts or self.kept_directories or self.cannot_restore)

    @property
    def changed_nothing(self) -> bool:
        """Whether the tree is as it was."""
        return not (self.done or self.trashed or self.trash_entries)


class Staged:
    """A plan that is ready to be carried out.

    The caller decides about its conflicts: `carry_out` leaves those paths alone and does the rest,
    `discard` drops the whole plan.
    """

    def __init__(self, items: list[Item], stage: Stage) -> None:
        self.items = items
        self.conflicts: tuple[Conflict, ...] = tuple(stage.conflicts)
        self.cannot_restore: tuple[Noted, ...] = tuple(stage.cannot)

    @property
    def already(self) -> tuple[RelPath, ...]:
        return tuple(item.path for item in self.items if item.state is State.ALREADY)


class Applier:
    """Changes the tree at `root`.

    `scratch` is a directory for this operation alone, on the same file system. Its name is the
    operation's name in the trash, unless `under` is given.
    """

    def __init__(
        self,
        root: Path,
        scratch: Path,
        blobs: BlobReader,
        trash: Trash,
        exclusions: Excluder | None = None,
        *,
        under: str = "",
        layer: LayerSource | None = None,
        top: Directory | None = None,
    ) -> None:
        """`top`: the tree, held open by the caller; without it `root` is opened."""
        self._root = root
        self._top = top
        self._scratch = scratch
        self._blobs = blobs
        self._trash = trash
        self._exclusions = exclusions
        self._under = under or scratch.name
        self._layer = layer

    def stage(self, plan: Plan) -> Staged:
        """Phase one. The tree is never changed.

        On an error (`DiskFullError`, another `WorkspaceError`, a damaged store) nothing is left in
        scratch either.
        """
        items = [Item(number, op) for number, op in enumerate(plan.ops)]
        with self._site() as site:
            return self._stage(site, Stage(site, items), items)

    def look(self, plan: Plan, seen: Mapping[RelPath, Seen] | None = None) -> Staged:
        """The first half of phase one: find conflicts. `fill` does the other half.

        `seen`: some of the paths, read a moment ago. Each is checked again before it is changed.
        """
        items = [Item(number, op) for number, op in enumerate(plan.ops)]
        with self._site() as site:
            stage = Stage(site, items, seen=seen)
            try:
                stage.look_at_all()
            except OSError as error:
                raise _translated(error, None) from error
            finally:
                self._clear(site, items)
            return Staged(items, stage)

    def fill(self, staged: Staged) -> None:
        """Write everything new into scratch, for the items of `look`."""
        with self._site() as site:
            stage = Stage(site, staged.items)
            self._write(site, stage, staged.items)
            staged.cannot_restore += tuple(stage.cannot)

    def discard(self, staged: Staged) -> None:
        """Drop a staged plan; the tree was not touched."""
        with self._site() as site:
            self._clear(site, staged.items)

    def carry_out(self, staged: Staged, times: Mapping[RelPath, Times] = _NO_TIMES) -> Report:
        """Phase two. On an error it reverses everything.

        It then raises `WorkspaceError` or `DiskFullError`. If it cannot reverse everything, it
        raises `HalfAppliedError`, which says where the bytes are.

        `times`: set on files that are rewritten in place, where it costs nothing more.
        """
        with self._site() as site:
            if os.utime in os.supports_fd:
                site.times = times
            return self._carry_out(site, staged)

    def resume(self, plan: Plan, others: Collection[RelPath] = ()) -> Report:
        """Finish a plan whose `carry_out` was interrupted; may itself be interrupted and run again.

        Paths that another process changed since then are left alone and are conflicts: those found
        to be changed, and the paths in `others`.
        """
        items = [Item(number, op) for number, op in enumerate(plan.ops)]
        with self._site() as site:
            try:
                scratch_recovery.recover(site, items)
            except OSError as error:
                raise self._half_applied(error) from error
            stage = Stage(site, items, resuming=True, may_open=True, others=others)
            return self._carry_out(site, self._stage(site, stage, items))

    # ---------------------------------------------------------------- inside

    def _site(self) -> Site:
        try:
            return Site(
                self._root, self._scratch, self._blobs, self._trash, self._exclusions,
                self._under, layer=self._layer, top=self._top,
            )  # fmt: skip
        except OSError as error:
            raise _translated(error, None) from error

    def _stage(self, site: Site, stage: Stage, items: list[Item]) -> Staged:
        try:
            stage.look_at_all()
        except OSError as error:
            self._clear(site, items)
            raise _translated(error, None) from error
        self._write(site, stage, items)
        return Staged(items, stage)

    def _write(self, site: Site, stage: Stage, items: list[Item]) -> None:
        try:
            stage.write_all()
        except OSError as error:
            self._clear(site, items)
            raise _translated(error, None) from error
        except BaseException:
            self._clear(site, items)
            raise

    def _carry_out(self, site: Site, staged: Staged) -> Report:
        late = Stage(site, staged.items, may_open=True)
        late.conflicts.extend(staged.conflicts)
        late.cannot.extend(staged.cannot_restore)
        done: list[Step] = []
        path: RelPath | None = None
        try:
            _join_syncs(site, staged.items)
            rewrite_in_place.mark_all(site, staged.items)
            remove_subtree.gather(staged.items)
            for item in staged.items:
                path = item.path
                _do(site, item, late, done)
            path = None
            site.shut()
            site.sync()
        except BaseException as error:
            self._take_back(site, done, staged.items, error)
            if isinstance(error, OSError):
                raise _translated(error, path) from error
            raise
        try:
            for step in done:
                step.settle(site)
            self._clear(site, staged.items, finished=True)
        except (OSError, SubstrateError) as error:
            raise HalfAppliedError(
                f"the change is made, but what it replaced could not be put away: {error}",
                hint=f"the bytes are in {self._scratch}; the next command tries again",
            ) from error
        return _report(site, staged.items, late)

    def _take_back(
        self, site: Site, done: list[Step], items: list[Item], cause: BaseException
    ) -> None:
        with contextlib.suppress(OSError):
            site.wait_for_syncs()
        try:
            for step in reversed(done):
                step.undo(site)
            site.shut()
            site.sync()
            self._clear(site, items)
        except (OSError, SubstrateError, Mismatch) as error:
            raise self._half_applied(error) from cause

    def _half_applied(self, error: BaseException) -> HalfAppliedError:
        return HalfAppliedError(
            f"stopped in the middle, and could not take everything back: {error}",
            hint=f"what was replaced is in {self._scratch}; the next command tries again",
        )

    def _clear(self, site: Site, items: list[Item], *, finished: bool = False) -> None:
        site.sweep(items, finished=finished)
        try:
            self._scratch.rmdir()
        except OSError:
            pass  # the caller keeps something of its own there


#: From this many changed files on, they are synced together.
_SEVERAL = 4
#: From this many on, if new files come with them, sync the whole file system, which makes the new
#: files durable as well.
_MANY = 16
#: Errors when another process replaces a path just before we change it.
_SWAPPED_MEANWHILE = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO}
)


def _join_syncs(site: Site, items: list[Item]) -> None:
    """Sync several files that keep their inode together, not one by one."""
    todo = [item for item in items if item.state is State.TODO and not item.unseen]
    kept = sum(item.is_rewrite or item.is_retouch for item in todo)
    if kept >= _MANY and any(item.in_layer for item in todo):
        site.syncs_all_at_the_end()
    elif kept >= _SEVERAL:
        site.syncs_together()


def _do(site: Site, item: Item, late: Stage, done: list[Step]) -> None:
    if item.unseen:
        late.look_at(item)
        if item.state is State.TODO and late.needs_staging(item):
            late.write_late(item)
    if item.state is not State.TODO or item.is_taken:
        return
    if item.takes and _do_whole(site, item, late, done):
        return
    if site.made_so and _is_changed_by_other_name(site, item):
        item.state = State.DONE
        return
    kept = len(site.kept_directories)
    try:
        done.extend(handler_of(item)(site, item, late))
    except Mismatch as mismatch:
        item.state = State.CONFLICT
        late.conflicts.append(Conflict(item.path, item.op.expect, mismatch.found, mismatch.reason))
    except OSError as error:
        if error.errno not in _SWAPPED_MEANWHILE:
            raise
        item.state = State.CONFLICT
        reason = f"it, or a directory above it, was replaced in that moment: {error.strerror}"
        late.conflicts.append(Conflict(item.path, item.op.expect, item.seen.node, reason))
    else:
        if item.is_retouch or item.is_rewrite:
            _note_hard_links(site, item)
        item.state = State.DONE if len(site.kept_directories) == kept else State.CANNOT


def _do_whole(site: Site, item: Item, late: Stage, done: list[Step]) -> bool:
    """Remove the directory as a whole; if that fails, first its content, path by path."""
    taken = remove_subtree.take_out(site, item)
    if taken is not None:
        done.extend(taken)
        item.state = State.DONE
        return True
    for one in item.takes:
        one.is_taken = False
        _do(site, one, late, done)
    return False


def _report(site: Site, items: list[Item], late: Stage) -> Report:
    def having(state: State) -> tuple[RelPath, ...]:
        return tuple(item.path for item in items if item.state is state)

    return Report(
        done=having(State.DONE),
        already=having(State.ALREADY),
        conflicts=tuple(late.conflicts),
        kept_directories=tuple(site.kept_directories),
        broken_links=tuple(site.broken_links),
        cannot_restore=tuple(late.cannot),
        trashed=tuple(entry.path for entry in site.trashed),
        trash_entries=tuple(site.trashed),
        timed=frozenset(site.timed),
    )


def _translated(error: OSError, path: RelPath | None) -> WorkspaceError:
    what = f"{shown(path)} cannot be changed" if path is not None else "nothing can be written"
    message = f"{what}: {error.strerror or error}; nothing was changed"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFullError(message, hint="free some space (or quota), then try again")
    if error.errno in (errno.EPERM, errno.EACCES):
        hint = "it may belong to another user, or be immutable (see lsattr)"
    elif error.errno == errno.EROFS:
        hint = "the file system is mounted read-only"
    else:
        hint = "check the disk and the file system, then try again"
    return WorkspaceError(message, hint=hint)


def _note_hard_links(site: Site, item: Item) -> None:
    """Record that the item's file has its new content or mode under all its names."""
    at = item.seen.stat
    if at is not None and at.st_nlink > 1:
        site.made_so.add((at.st_dev, at.st_ino))


def _is_changed_by_other_name(site: Site, item: Item) -> bool:
    """Whether a change through another name already gave the item's file its wanted state."""
    at = item.seen.stat
    if at is None or (at.st_dev, at.st_ino) not in site.made_so:
        return False
    parent, name = site.walker.parent_of(item.path, SEARCH)
    with parent:
        return site.look(parent, name, item.path).node == item.become
