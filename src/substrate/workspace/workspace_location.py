"""Which directory is the workspace, which git repository it belongs to, and where history is.

It reads the files directly: no process is started to find the workspace.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from substrate.errors import HistoryRefusedError, NotFoundError, WorkspaceError
from substrate.system import environment
from substrate.system.files import files, real_path

STORE_NAME = ".substrate-git"
#: A file in the store: the user has paused recording here. It is below a ``.git``, where git writes
#: no file: a clone must not turn its user's recording off.
_PAUSED = Path(".git", "paused")
#: The entries that `protect_store` hides from the user's own git.
_HIDDEN = (b".substrate-git/", b".ctx/", b".manifold/")
#: The store's directories in which files are created and removed.
_STORE_DIRECTORIES = (
    *("", "/.git", "/.git/objects", "/.git/objects/pack", "/.git/refs", "/.git/refs/heads"),
    *("/index", "/journal", "/trash", "/worlds"),
)
_POINTER_LIMIT = 4096 + len("gitdir: \n")


class Workspace(NamedTuple):
    """One workspace, as it was when it was found."""

    #: Absolute, with every symlink resolved.
    root: Path
    #: ``root/.substrate-git``; it need not exist yet.
    store: Path
    #: The user's repository, if the root has one; for a linked worktree, its own directory.
    git_dir: Path | None
    #: Where refs, objects and ``info/exclude`` are: all worktrees of a repository share it.
    git_common_dir: Path | None
    #: Empty, or why no history is kept here. Commands still run.
    history_refused: str
    #: Device and inode of the root: another directory may have its path later.
    identity: tuple[int, int] = (0, 0)
    #: No history is kept because the directory belongs to another user.
    is_of_another_user: bool = False
    #: No history is kept because the user wants none: now, or for this call.
    is_unwanted: bool = False

    def unwanted(self, why: str) -> Workspace:
        """This workspace, for a call that leaves no record."""
        return self._replace(history_refused=why, is_unwanted=True)

    @property
    def refusal(self) -> str:
        """`history_refused` as a sentence; an older history may exist here."""
        if self.is_unwanted:
            return f"nothing is recorded here: {self.history_refused}"
        if os.path.lexists(self.store):
            return f"the history that is here cannot go on: {self.history_refused}"
        return f"no history is kept here: {self.history_refused}"

    @property
    def refusal_hint(self) -> str:
        """What the user can do about it."""
        if self.is_unwanted:
            return "`substrate resume` ends a pause; what is recorded stays"
        if self.is_of_another_user:
            return f"{self.as_owner}; without it commands run on the real files and are traced"
        if os.path.lexists(self.store):
            return (
                f"make {self.root} writable for you (its owner, its mode, or how it is mounted);"
                " `substrate log` still answers, and commands run and are traced"
            )
        return "work in a project directory of your own; commands still run and are traced"

    @property
    def note_at_command(self) -> str:
        """For the user whose command runs without history: what that means, and what to type."""
        said = f"{self.refusal}; the command is only traced"
        if self.is_of_another_user:
            return f"{said}, and undo cannot take it back. To keep a history, {self.as_owner}"
        return said

    @property
    def as_owner(self) -> str:
        """What to type if the caller is not the owner."""
        try:
            uid = os.stat(self.root).st_uid
        except OSError:
            return "run substrate as the directory's owner"
        return (
            f"run it as the directory's owner: `sudo -u '#{uid}' substrate …`,"
            f" or `--user {uid}` when you start the container"
        )


def find_workspace(start: Path) -> Workspace:
    """The workspace that contains `start`.

    The nearest ancestor with ``.substrate-git``, else the nearest with ``.git``, else `start`.
    """
    here = Path(real_path(start))
    if not here.is_dir():
        what = "is not a directory" if os.path.lexists(here) else "does not exist"
        raise WorkspaceError(f"{start} {what}", hint="go to the project's directory and try again")
    root = _nearest(here, _has_store) or _nearest(here, _has_git) or here
    git_dir = _git_dir(root)
    refusal = _why_no_history(root)
    return Workspace(
        root=root,
        store=root / STORE_NAME,
        git_dir=git_dir,
        git_common_dir=_common_dir(git_dir) if git_dir else None,
        history_refused=refusal.why,
        identity=_identity(root),
        is_of_another_user=refusal.is_of_another_user,
        is_unwanted=refusal.is_unwanted,
    )


def pause(workspace: Workspace) -> None:
    """Record nothing here until `resume`."""
    if workspace.history_refused and not workspace.is_unwanted:
        raise HistoryRefusedError(workspace.refusal, hint=workspace.refusal_hint)
    make_private(workspace, workspace.store)
    (workspace.store / _PAUSED).parent.mkdir(mode=0o700, exist_ok=True)
    (workspace.store / _PAUSED).touch(mode=0o600)


def resume(workspace: Workspace) -> None:
    (workspace.store / _PAUSED).unlink(missing_ok=True)


def is_paused(store: Path) -> bool:
    return os.path.lexists(store / _PAUSED)


def find_repository(start: Path) -> Workspace:
    """The git working copy of `start`: the nearest ancestor with ``.git``, history or not."""
    here = Path(real_path(start))
    root = _nearest(here, _has_git)
    git_dir = _git_dir(root) if root is not None else None
    if root is None or git_dir is None:
        bare = (here / "HEAD").is_file() and (here / "objects").is_dir()
        what = "is a bare repository: it has no files" if bare else "is in no git repository"
        raise NotFoundError(f"{start} {what}", hint="go to a working copy, or name it with --repo")
    refusal = _why_no_history(root)
    return Workspace(
        root, root / STORE_NAME, git_dir, _common_dir(git_dir), refusal.why,
        _identity(root), refusal.is_of_another_user, refusal.is_unwanted,
    )  # fmt: skip


def hide_from_git(git_common_dir: Path) -> None:
    """Put our directories into the repository's ``info/exclude``; best effort."""
    try:
        _hide(git_common_dir / "info")
    except OSError:
        pass  # a read-only repository: the .gitignore in each directory hides it


