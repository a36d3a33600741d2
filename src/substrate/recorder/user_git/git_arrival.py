"""What a world did to the user's own ``.git``, on its way into the real one.

Objects, logs and the like are taken as they are. Three things are not:

    the index    dropped if only its stat data is fresh; `fresh_index` may bring that later
    refs, HEAD   taken if they still stand where they stood when the world started
    collisions   a ref that both sides changed, or an index that cannot be put together
                 (`merged_index`): the world is held

While refs or the index come, we hold git's own lock, and look once more (`undisturbed`).
A world that had waited is compared by time: what was written since it started is not its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from substrate.errors import RefusedError
from substrate.model.nodes import Kind
from substrate.model.paths import RelPath, display
from substrate.objects.index_sameness import Fresh, fresh_stat
from substrate.recorder import merged_index
from substrate.recorder.fresh_index import INDEX
from substrate.recorder.git_meanwhile import spare_what_is_new
from substrate.recorder.git_outside import Stamp as CodeStamp
from substrate.recorder.git_outside import code_stamps
from substrate.recorder.user_git import GitState, git_state
from substrate.system.files import read_bytes_or_none
from substrate.workspace import index_lock
from substrate.workspace.layer import LayerDiff, LayerEntry
from substrate.workspace.locate import Workspace
from substrate.workspace.newer import Stamp, changed_since, stamp_of

_GIT = b".git"
_WATCHED = ("index", "packed-refs")
#: What a git changes that has locked the index, beside the branch it is on.
_UNDER_LOCK = (b"HEAD", b"index", b"packed-refs")
_WRITTEN = ".git/{} was written meanwhile"
_INDEX_WRITTEN = _WRITTEN.format("index")
#: Where that is in a stamp.
_MTIME_NS = 2
#: So long a git that is at work is waited for.
_PATIENCE_S = 2.0


class OpenIndex:
    """The index as it is now, for who may want to read it later: git puts another in its place,
    and never writes into it."""

    __slots__ = ("_fd",)

    def __init__(self, path: Path) -> None:
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self._fd = -1

    def content(self) -> bytes | None:
        try:
            return os.pread(self._fd, os.fstat(self._fd).st_size, 0)
        except OSError:
            return None

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)


class GitWatch(NamedTuple):
    """Where the user's repository stood when the world started."""

    state: GitState = GitState()
    #: Of the index and the packed refs: inode, size, times; None where there is none.
    stamps: tuple[Stamp | None, ...] = (None, None)
    #: Of what runs code in a repository that no layer covers.
    code: dict[str, CodeStamp] = {}  # noqa: RUF012  a tuple: replaced, never changed
    old_index: OpenIndex | None = None


class GitArrival(NamedTuple):
    diff: LayerDiff
    #: What collides, for people; empty if all of it can come.
    collisions: tuple[str, ...]
    #: For who applies it all the same: where the refs stood that it moves.
    notes: tuple[str, ...] = ()
    #: What the command's index notes anew, if that is all it did to it.
    fresh: Fresh | None = None
    #: What comes into ``.git``, by its path there.
    own: dict[bytes, LayerEntry] = {}  # noqa: RUF012  a tuple: replaced, never changed
    #: What it was compared with.
    before: GitWatch | None = None


def watch(workspace: Workspace) -> GitWatch:
    state = git_state(workspace)
    if workspace.git_dir is None:
        return GitWatch(state)
    stamps = tuple(stamp_of(workspace.git_dir / name) for name in _WATCHED)
    return GitWatch(state, stamps, code_stamps(workspace), OpenIndex(workspace.git_dir / "index"))


def look_after_git(
    workspace: Workspace,
    upper: Path,
    diff: LayerDiff,
    before: GitWatch | None,
    since_ns: int,
    *,
    may_merge: bool = False,
) -> GitArrival:
    """`diff` without what need not come, and what must not.

    `before` is None for a world that had waited; `since_ns` is when it started. `may_merge`: an
    index that others changed, too, is put together with theirs in the layer.
    """
    spared = spare_what_is_new(workspace.root, upper, diff, since_ns)
    diff = spared.diff
    touched = {one.path: one for one in diff.entries if one.beyond and _in_git(one.path)}
    if not touched:
        return GitArrival(diff, spared.collisions)
    dropped = _refreshed_indexes(workspace.root, upper, touched, before)
    if dropped:
        rest = tuple(one for one in diff.entries if one.path not in dropped)
        diff = diff._replace(entries=rest)
    own = {
        path.removeprefix(b".git/"): one
        for path, one in touched.items()
        if path.startswith(b".git/") and path not in dropped
    }
    if before is not None:
        collisions = (*_collisions(workspace, before, own), *spared.collisions)
        found = GitArrival(diff, collisions, fresh=dropped.get(INDEX), own=own, before=before)
        return _with_merged_index(workspace, upper, found) if may_merge else found
    late, notes = _late_collisions(workspace, own, since_ns)
    notes += [f"{one}: that is in .substrate-git/trash now" for one in spared.collisions]
    return GitArrival(diff, (*late, *spared.collisions), tuple(notes), own=own)


