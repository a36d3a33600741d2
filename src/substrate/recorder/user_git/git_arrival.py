"""Apply what a world did to the user's own ``.git`` to the real one.

Objects, logs and the like are taken as they are. Three things are not:

    the index    dropped if only its stat data is new; `refreshed_index` may apply that later
    refs, HEAD   taken if the real ones have not moved since the world started
    collisions   a ref that both sides changed, or an index that cannot be merged
                 (`merged_index`): the world is held

While refs or the index arrive, we hold git's own lock and check again (`undisturbed`).
A held world is compared by time: what was written since it started is another process's work.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from substrate.errors import RefusedError
from substrate.model import Hold, HoldCause, Kind, RelPath, cause_words, display
from substrate.objects.index import Fresh, fresh_stat, index_lock
from substrate.recorder.user_git import merged_index
from substrate.recorder.user_git.concurrent_git_edits import spare_what_is_new
from substrate.recorder.user_git.outside_git_dir import Stamp as CodeStamp
from substrate.recorder.user_git.outside_git_dir import code_stamps
from substrate.recorder.user_git.ref_moves import GitState, git_state
from substrate.recorder.user_git.refreshed_index import INDEX
from substrate.system.files import read_bytes_or_none
from substrate.workspace import Workspace
from substrate.workspace.apply import LayerDiff, LayerEntry
from substrate.workspace.paths import Stamp, changed_since, stamp_of

_GIT = b".git"
_WATCHED = ("index", "packed-refs")
#: What a git that has locked the index changes, besides its current branch.
_UNDER_LOCK = (b"HEAD", b"index", b"packed-refs")
#: The position of the mtime in a stamp.
_MTIME_NS = 2
#: How long to wait for a running git.
_PATIENCE_S = 2.0


class OpenIndex:
    """The present index, kept open for reading later.

    Git never writes into an index but replaces the file, so the content stays readable.
    """

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
    """The state of the user's repository when the world started."""

    state: GitState = GitState()
    #: For the index and the packed refs: inode, size, times; None if the file does not exist.
    stamps: tuple[Stamp | None, ...] = (None, None)
    #: For files that make code run in a repository that no layer covers.
    code: dict[str, CodeStamp] = {}  # noqa: RUF012  a tuple: replaced, never changed
    old_index: OpenIndex | None = None


