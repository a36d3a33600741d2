"""Which directory is the workspace, which git repository it belongs to, and where history lives.

Everything is read by hand: no process is started to find out where we are.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from substrate.errors import HistoryRefusedError, NotFoundError, WorkspaceError
from substrate.system import environment
from substrate.system.files import real_path

STORE_NAME = ".substrate-git"
#: What `protect_store` hides from the user's own git.
_HIDDEN = (b".substrate-git/", b".ctx/", b".manifold/")
#: Where files are made and removed.
_STORE_DIRECTORIES = (
    *("", "/.git", "/.git/objects", "/.git/objects/pack", "/.git/refs", "/.git/refs/heads"),
    *("/index", "/journal", "/trash", "/worlds"),
)
_POINTER_LIMIT = 4096 + len("gitdir: \n")


class Workspace(NamedTuple):
    """One workspace, as it was when somebody looked."""

    #: Absolute, with every link resolved.
    root: Path
    #: ``root/.substrate-git``; it need not exist yet.
    store: Path
    #: The user's repository, if the root has one: for a linked worktree its own directory.
    git_dir: Path | None
    #: Where refs, objects and ``info/exclude`` are: shared by all worktrees of a repository.
    git_common_dir: Path | None
    #: Empty, or why no history is kept here. Commands run all the same.
    history_refused: str

    @property
    def refusal(self) -> str:
        """`history_refused` as a sentence: there may be a history from better days."""
        if os.path.lexists(self.store):
            return f"the history that is here cannot go on: {self.history_refused}"
        return f"no history is kept here: {self.history_refused}"

    @property
    def refusal_hint(self) -> str:
        """What to do about it."""
        if os.path.lexists(self.store):
            return (
                f"make {self.root} writable for you (its owner, its mode, or how it is mounted);"
                " meanwhile `substrate log` answers, and commands run and are traced"
            )
        return "work in a project directory of your own; commands still run and are traced"


def find_workspace(start: Path) -> Workspace:
    """The workspace that `start` lies in.

    The nearest ancestor with ``.substrate-git``, else the nearest with ``.git``, else `start`.
    """
    here = Path(real_path(start))
    if not here.is_dir():
        what = "is not a directory" if os.path.lexists(here) else "does not exist"
        raise WorkspaceError(f"{start} {what}", hint="go to the project's directory and try again")
    root = _nearest(here, _has_store) or _nearest(here, _has_git) or here
    git_dir = _git_dir(root)
    return Workspace(
        root=root,
        store=root / STORE_NAME,
        git_dir=git_dir,
        git_common_dir=_common_dir(git_dir) if git_dir else None,
        history_refused=_why_no_history(root),
    )


def find_repository(start: Path) -> Workspace:
    """The git working copy that `start` lies in: nearest ancestor with ``.git``, history or not."""
    here = Path(real_path(start))
    root = _nearest(here, _has_git)
    git_dir = _git_dir(root) if root is not None else None
    if root is None or git_dir is None:
        bare = (here / "HEAD").is_file() and (here / "objects").is_dir()
        what = "is a bare repository: it has no files" if bare else "is in no git repository"
        raise NotFoundError(f"{start} {what}", hint="go to a working copy, or name it with --repo")
    return Workspace(root, root / STORE_NAME, git_dir, _common_dir(git_dir), _why_no_history(root))


def hide_from_git(git_common_dir: Path) -> None:
    """Put our directories into the repository's ``info/exclude``; best effort."""
    try:
        _hide(git_common_dir / "info")
    except OSError:
        pass  # a read-only repository: a .gitignore in each directory does the hiding alone


def why_not_opened(store: Path) -> str:
    """Empty, or why the history that stands there may not even be read.

    Whoever owns it can write into it what we shall do next (an undo to be finished, with files
    of any mode): not for another user, and above all not as root. And where a command has put a
    link, compaction would clear up in somebody's directory.
    """
    try:
        owner = os.lstat(store).st_uid
    except OSError:
        return ""
    if hasattr(os, "geteuid") and owner != os.geteuid():
        return f"the history there belongs to another user (uid {owner})"
    top = os.fspath(store)
    for name in _STORE_DIRECTORIES:
        if _is_link(top + name):
            return f"{STORE_NAME}{name} is a link and in the way of the directory"
    return ""


def _is_link(path: str) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError:
        return False


def protect_store(workspace: Workspace) -> None:
    """Make the store's directory, private to its owner, and hide it from the user's git.

    The store's own ``.gitignore`` already hides it; ``info/exclude`` also covers the other
    directories we may make. The user's bytes in that file stay as they are.
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


def _has_git(directory: str) -> bool:
    try:
        found = os.lstat(os.path.join(directory, ".git"))
    except OSError:
        return False
    return not _planted(directory, found)


def _planted(directory: str, found: os.stat_result) -> bool:
    """Whether somebody else may have put this mark here to take in what lies below.

    Anyone can make ``/tmp/.git``; that must not turn ``/tmp`` into the workspace of every
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


def _why_no_history(root: Path) -> str:
    info = os.stat(root)
    if root == Path(root.anchor):
        return f"{root} is the root of the file system"
    home = environment.current().home
    if home is not None and real_path(home) == str(root):
        return "it is a home directory"
    if _is_mount(root, info) and not _is_marked(root):
        # A project mounted into a container carries a mark; a disk's top directory does not.
        return "it is the root of a mounted file system and holds no repository"
    if hasattr(os, "geteuid"):
        if info.st_mode & stat.S_ISVTX:
            return "it is a sticky directory, shared with other users"
        if os.geteuid() not in (info.st_uid, 0):
            return f"it belongs to another user (uid {info.st_uid})"
    if not os.access(root, os.W_OK | os.X_OK):
        return "it cannot be written to"
    return ""


def _is_mount(root: Path, info: os.stat_result) -> bool:
    """As `os.path.ismount`, which would look for links in the path of a root that has none."""
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
        raise WorkspaceError(
            f"cannot make {path}: {error.strerror}", hint="check the permissions and the disk space"
        ) from error
    info = os.lstat(path)
    if not stat.S_ISDIR(info.st_mode):
        raise WorkspaceError(
            f"{path} is in the way: it is not a directory", hint=f"move {path} away and try again"
        )
    if os.name == "posix" and stat.S_IMODE(info.st_mode) != 0o700:
        os.chmod(path, 0o700)


def _hide(info_dir: Path) -> None:
    """Append what is missing to ``info/exclude``, never through a link."""
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