def _with_merged_index(workspace: Workspace, upper: Path, git: GitArrival) -> GitArrival:
    """If the index is all that collides and each side staged something else: no collision."""
    before, entry = git.before, git.own.get(b"index")
    if git.collisions != (_INDEX_WRITTEN,) or before is None or before.old_index is None:
        return git
    if entry is None or workspace.git_dir != workspace.root / ".git":
        return git
    if _is_on_another_commit(workspace, before.state, git.own):
        return git
    base = before.old_index.content()
    merged = merged_index.merge_into_layer(workspace.root, upper, entry, base)
    if merged is None:
        return git
    entries = (merged.entry if one.path == INDEX else one for one in git.diff.entries)
    return git._replace(
        diff=git.diff._replace(entries=tuple(entries)),
        collisions=(),
        notes=(*git.notes, "merged with what others staged meanwhile: .git/index"),
        own={**git.own, b"index": merged.entry},
        before=before._replace(stamps=(merged.stood, *before.stamps[1:])),
    )


def _is_on_another_commit(
    workspace: Workspace, before: GitState, own: dict[bytes, LayerEntry]
) -> bool:
    """Whether both sides have gone to other commits, one by a commit, say, and one by a checkout:
    what one has committed would stand there as staged for the other's branch."""
    now = git_state(workspace)
    branch = before.head.removeprefix("ref:").strip()
    if own.keys().isdisjoint((b"HEAD", b"packed-refs", os.fsencode(branch))):
        return False
    return before.head != now.head or before.refs.get(branch) != now.refs.get(branch)


@contextmanager
def undisturbed(workspace: Workspace, git: GitArrival, since_ns: int) -> Iterator[None]:
    """While the world's refs and index come, no git changes them. `RefusedError` if one did since
    `look_after_git`, unless that had found such a thing and it comes all the same."""
    is_ours = workspace.git_dir == workspace.root / ".git" and b"index.lock" not in git.own
    if not is_ours or not any(_is_watched(display(path), one) for path, one in git.own.items()):
        yield
        return
    # For other refs git has other locks: this one would only stop who stages something.
    is_for_index = any(path in _UNDER_LOCK or path == _branch(workspace) for path in git.own)
    lock = index_lock.held(workspace.root / ".git", _PATIENCE_S) if is_for_index else nullcontext()
    with lock:
        if git.before is not None:
            found = _collisions(workspace, git.before, git.own)
        else:
            found, _ = _late_collisions(workspace, git.own, since_ns)
        if found and not git.collisions:
            raise RefusedError(
                "your repository was changed in that moment: " + "; ".join(found),
                hint="`substrate world list` shows where the command's change is kept",
            )
        yield


def _branch(workspace: Workspace) -> bytes:
    """The ref that HEAD stands for."""
    head = _content(workspace.root / ".git" / "HEAD") or b""
    return head.removeprefix(b"ref:").strip()


def _is_watched(name: str, one: LayerEntry) -> bool:
    """A ref, HEAD, the index; by its path in ``.git``."""
    is_ref = one.new.kind is not Kind.DIRECTORY and name.startswith("refs/")
    return is_ref or name in ("HEAD", *_WATCHED)


def _late_collisions(
    workspace: Workspace, own: dict[bytes, LayerEntry], since_ns: int
) -> tuple[list[str], list[str]]:
    stands = dict(git_state(workspace).refs)
    out, notes = [], []
    for path, one in own.items():
        name = display(path)
        if not _is_watched(name, one):
            continue
        if changed_since(workspace.root / ".git" / os.fsdecode(path), since_ns):
            out.append(_WRITTEN.format(name))
            if name in stands:
                notes.append(f"{name} stood at {stands[name]}: `git branch NAME {stands[name]}`"
                             " brings that back")  # fmt: skip
            elif name == "index":
                notes.append("your index was replaced: stage again what you had staged meanwhile"
                             " (the old one is in .substrate-git/trash)")  # fmt: skip
    return out, notes


def _in_git(path: RelPath) -> bool:
    return _GIT in path.split(b"/")[:-1]


def _refreshed_indexes(
    root: Path, upper: Path, touched: dict[RelPath, LayerEntry], before: GitWatch | None
) -> dict[RelPath, Fresh]:
    """Indexes, of nested repositories too, that say nothing new but what files look like."""
    out = {}
    for path, one in touched.items():
        if not path.endswith(b".git/index") or one.new.kind is not Kind.FILE:
            continue
        below = os.fsdecode(path)
        if one.old.kind is Kind.FILE:
            its = _content(upper / below)
            fresh = _fresh(stamp_of(root / below), _content(root / below), its)
            if fresh is None and before is not None and before.old_index and path == INDEX:
                # Somebody has staged something: that is his. The command's own did not.
                fresh = _fresh(before.stamps[0], before.old_index.content(), its)
            if fresh is not None:
                out[path] = fresh
    return out


def _fresh(written: Stamp | None, mine: bytes | None, its: bytes | None) -> Fresh | None:
    if written is None or mine is None or its is None:
        return None
    return fresh_stat(mine, its, written[_MTIME_NS] // 1_000_000_000)


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
            out.append(_WRITTEN.format(name))
    return out
