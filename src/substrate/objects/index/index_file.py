"""The user's index as a file: read it, fingerprint it, build a new one beside it, replace it."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from substrate.model import ABSENT, Kind, Node, RelPath
from substrate.system.files import fsync_dir, fsync_fd, read_bytes_or_none, write_all

if TYPE_CHECKING:
    from substrate.objects.git import WorktreeGit

#: The next index, until it replaces the index. One name is enough: only the holder of the working
#: copy's own lock writes it.
_TEMPORARY = "index.substrate"
#: Files changed this shortly before the index was written may have changed again unnoticed,
#: because file times have a coarse resolution.
_TICK_NS = 20_000_000
#: A file of that name is left from a killed process.
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0)
#: More pathspecs than this cost more than a stat of every file.
_FEW = 100
_NOTHING = b"0 " + b"0" * 40


class Stages(NamedTuple):
    """A conflict in the index: the common base, the target's side, the user's side."""

    base: Node
    ours: Node
    theirs: Node


def read_index(index: Path) -> tuple[bytes, int]:
    """An index file's bytes, and the time since which files may have changed unnoticed by it."""
    written_ns = os.stat(index).st_mtime_ns
    return read_bytes_or_none(index) or b"", written_ns - _TICK_NS


def entries_in(index: Path) -> int:
    """The number of entries according to the index's first bytes; 0 if they cannot be read."""
    try:
        head = read_bytes_or_none(index, most_bytes=12) or b""
    except OSError:
        return 0
    is_index = len(head) == 12 and head.startswith(b"DIRC")
    return int.from_bytes(head[8:], "big") if is_index else 0


def fingerprint(index: Path) -> str:
    """Identifies an index: the checksum at its end, or our own hash if it has none."""
    try:
        with index.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - 20))
            own = file.read()
            if any(own):
                return f"{size}-{own.hex()}"
            file.seek(0)  # written without one (index.skipHash)
            return hashlib.sha256(file.read()).hexdigest()
    except FileNotFoundError:
        return ""


def build(
    git: WorktreeGit, base: Path, wanted: Mapping[RelPath, Node | Stages], into: Path
) -> None:
    """`base` with these entries, written to `into`; the stat of all other entries is kept."""
    _write_durably(into, base.read_bytes(), 0o600)
    removed, added = [], []
    for path, entry in wanted.items():
        removed.append(_NOTHING + b"\t" + path + b"\0")
        if isinstance(entry, Stages):
            for stage, node in enumerate(entry, start=1):
                if node != ABSENT:
                    added.append(_line(path, node, stage))
        elif entry != ABSENT:
            added.append(_line(path, entry, 0))
    if removed:
        # Remove everything first: a file may replace a directory.
        stdin = b"".join(removed + added)
        git.run("update-index", "-z", "--index-info", input=stdin, index=into)


def _line(path: RelPath, node: Node, stage: int) -> bytes:
    if node.kind is Kind.SYMLINK:
        mode = b"120000"
    else:
        mode = b"100755" if node.mode & 0o100 else b"100644"
    return b"%s %s %d\t%s\0" % (mode, node.oid.hex().encode(), stage, path)


def refresh(git: WorktreeGit, index: Path, paths: Iterable[RelPath] | None) -> None:
    """Let git record the stat of files that match their entries, so that status is quick.

    `paths` None: of all files.
    """
    asked = None if paths is None else list(paths)
    if asked is None or len(asked) > _FEW:
        git.try_run("update-index", "-q", "--refresh", index=index)
    elif asked:
        stdin = b"".join(path + b"\0" for path in asked)
        args = ("add", "--refresh", "--pathspec-from-file=-", "--pathspec-file-nul")
        git.try_run(*args, input=stdin, index=index)


def write_like(made: Path, data: bytes, owner: os.stat_result, times_ns: tuple[int, int]) -> None:
    """Write a new index file with an owner and mode, and times of access and modification.

    Git compares file times with the index's time to see which files may have changed since.
    `FileNotFoundError` if `owner` is not the stat of a regular file.
    """
    if not stat.S_ISREG(owner.st_mode):
        raise FileNotFoundError(made)
    fd = os.open(made, _WRITE, 0o600)
    try:
        write_all(fd, data)
        os.fchown(fd, owner.st_uid, owner.st_gid)
        os.fchmod(fd, stat.S_IMODE(owner.st_mode))
        os.utime(fd, ns=times_ns)
        fsync_fd(fd)
    finally:
        os.close(fd)


def replace_durably(index: Path, content: bytes, vouch: Callable[[Path], None]) -> None:
    """Make `content` the index; `vouch` is called with the finished file just before. Use it inside
    the index's lock."""
    temporary = index.with_name(_TEMPORARY)
    _write_durably(temporary, content, index.stat().st_mode & 0o777)
    vouch(temporary)
    os.replace(temporary, index)
    fsync_dir(index.parent)


def left_behind(git_dir: Path) -> list[Path]:
    """What `replace_durably` leaves after a crash."""
    temporary = git_dir / _TEMPORARY
    return [temporary] if os.path.lexists(temporary) else []


def _write_durably(path: Path, content: bytes, mode: int) -> None:
    """Write a new file: a link that a command put there is removed, not followed."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        write_all(fd, content)
        os.fchmod(fd, mode)
        os.fsync(fd)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
