"""Small files, read before a command that works on the real files of a place without history.

What the command then replaces or removes is written to `$SUBSTRATE_HOME/trash/<command id>/`. That
trash is bounded by the number of commands and by its size, not by age: a clock can jump.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from substrate.model import Change, Kind, RelPath
from substrate.system.files import files
from substrate.workspace.scan import Listing

#: Limits of what is read before a command.
MOST_FILES, MOST_BYTES, MOST_BYTES_EACH = 500, 4 << 20, 256 << 10
#: Limits of the trash.
_MOST_COMMANDS, _MOST_TRASH_BYTES = 50, 64 << 20
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

Contents = dict[RelPath, bytes]
#: Not every system can test access by the effective ids.
_BY_EFFECTIVE_IDS = os.access in os.supports_effective_ids


def read_small_files(listing: Listing) -> Contents:
    """The files nearest to the place where the command starts; none in hidden directories, where
    other programs write all the time."""
    found: Contents = {}
    room = MOST_BYTES
    for directory, names in listing.directories.items():
        if directory.startswith(b".") or directory.find(b"/.") >= 0:
            continue
        for name, node in names.items():
            if len(found) == MOST_FILES:
                return found
            path = RelPath(directory + b"/" + name if directory else name)
            data = _content(listing.root, path) if node.kind is Kind.FILE else None
            if data is not None and len(data) <= room:
                found[path] = data
                room -= len(data)
    return found


def out_of_reach(listing: Listing, contents: Contents) -> frozenset[RelPath]:
    """The files that the caller can neither write to nor replace, as they are now.

    If such a file changes, another user's process changed it.
    """
    if not hasattr(os, "geteuid") or os.geteuid() == 0:
        return frozenset()
    root = os.fsencode(listing.root)
    return frozenset(path for path in contents if not _can_change(os.path.join(root, path)))


def _can_change(path: bytes) -> bool:
    if _may(path, os.W_OK):
        return True
    directory = os.path.dirname(path)
    if not _may(directory, os.W_OK | os.X_OK):
        return False
    try:
        above, at = os.lstat(directory), os.lstat(path)
    except OSError:
        return True  # gone: the caller's command, or another process, may have removed it
    return not above.st_mode & stat.S_ISVTX or os.geteuid() in (above.st_uid, at.st_uid)


def _may(path: bytes, mode: int) -> bool:
    return os.access(path, mode, effective_ids=_BY_EFFECTIVE_IDS)


def really_changed(listing: Listing, before: Contents, changes: Iterable[Change]) -> list[Change]:
    """Without the files that have only a new time."""

    def is_only_touched(change: Change) -> bool:
        is_file = change.old.kind is change.new.kind is Kind.FILE
        if not is_file or change.old.mode != change.new.mode or change.path not in before:
            return False
        return _content(listing.root, change.path) == before[change.path]

    return [change for change in changes if not is_only_touched(change)]


def keep(home: Path, command_id: str, before: Contents, changes: Iterable[Change]) -> list[RelPath]:
    """Write down the contents that the changes replaced or removed. Returns their paths."""
    kept = [change.path for change in changes if change.path in before]
    if not kept:
        return []
    place = directory(home, command_id)
    for path in kept:
        target = place / os.fsdecode(path)
        _make_private(home, target.parent)
        files.write_atomic(target, before[path], durable=False)
    _make_room(place.parent)
    return kept


def _make_private(home: Path, wanted: Path) -> None:
    """Make a directory below `home`, and those above it; only the owner may look into them."""
    for one in (*reversed(wanted.relative_to(home).parents[:-1]), wanted.relative_to(home)):
        files.make_directory(home / one, 0o700)
    os.chmod(home / wanted.relative_to(home).parts[0], 0o700)  # earlier versions made it 0755


def directory(home: Path, command_id: str) -> Path:
    return home / "trash" / command_id


def _content(root: Path, path: RelPath) -> bytes | None:
    """None: no regular file, a larger one, or one that the caller may not read."""
    try:
        fd = os.open(os.path.join(os.fsencode(root), path), _READ)
    except OSError:
        return None
    try:
        at = os.fstat(fd)
        if not stat.S_ISREG(at.st_mode) or at.st_size > MOST_BYTES_EACH:
            return None
        data = os.read(fd, MOST_BYTES_EACH + 1)
        return data if len(data) == at.st_size else None
    except OSError:
        return None
    finally:
        os.close(fd)


def _make_room(trash: Path) -> None:
    """Remove the oldest commands' files: ids are ordered by time."""
    room = _MOST_TRASH_BYTES
    for number, name in enumerate(sorted(os.listdir(trash), reverse=True)):
        here = trash / name
        room -= sum(one.stat().st_size for one in here.rglob("*") if one.is_file())
        if number >= _MOST_COMMANDS or (room < 0 and number > 0):
            files.remove_tree(here)
