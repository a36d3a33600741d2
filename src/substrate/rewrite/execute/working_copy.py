"""The user's working copy: where it is, where our own files are, whether it is ready."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from substrate.errors import RefusedError, UsageError, WorkspaceError
from substrate.objects.git import WorktreeGit
from substrate.objects.store import check_ref_name, is_ref_name, read_ref
from substrate.system.files import read_bytes_or_none
from substrate.system.sync import FileLock
from substrate.workspace import find_repository, hide_from_git

RECOVERY_PREFIX = "refs/manifold/recovery/"
#: Our own top-level directories: no target may contain files in them.
OWN_DIRECTORIES = (b".manifold", b".substrate-git")
_LOCK_TIMEOUT_S = 60.0
#: Files that git keeps in its directory during an unfinished operation.
_UNDER_WAY = {
    "MERGE_HEAD": "merge",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase or am",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick or revert",
}


class Head(NamedTuple):
    """Where HEAD points: a branch (by full name), or a commit."""

    ref: str
    commit: bytes

    def describe(self) -> str:
        return self.ref or self.commit.hex()


class WorkingCopy(NamedTuple):
    root: Path
    git_dir: Path
    common_dir: Path
    #: The part of recovery refs and artifact paths that identifies this working copy.
    name: str
    git: WorktreeGit

    @property
    def own_dir(self) -> Path:
        return self.root / ".manifold"

    @property
    def journal_dir(self) -> Path:
        return self.own_dir / "journal"

    @property
    def index_file(self) -> Path:
        return self.git_dir / "index"

    def head(self) -> Head:
        """HEAD; `RefusedError` if there is no commit yet."""
        file = self.git_dir / "HEAD"
        if file.is_symlink():  # core.preferSymlinkRefs
            text = f"ref: {os.readlink(file)}"
        else:
            text = os.fsdecode(read_bytes_or_none(file) or b"").strip()
        ref = text.removeprefix("ref:").strip() if text.startswith("ref:") else ""
        if ref and is_ref_name(ref):
            commit = read_ref(self.common_dir, ref)
        else:
            commit = bytes.fromhex(text) if re.fullmatch("[0-9a-f]{40}", text) else None
        if commit is None:
            raise RefusedError(
                f"HEAD ({text}) names no commit yet", hint="commit something, then try again"
            )
        return Head(ref, commit)

    def branch(self, ref: str) -> bytes | None:
        """The commit of this branch, given by full name; None if there is no such branch."""
        if not ref.startswith("refs/heads/") or not is_ref_name(ref):
            return None
        return read_ref(self.common_dir, ref)

    def is_free(self) -> bool:
        """Whether no operation is running in it right now."""
        return FileLock(self.own_dir / "lock").is_free()

    @contextmanager
    def locked(self, purpose: str) -> Iterator[None]:
        """One operation at a time; makes ``.manifold`` on first use."""
        make_private(self)
        lock = FileLock(self.own_dir / "lock")
        lock.acquire(timeout_s=_LOCK_TIMEOUT_S, purpose=purpose)
        try:
            yield
        finally:
            lock.release()


def open_working_copy(start: Path, name: str | None = None) -> WorkingCopy:
    found = find_repository(start)
    assert found.git_dir is not None and found.git_common_dir is not None
    linked = found.git_dir != found.git_common_dir
    chosen = name or (_plain(found.git_dir.name) if linked else "default")
    _check_name(chosen)
    git = WorktreeGit(found.git_dir, found.root)
    return WorkingCopy(found.root, found.git_dir, found.git_common_dir, chosen, git)


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-") or "worktree"


def _check_name(name: str) -> None:
    if "/" in name or name.startswith("-") or not name.isprintable():
        raise UsageError(f"not a workspace name: {name!r}", hint="use letters, digits, - and _")
    check_ref_name(f"{RECOVERY_PREFIX}{name}/1")


def make_private(copy: WorkingCopy) -> None:
    """Create ``.manifold``, closed to other users and hidden from git and from packaging tools."""
    own = copy.own_dir
    if os.path.islink(own) or (own.exists() and not own.is_dir()):
        raise WorkspaceError(f"{own} is in the way", hint=f"move {own} away and try again")
    for name in ("artifacts", "journal", "trash"):  # a link there would lead our writes outside
        if os.path.islink(own / name):
            raise WorkspaceError(f"{own / name} is a link", hint="remove the link and try again")
    if not own.is_dir():
        own.mkdir(mode=0o700)
        (own / ".gitignore").write_bytes(b"*\n")
    if os.name == "posix" and own.stat().st_mode & 0o077:
        os.chmod(own, 0o700)
    hide_from_git(copy.common_dir)


def check_ready(copy: WorkingCopy) -> None:
    """`RefusedError`, before anything is changed, if a rewrite is not safe here."""
    git = copy.git
    for mark, what in _UNDER_WAY.items():
        if os.path.lexists(copy.git_dir / mark):
            raise RefusedError(
                f"a {what} is in progress", hint="finish it or abort it with git, then try again"
            )
    if git.is_set("core.bare"):
        raise RefusedError("this is a bare repository: it has no files", hint="use a working copy")
    if git.setting("extensions.objectformat", "sha1") != "sha1":
        raise RefusedError(
            "this repository uses SHA-256 object names", hint="only SHA-1 repositories so far"
        )
    if git.setting("extensions.refstorage", "files") != "files":
        raise RefusedError(
            "this repository keeps its refs in a reftable", hint="only plain ref files so far"
        )
    tree = git.config().get("core.worktree")
    if tree is not None and os.path.realpath(copy.git_dir / tree) != os.path.realpath(copy.root):
        raise RefusedError(
            f"core.worktree names another directory: {tree}", hint="name that one with --repo"
        )
    if git.is_set("core.sparsecheckout"):
        raise RefusedError(
            "this is a sparse checkout: files that are left out look like files that were removed",
            hint="run `git sparse-checkout disable`, then try again",
        )
    if not copy.index_file.is_file():
        raise RefusedError(
            "this working copy has no index",
            hint="commit something first, or make it from HEAD: `git read-tree HEAD`",
        )
