"""Git's locks in the user's repository, and a command that begins.

An overlay remembers of each name whether it was there. A command that came across somebody's lock
would find it there for as long as it runs, and every git in it would fail, though the lock had been
gone after a millisecond. And whose it is does not concern the command: it works on a copy of its
own, and when that arrives, what others did meanwhile is compared (`git_arrival`).

So it is told which locks are not there, and sees none of them later on. One that has just been
made is waited for: what its owner is about to write is then a part of what the command begins with,
and does not collide with what it does. An older one (an editor waits for a message, or a git was
killed) it sees, as it would bare: only then can it say so, or remove what is left of the dead.
"""

from __future__ import annotations

import os
from pathlib import Path

from substrate.recorder.user_git import GitState
from substrate.system import clock
from substrate.workspace import index_lock
from substrate.workspace.locate import Workspace

_INDEX_LOCK = b"index.lock"
_LOCKS = (_INDEX_LOCK, b"HEAD.lock", b"ORIG_HEAD.lock", b"config.lock", b"packed-refs.lock")
_BRANCHES = "refs/heads/"
#: A git that stages something, or our own arrival, takes a few milliseconds.
_YOUNG_NS = 500_000_000
_TICK_S = 0.005
#: Clocks of file systems are no more exact than that.
_TICK_NS = 20_000_000


def wait_for_the_index(workspace: Workspace) -> None:
    """Until nobody holds it, or it is clear that he needs it for longer."""
    if workspace.git_dir is None:
        return
    lock = workspace.git_dir / os.fsdecode(_INDEX_LOCK)
    deadline = clock.monotonic_ns() + _YOUNG_NS
    while _is_young(lock) and clock.monotonic_ns() < deadline:
        clock.sleep(_TICK_S)


def _is_young(lock: Path) -> bool:
    try:
        # Not one from the future: every command would wait for it.
        return -_TICK_NS < clock.now_ns() - os.lstat(lock).st_mtime_ns < _YOUNG_NS
    except OSError:
        return False


def not_held(workspace: Workspace, state: GitState) -> tuple[bytes, ...]:
    """The locks that nobody holds now, by their paths below the root.

    One of our own is as good as gone: another command's change arrives in that very moment.
    """
    if workspace.git_dir is None or workspace.git_dir != workspace.root / ".git":
        return ()  # no overlay lies over it
    names = [*_LOCKS]
    branch = state.head.removeprefix("ref:").strip()
    if branch.startswith(_BRANCHES) and ".." not in branch and "\0" not in branch:
        names.append(branch.encode("utf-8") + b".lock")
    git_dir = os.fsencode(workspace.git_dir)
    held = {name for name in names if os.path.lexists(os.path.join(git_dir, name))}
    if _INDEX_LOCK in held and index_lock.is_an_arrivals(workspace.git_dir):
        held.remove(_INDEX_LOCK)
    return tuple(b".git/" + name for name in names if name not in held)