def unhide_from_git(git_common_dir: Path, *, dry_run: bool = False) -> bool:
    """Remove the lines of `hide_from_git`, and nothing else. Returns whether there are any."""
    file = git_common_dir / "info" / "exclude"
    if not file.is_file() or file.is_symlink() or file.parent.is_symlink():
        return False
    before = file.read_bytes()
    after = b"".join(ln for ln in before.splitlines(keepends=True) if ln.rstrip() not in _HIDDEN)
    if after != before and not dry_run:
        files.write_atomic(file, after, durable=False)
    return after != before


def why_not_opened(store: Path) -> str:
    """Empty, or why the existing history may not even be read.

    The owner of a history can write into it what we will do next (an undo to be finished, with
    files of any mode). So do not read another user's history, above all not as root. And if a
    command has replaced a directory by a symlink, compaction would delete files in an unrelated
    directory.
    """
    try:
        found = os.lstat(store)
    except OSError:
        return ""
    if hasattr(os, "geteuid") and found.st_uid != os.geteuid():
        return f"the history there belongs to another user (uid {found.st_uid})"
    if _may_be_filled_by_others(store, found):
        return "other users can write to the history there"
    top = os.fspath(store)
    for name in _STORE_DIRECTORIES:
        if _is_link(top + name):
            return f"{STORE_NAME}{name} is a link and in the way of the directory"
    return ""


def _may_be_filled_by_others(store: Path, found: os.stat_result) -> bool:
    """Whether it is a directory of ours that every user may write to, as ``tmp`` is, and that
    another user may have renamed: we make a store with mode 0700."""
    if not hasattr(os, "geteuid") or not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    above = os.stat(store.parent)
    return above.st_uid != os.geteuid() or bool(above.st_mode & stat.S_ISVTX)


