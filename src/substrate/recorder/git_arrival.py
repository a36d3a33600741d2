"""What a world did to the user's own ``.git``, on its way into the real one.

Objects, logs and the like are taken as they are. Three things are not:

    the index    dropped if only its stat data is fresh, unless that is true of the real files
    refs, HEAD   taken if they still stand where they stood when the world started
    collisions   a ref or an index that both sides changed: the world is held

A world that had waited is compared by time: what was written since it started is not its own.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from substrate.model.nodes import Kind
from substrate.model.paths import RelPath, display
from substrate.objects.index_sameness import FileStat, Fresh, fresh_stat
from substrate.recorder.git_meanwhile import spare_what_is_new
from substrate.recorder.git_outside import Stamp, code_stamps
from substrate.recorder.user_git import GitState, git_state
from substrate.system.files import read_bytes_or_none
from substrate.workspace.layer import LayerDiff, LayerEntry
from substrate.workspace.locate import Workspace
from substrate.workspace.newer import changed_since

_GIT = b".git"
_INDEX = RelPath(b".git/index")
_WATCHED = ("index", "packed-refs")
#: Where that is in a stamp.
_MTIME_NS = 2


class GitWatch(NamedTuple):
    """Where the user's repository stood when the world started."""

    state: GitState = GitState()
    #: Of the index and the packed refs: inode, size, times; None where there is none.
    stamps: tuple[tuple[int, ...] | None, ...] = (None, None)
    #: Of what runs code in a repository that no layer covers.
    code: dict[str, Stamp] = {}  # noqa: RUF012  a tuple: replaced, never changed


class GitArrival(NamedTuple):
    diff: LayerDiff
    #: What collides, for people; empty if all of it can come.
    collisions: tuple[str, ...]
    #: For who applies it all the same: where the refs stood that it moves.
    notes: tuple[str, ...] = ()


def watch(workspace: Workspace) -> GitWatch:
    state = git_state(workspace)
    if workspace.git_dir is None:
        return GitWatch(state)
    stamps = tuple(_stamp(workspace.git_dir / name) for name in _WATCHED)
    return GitWatch(state, stamps, code_stamps(workspace))


def look_after_git(
    workspace: Workspace, upper: Path, diff: LayerDiff, before: GitWatch | None, since_ns: int
) -> GitArrival:
    """`diff` without what need not come, and what must not.

    `before` is None for a world that had waited; `since_ns` is when it started.
    """
    spared = spare_what_is_new(workspace.root, upper, diff, since_ns)
    diff = spared.diff
    touched = {one.path: one for one in diff.entries if one.beyond and _in_git(one.path)}
    if not touched:
        return GitArrival(diff, spared.collisions)
    dropped = _refreshed_indexes(workspace.root, upper, touched)
    fresh = dropped.get(_INDEX)
    if before is not None and fresh is not None and _is_welcome(workspace, fresh, before):
        del dropped[_INDEX]
    if dropped:
        rest = tuple(one for one in diff.entries if one.path not in dropped)
        diff = diff._replace(entries=rest)
    own = {
        path.removeprefix(b".git/"): one
        for path, one in touched.items()
        if path.startswith(b".git/") and path not in dropped
    }
    if before is not None:
        return GitArrival(diff, (*_collisions(workspace, before, own), *spared.collisions))
    late, notes = _late_collisions(workspace, own, since_ns)
    notes += [f"{one}: that is in .substrate-git/trash now" for one in spared.collisions]
    return GitArrival(diff, (*late, *spared.collisions), tuple(notes))


def _late_collisions(
    workspace: Workspace, own: dict[bytes, LayerEntry], since_ns: int
) -> tuple[list[str], list[str]]:
    stands = dict(git_state(workspace).refs)
    out, notes = [], []
    for path, one in own.items():
        name = display(path)
        is_ref = one.new.kind is not Kind.DIRECTORY and name.startswith("refs/")
        if not (is_ref or name in ("HEAD", *_WATCHED)):
            continue
        if changed_since(workspace.root / ".git" / os.fsdecode(path), since_ns):
            out.append(f".git/{name} was written meanwhile")
            if name in stands:
                notes.append(f"{name} stood at {stands[name]}: `git branch NAME {stands[name]}`"
                             " brings that back")  # fmt: skip
    return out, notes


def _in_git(path: RelPath) -> bool:
    return _GIT in path.split(b"/")[:-1]


def _refreshed_indexes(
    root: Path, upper: Path, touched: dict[RelPath, LayerEntry]
) -> dict[RelPath, Fresh]:
    """Indexes, of nested repositories too, that say nothing new but what files look like."""
    out = {}
    for path, one in touched.items():
        if not path.endswith(b".git/index") or one.new.kind is not Kind.FILE:
            continue
        below = os.fsdecode(path)
        if one.old.kind is Kind.FILE:
            written = _stamp(root / below)
            mine, its = _content(root / below), _content(upper / below)
            if written is not None and mine is not None and its is not None:
                fresh = fresh_stat(mine, its, written[_MTIME_NS] // 1_000_000_000)
                if fresh is not None:
                    out[path] = fresh
    return out


def _is_welcome(workspace: Workspace, fresh: Fresh, before: GitWatch) -> bool:
    """Whether a mere refresh of the index holds for the real files, as a bare one would.

    Where a command has just written them, the index knows them as they were in its world:
    without this every later ``git status`` would read them again. It must not cost anybody else's
    work: not while git works there, and not if the index was written meanwhile. Nor must git trust
    from then on what it noted of a file in the second of that file's writing and was not sure of:
    the world may have seen it as it was before another was put in its place.
    """
    root = os.fsencode(workspace.root)
    if workspace.git_dir != workspace.root / ".git" or not fresh.stats or not fresh.is_all:
        return False
    if os.path.lexists(root + b"/.git/index.lock"):
        return False
    if _stamp(workspace.git_dir / "index") != before.stamps[0]:
        return False
    noted = {**fresh.unsure, **fresh.stats}
    return all(_is_so(root, name, one) for name, one in noted.items())


def _is_so(root: bytes, name: bytes, noted: FileStat) -> bool:
    try:
        at = os.lstat(os.path.join(root, name))
    except OSError:
        return False
    stands = (
        *divmod(at.st_ctime_ns, 1_000_000_000), *divmod(at.st_mtime_ns, 1_000_000_000),
        at.st_ino, at.st_uid, at.st_gid, at.st_size,
    )  # fmt: skip
    return noted == tuple(number & 0xFFFFFFFF for number in stands)


def _content(path: Path) -> bytes | None:
    try:
        return None if path.is_symlink() else read_bytes_or_none(path)
    except OSError:
        return None


def _collisions(workspace: Workspace, before: GitWatch, own: dict[bytes, LayerEntry]) -> list[str]:
    now = watch(workspace)
    out = []
    if b"HEAD" in own and before.state.head != now.state.head:
        out.append("HEAD was moved meanwhile")
    was, stands = dict(before.state.refs), dict(now.state.refs)
    for path, one in own.items():
        name = display(path)
        is_ref = one.new.kind is not Kind.DIRECTORY and name.startswith("refs/")
        if is_ref and was.get(name) != stands.get(name):
            out.append(f"{name} was moved meanwhile")
    for name, then, at_present in zip(_WATCHED, before.stamps, now.stamps, strict=True):
        if name.encode() in own and then != at_present:
            out.append(f".git/{name} was written meanwhile")
    return out


def _stamp(path: Path) -> tuple[int, ...] | None:
    try:
        at = os.lstat(path)
    except OSError:
        return None
    return at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns
