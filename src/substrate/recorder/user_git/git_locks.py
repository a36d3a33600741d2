"""Git's locks in the user's repository when a command begins.

An overlay caches whether a name exists. A command that once saw another process's lock would see it
for as long as it runs, and every git in it would fail, even if the lock was gone after a
millisecond. The lock does not concern the command: it works on a copy of its own, and when that
arrives, it is compared with what others did since then (`git_arrival`).

So the world gets a list of the locks that do not exist, and hides them if they appear later. A
fresh lock is waited for: then what its owner is about to write is part of the command's base, and
does not collide with the command's change. An older lock (an editor waits for a message, or a git
was killed) stays visible, as without a world: only then can the command report it, or remove the
lock of a dead process.
"""

from __future__ import annotations

import os

from substrate.objects.index import index_lock
from substrate.recorder.user_git.ref_moves import GitState
from substrate.workspace import Workspace

_INDEX_LOCK = os.fsencode(index_lock.NAME)
_LOCKS = (_INDEX_LOCK, b"HEAD.lock", b"ORIG_HEAD.lock", b"config.lock", b"packed-refs.lock")
_BRANCHES = "refs/heads/"


def wait_for_the_index(workspace: Workspace) -> None:
    """Wait up to 0.5 s for a fresh index.lock to disappear."""
    if workspace.git_dir is not None:
        index_lock.wait_while_young(workspace.git_dir)


def not_held(workspace: Workspace, state: GitState) -> tuple[bytes, ...]:
    """The locks that do not exist now, by their paths below the root.

    Substrate's own lock counts as absent: another command's change arrives at that very moment.
    """
    if workspace.git_dir is None or workspace.git_dir != workspace.root / ".git":
        return ()  # no overlay covers it
    names = [*_LOCKS]
    branch = state.head.removeprefix("ref:").strip()
    if branch.startswith(_BRANCHES) and ".." not in branch and "\0" not in branch:
        names.append(branch.encode("utf-8") + b".lock")
    git_dir = os.fsencode(workspace.git_dir)
    held = {name for name in names if os.path.lexists(os.path.join(git_dir, name))}
    if (
        _INDEX_LOCK in held
        and index_lock.IndexLock(workspace.git_dir, index_lock.ARRIVAL).is_ours()
    ):
        held.remove(_INDEX_LOCK)
    return tuple(b".git/" + name for name in names if name not in held)