def _is_link(path: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:
        return False


def protect_store(workspace: Workspace) -> None:
    """Make the store's directory, private to its owner, and hide it from the user's git.

    The store's own ``.gitignore`` already hides it; ``info/exclude`` also covers the other
    directories we may make. The user's lines in that file stay as they are.
    """
    if workspace.history_refused:
        raise HistoryRefusedError(
            workspace.refusal,
            hint=workspace.refusal_hint,
        )
    make_private(workspace, workspace.store)


def make_private(workspace: Workspace, directory: Path) -> None:
    """A directory of ours at the root: mode 0700, a ``.gitignore`` of ``*``, hidden from git."""
    _private_directory(directory)
    marker = directory / ".gitignore"
    if not os.path.lexists(marker):
        marker.write_bytes(b"*\n")
    if workspace.git_common_dir is not None:
        hide_from_git(workspace.git_common_dir)


def _identity(root: Path) -> tuple[int, int]:
    info = os.stat(root)
    return info.st_dev, info.st_ino


def _nearest(start: Path, marked: Callable[[str], bool]) -> Path | None:
    directory = os.fspath(start)
    while not marked(directory):
        above = os.path.dirname(directory)
        if above == directory:
            return None
        directory = above
    return Path(directory)


def _has_store(directory: str) -> bool:
    try:
        found = os.lstat(os.path.join(directory, STORE_NAME))
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and not _planted(directory, found)


def _has_own_store(root: Path) -> bool:
    """For root: continue a store that an older version made in another user's directory."""
    try:
        found = os.lstat(root / STORE_NAME)
    except OSError:
        return False
    is_own = os.geteuid() == 0 == found.st_uid
    return is_own and not _may_be_filled_by_others(root / STORE_NAME, found)


def _has_git(directory: str) -> bool:
    try:
        found = os.lstat(os.path.join(directory, ".git"))
    except OSError:
        return False
    return not _planted(directory, found)


def _planted(directory: str, found: os.stat_result) -> bool:
    """Whether another user may have put this mark here to claim the directories below.

    Any user can create ``/tmp/.git``; that must not turn ``/tmp`` into the workspace of every
    project below it.
    """
    if not hasattr(os, "geteuid") or found.st_uid == os.geteuid():
        return False
    return bool(os.stat(directory).st_mode & stat.S_ISVTX)


def _git_dir(root: Path) -> Path | None:
    mark = root / ".git"
    if mark.is_dir():
        found = mark
    else:
        pointer = first_line(mark)
        if not pointer.startswith(b"gitdir:"):
            return None
        found = root / os.fsdecode(pointer[len(b"gitdir:") :].strip())
    found = Path(real_path(found))
    return found if os.path.lexists(found / "HEAD") else None


def _common_dir(git_dir: Path) -> Path:
    shared = first_line(git_dir / "commondir").strip()
    if not shared:
        return git_dir
    return Path(real_path(git_dir / os.fsdecode(shared)))


def first_line(path: Path) -> bytes:
    """The first line of a small file; nothing if it is anything but a regular file."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return b""
        with path.open("rb") as file:
            line = file.read(_POINTER_LIMIT).split(b"\n", 1)[0].rstrip(b"\r")
            return b"" if b"\0" in line else line
    except OSError:
        return b""


class _Refusal(NamedTuple):
    #: Empty: history is kept.
    why: str
    is_of_another_user: bool = False
    is_unwanted: bool = False


def _why_no_history(root: Path) -> _Refusal:
    info = os.stat(root)
    if root == Path(root.anchor):
        return _Refusal(f"{root} is the root of the file system")
    home = environment.current().home
    if home is not None and real_path(home) == str(root):
        return _Refusal("it is a home directory")
    if _is_mount(root, info) and not _is_marked(root):
        # A project mounted into a container has a mark; a disk's top directory does not.
        return _Refusal("it is the root of a mounted file system and holds no repository")
    if hasattr(os, "geteuid"):
        if info.st_mode & stat.S_ISVTX:
            return _Refusal("it is a sticky directory, shared with other users")
        # For root, too: its store would lock the owner out of every command, and of `rm -rf`.
        if os.geteuid() != info.st_uid and not _has_own_store(root):
            return _Refusal(f"it belongs to another user (uid {info.st_uid})", True)
    if not os.access(root, os.W_OK | os.X_OK):
        return _Refusal("it cannot be written to")
    if is_paused(root / STORE_NAME):
        return _Refusal("recording is paused", is_unwanted=True)
    return _Refusal("")


def _is_mount(root: Path, info: os.stat_result) -> bool:
    """Like `os.path.ismount`, which would check for symlinks in a path that has none."""
    if os.name == "nt":
        return os.path.ismount(root)
    above = os.lstat(os.path.join(root, os.pardir))
    return above.st_dev != info.st_dev or above.st_ino == info.st_ino


def _is_marked(root: Path) -> bool:
    top = os.fspath(root)
    return _has_store(top) or _has_git(top) or os.path.lexists(root / ".substrateignore")


def _private_directory(path: Path) -> None:
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        reason, hint = error.strerror, "check the permissions and the disk space"
        if error.errno == errno.ENOSPC and files.lacks_inodes(path):
            reason, hint = files.NO_INODES
        raise WorkspaceError(f"cannot make {path}: {reason}", hint=hint) from error
    info = os.lstat(path)
    if not stat.S_ISDIR(info.st_mode):
        raise WorkspaceError(
            f"{path} is in the way: it is not a directory", hint=f"move {path} away and try again"
        )
    if os.name == "posix" and stat.S_IMODE(info.st_mode) != 0o700:
        os.chmod(path, 0o700)


def _hide(info_dir: Path) -> None:
    """Append missing lines to ``info/exclude``, never through a symlink."""
    info_dir.mkdir(exist_ok=True)
    if info_dir.is_symlink():
        return
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    flags |= getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    fd = os.open(info_dir / "exclude", flags, 0o666)
    with os.fdopen(fd, "r+b", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return
        present = file.read() or b""
        lines = {line.strip().lstrip(b"/") for line in present.split(b"\n")}
        missing = [name for name in _HIDDEN if name not in lines]
        if missing:
            start = b"\n" if present and not present.endswith(b"\n") else b""
            file.write(start + b"".join(name + b"\n" for name in missing))