class GitArrival(NamedTuple):
    diff: LayerDiff
    #: Empty if everything can arrive.
    collisions: tuple[HoldCause, ...]
    #: If the user applies it anyway: the previous values of the refs that it moves.
    notes: tuple[str, ...] = ()
    #: The new stat data in the command's index, if that is all it changed.
    fresh: Fresh | None = None
    #: What arrives in ``.git``, by its path there.
    own: dict[bytes, LayerEntry] = {}  # noqa: RUF012  a tuple: replaced, never changed
    #: The state it was compared with.
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
    """`diff` without what need not arrive, and the collisions.

    `before` is None for a world that was held; `since_ns` is when it started. `may_merge`: if
    others changed the index, too, merge both in the layer.
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
    notes += [
        f"{cause_words(one)}: that is in .substrate-git/trash now" for one in spared.collisions
    ]
    return GitArrival(diff, (*late, *spared.collisions), tuple(notes), own=own)


def _with_merged_index(workspace: Workspace, upper: Path, git: GitArrival) -> GitArrival:
    """If only the index collides and each side staged different paths, merge it."""
    before, entry = git.before, git.own.get(b"index")
    if git.collisions != (_written("index"),) or before is None or before.old_index is None:
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
        notes=(*git.notes, "merged with what others staged while it ran: .git/index"),
        own={**git.own, b"index": merged.entry},
        before=before._replace(stamps=(merged.stood, *before.stamps[1:])),
    )


def _is_on_another_commit(
    workspace: Workspace, before: GitState, own: dict[bytes, LayerEntry]
) -> bool:
    """Whether both sides moved to other commits, for example by a commit and by a checkout.

    Then what one side committed would appear as staged on the other side's branch.
    """
    now = git_state(workspace)
    branch = before.head.removeprefix("ref:").strip()
    if own.keys().isdisjoint((b"HEAD", b"packed-refs", os.fsencode(branch))):
        return False
    return before.head != now.head or before.refs.get(branch) != now.refs.get(branch)


@contextmanager
def undisturbed(workspace: Workspace, git: GitArrival, since_ns: int) -> Iterator[None]:
    """Keep other gits from changing refs and index while the world's arrive.

    Raises `RefusedError` if one has changed them since `look_after_git`, unless that had already
    found collisions and the user applies the world anyway.
    """
    is_ours = workspace.git_dir == workspace.root / ".git" and b"index.lock" not in git.own
    if not is_ours or not any(_is_watched(display(path), one) for path, one in git.own.items()):
        yield
        return
    # For other refs git has other locks: this one would only block a user's staging.
    is_for_index = any(path in _UNDER_LOCK or path == _branch(workspace) for path in git.own)
    lock = index_lock.held(workspace.root / ".git", _PATIENCE_S) if is_for_index else nullcontext()
    with lock:
        if git.before is not None:
            found = _collisions(workspace, git.before, git.own)
        else:
            found, _ = _late_collisions(workspace, git.own, since_ns)
        if found and not git.collisions:
            raise RefusedError(
                "your repository was changed in that moment: " + "; ".join(map(cause_words, found)),
                hint="`substrate world list` shows where the command's change is kept",
            )
        yield


def _branch(workspace: Workspace) -> bytes:
    """The ref that HEAD points to."""
    head = _content(workspace.root / ".git" / "HEAD") or b""
    return head.removeprefix(b"ref:").strip()


def _is_watched(name: str, one: LayerEntry) -> bool:
    """Whether a path in ``.git`` is a ref, HEAD, the index or the packed refs."""
    is_ref = one.new.kind is not Kind.DIRECTORY and name.startswith("refs/")
    return is_ref or name in ("HEAD", *_WATCHED)


def _late_collisions(
    workspace: Workspace, own: dict[bytes, LayerEntry], since_ns: int
) -> tuple[list[HoldCause], list[str]]:
    stands = dict(git_state(workspace).refs)
    out: list[HoldCause] = []
    notes: list[str] = []
    for path, one in own.items():
        name = display(path)
        if not _is_watched(name, one):
            continue
        if changed_since(workspace.root / ".git" / os.fsdecode(path), since_ns):
            out.append(_written(name))
            if name in stands:
                notes.append(f"{name} stood at {stands[name]}: `git branch NAME {stands[name]}`"
                             " brings that back")  # fmt: skip
            elif name == "index":
                notes.append("your index was replaced: stage again what you staged while it ran"
                             " (the old one is in .substrate-git/trash)")  # fmt: skip
    return out, notes


def _written(name: str) -> HoldCause:
    return HoldCause(Hold.GIT_FILE_WRITTEN, (f".git/{name}",))


def _in_git(path: RelPath) -> bool:
    return _GIT in path.split(b"/")[:-1]


def _refreshed_indexes(
    root: Path, upper: Path, touched: dict[RelPath, LayerEntry], before: GitWatch | None
) -> dict[RelPath, Fresh]:
    """Indexes, also of nested repositories, in which only the stat data of files is new."""
    out = {}
    for path, one in touched.items():
        if not path.endswith(b".git/index") or one.new.kind is not Kind.FILE:
            continue
        below = os.fsdecode(path)
        if one.old.kind is Kind.FILE:
            its = _content(upper / below)
            fresh = _fresh(stamp_of(root / below), _content(root / below), its)
            if fresh is None and before is not None and before.old_index and path == INDEX:
                # The user has staged something in the real index: keep that. The command did not.
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


def _collisions(
    workspace: Workspace, before: GitWatch, own: dict[bytes, LayerEntry]
) -> list[HoldCause]:
    now = watch(workspace)
    out = []
    if b"HEAD" in own and before.state.head != now.state.head:
        out.append(HoldCause(Hold.REF_MOVED, ("HEAD",)))
    was, stands = dict(before.state.refs), dict(now.state.refs)
    for path, one in own.items():
        name = display(path)
        is_ref = one.new.kind is not Kind.DIRECTORY and name.startswith("refs/")
        if is_ref and was.get(name) != stands.get(name):
            out.append(HoldCause(Hold.REF_MOVED, (name,)))
    for name, then, at_present in zip(_WATCHED, before.stamps, now.stamps, strict=True):
        if name.encode() in own and then != at_present:
            out.append(_written(name))
    return out
