"""A repository with its git directory outside the workspace: a linked worktree, a submodule.

No world covers it: a command's commit is written there at once and stays, whatever happens to the
world. The span says so, the previous values of its refs are recorded, and `undo --with-git` moves
them back. The strict tiers leave only those parts writable that a commit needs, and nothing that
could make other programs run code: no hook, no configuration, no pointer to another repository.

Commands may write the pointer to it, a file `.git`. So it is trusted only if the repository points
back, from a place that no command can write to in those tiers. Otherwise one command could choose
what the next one may write to, or see in `full`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from substrate.system.files import read_bytes_or_none
from substrate.workspace import Workspace, first_line

#: In the shared directory: what commits, branches, merges and fetches write.
_WRITTEN = ("objects", "refs", "logs")
#: In a worktree's own directory: the pointers to everything else, its own configuration, and the
#: directory of its submodules.
_OWN_CONFIG = "config.worktree"
_POINTERS = ("commondir", "gitdir", _OWN_CONFIG, "modules")
_WORK_TREE = re.compile(
    rb"^[ \t]*worktree[ \t]*=[ \t]*(.*?)[ \t\r]*$", re.IGNORECASE | re.MULTILINE
)
_HOOKS, _CONFIG = "hooks", "config"

Stamp = tuple[int, int, int]


class GitOutside(NamedTuple):
    """What a world must know about it; all empty if the git directory is in the workspace."""

    readable: tuple[Path, ...] = ()
    #: What stays writable in the strict tiers.
    writable: tuple[Path, ...] = ()
    #: What stays read-only inside the writable directories.
    read_only: tuple[Path, ...] = ()
    #: For the span.
    note: str = ""


def is_outside(workspace: Workspace) -> bool:
    return workspace.git_dir is not None and not workspace.git_dir.is_relative_to(workspace.root)


def git_outside(workspace: Workspace) -> GitOutside:
    git_dir, common = workspace.git_dir, workspace.git_common_dir
    if git_dir is None or common is None or not is_outside(workspace):
        return GitOutside()
    note = f"the repository's own directory is outside the workspace, not protected: {git_dir}"
    settings = _content(common / _CONFIG)
    if not _points_back(workspace.root, git_dir, common, settings):
        return GitOutside(note=f"{note}; it does not name this workspace")
    if git_dir == common:
        # A submodule: a command that can write there could also write its configuration.
        return GitOutside((common,), note=note)
    if b"worktreeconfig" in settings.lower() and not os.path.lexists(git_dir / _OWN_CONFIG):
        # Git would read that file once a command created it, and a missing file cannot be made
        # read-only.
        return GitOutside((git_dir, common), note=note)
    return GitOutside(
        (git_dir, common),
        (git_dir, *(common / name for name in _WRITTEN)),
        tuple(git_dir / name for name in _POINTERS if os.path.lexists(git_dir / name)),
        note,
    )


def _points_back(root: Path, git_dir: Path, common: Path, settings: bytes) -> bool:
    if git_dir == common:
        named = _WORK_TREE.findall(settings)
        return bool(named) and _leads_to(git_dir, named[-1].strip(b'"'), root)
    back = first_line(git_dir / "gitdir").strip()
    return git_dir.parent == common / "worktrees" and _leads_to(git_dir, back, root / ".git")


def _leads_to(git_dir: Path, named: bytes, wanted: Path) -> bool:
    return bool(named) and os.path.realpath(git_dir / os.fsdecode(named)) == os.fspath(wanted)


def _content(path: Path) -> bytes:
    try:
        return read_bytes_or_none(path) or b""
    except OSError:  # a FIFO, a directory: a command can put anything there
        return b""


def branches_of_others(workspace: Workspace) -> set[str]:
    """Branches that other worktrees have checked out: git lets only those move them."""
    git_dir, common = workspace.git_dir, workspace.git_common_dir
    if git_dir is None or common is None:
        return set()
    places = [common]
    try:
        places += [common / "worktrees" / name for name in os.listdir(common / "worktrees")]
    except OSError:
        pass
    found = set()
    for place in places:
        if place == git_dir:
            continue
        try:
            head = read_bytes_or_none(place / "HEAD") or b""
        except OSError:
            continue
        if head.startswith(b"ref: "):
            found.add(head[len(b"ref: ") :].strip().decode("utf-8", "replace"))
    return found


def code_stamps(workspace: Workspace) -> dict[str, Stamp]:
    """Stamps of files that make other programs run code and that no layer covers."""
    common = workspace.git_common_dir
    if common is None or not is_outside(workspace):
        return {}
    names = [common / _CONFIG]
    try:
        names += [common / _HOOKS / name for name in os.listdir(common / _HOOKS)]
    except OSError:
        pass
    found = {}
    for path in names:
        try:
            at = os.lstat(path)
        except OSError:
            continue
        found[str(path)] = (at.st_ino, at.st_size, at.st_ctime_ns)
    return found


def code_changed(before: dict[str, Stamp], workspace: Workspace) -> list[str]:
    """Files that were created or changed since; without samples, which git never runs."""
    now = code_stamps(workspace)
    changed = sorted(path for path in now if now[path] != before.get(path))
    return [path for path in changed if not path.endswith(".sample")]
