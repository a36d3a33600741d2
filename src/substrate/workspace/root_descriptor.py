"""The workspace's root, held open: its path may later name another directory."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from substrate.errors import WorkspaceMovedError
from substrate.workspace.paths import Directory
from substrate.workspace.workspace_location import Workspace


class Anchor:
    """One workspace as it was found. The directory stays open until `close`."""

    def __init__(self, workspace: Workspace) -> None:
        self.root = workspace.root
        try:
            self.top = Directory.open_root(workspace.root)
        except (FileNotFoundError, NotADirectoryError):
            raise moved_away(workspace.root) from None
        at = self.top.own_stat()
        self.identity = (at.st_dev, at.st_ino)
        if workspace.identity not in ((0, 0), self.identity):
            self.top.close()
            raise moved_away(workspace.root)

    @property
    def is_there(self) -> bool:
        """Whether the workspace's path still leads to the directory that was opened."""
        return _is_at(self.root, self.identity)

    def now_at(self) -> str:
        """Where it is now; empty if no path leads there (its file system was unmounted)."""
        if self.top.fd is None:
            return ""
        try:
            path = os.readlink(f"/proc/self/fd/{self.top.fd}")
        except OSError:
            return ""
        return path if _is_at(path, self.identity) else ""

    def moved(self, during: str) -> WorkspaceMovedError:
        """The error for the interrupted operation: where the workspace is, what to type next."""
        return moved_away(self.root, self.now_at(), during)

    def close(self) -> None:
        self.top.close()


def moved_away(root: Path, now_at: str = "", during: str = "") -> WorkspaceMovedError:
    """The error: `root` is gone, or is another directory than the one an operation began in."""
    what = f"during this operation ({during}), which is not complete" if during else ""
    if now_at:
        return WorkspaceMovedError(
            f"{root} was moved to {now_at} {what}".rstrip(),
            hint=f"`substrate -C {shlex.quote(now_at)} -c true` finishes or reverses it",
            now_at=now_at,
        )
    return WorkspaceMovedError(
        f"{root} was moved away or unmounted {what}".rstrip(),
        hint="bring it back (or go to where it is now): the next substrate command there"
        " finishes or reverses what was begun",
    )


def _is_at(path: str | Path, identity: tuple[int, int]) -> bool:
    try:
        at = os.stat(path)
    except OSError:
        return False
    return (at.st_dev, at.st_ino) == identity
