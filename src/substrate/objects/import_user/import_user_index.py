"""First use in a git repository: take over what the user's index and objects already say.

The index vouches for a file if its stat is unchanged; its blob equals the file only if git did not
convert the content. Nothing is ever written in the user's ``.git``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

from substrate.model import RelPath
from substrate.objects.git import UserGit
from substrate.objects.import_user.copy_user_objects import adopt_objects
from substrate.objects.index import IndexEntry, UnusualIndexError, parse_index, read_index
from substrate.system.process import uncollected
from substrate.workspace.paths import KnownBlob

__all__ = ["KnownBlob", "adopt_objects", "borrow_index"]

#: Attributes that make a program or an encoding change the bytes between file and blob.
_CONVERTING = ("filter", "ident", "working-tree-encoding")


def borrow_index(git_dir: Path, common_dir: Path, root: Path) -> dict[RelPath, KnownBlob]:
    """By path, the blobs that equal, byte for byte, the files that the user's index saw.

    The caller compares the stat of each file with the one given here. Doubtful files are not in
    the result; for an unusual repository it is empty. (This cannot detect a filter that keeps
    sizes and was removed from the attributes after the file was added.)
    """
    try:
        with uncollected():
            return _borrow(git_dir, common_dir, root)
    except _DoubtError:
        return {}


def _borrow(git_dir: Path, common_dir: Path, root: Path) -> dict[RelPath, KnownBlob]:
    entries = _trusted_entries(git_dir / "index")
    if not entries:
        return {}
    git = UserGit(git_dir, root)
    config = _usual_config(git, git_dir, common_dir, root)
    if config is None:
        return {}
    converted: set[bytes] = set()
    paths = [entry[0] for entry in entries]
    tracked = {path for path in paths if path.endswith(b".gitattributes")}
    if _may_convert(config, common_dir, root, _directories(paths), tracked):
        files = (entry.path for entry in entries if entry.mode != 0o120000)
        converted = git.paths_with_attributes(files, _CONVERTING)
    # Converted line endings change the size, and so does nearly every filter that was active when
    # the file was added but is not now. So every size is compared.
    sizes = git.sizes({entry.oid for entry in entries})
    known: Callable[[tuple[object, ...]], KnownBlob] = partial(tuple.__new__, KnownBlob)
    return {
        RelPath(entry[0]): known(entry[1:])
        for entry in entries
        if sizes.get(entry[1]) == entry[3] and entry[0] not in converted
    }


def blobs_are_raw(
    git_dir: Path, common_dir: Path, root: Path, directories: set[bytes], tracked: set[bytes]
) -> bool:
    """Whether every conversion of files in this repository would change their size.

    `directories` are all directories with an index entry, `tracked` the attribute files in it.
    """
    try:
        config = _usual_config(UserGit(git_dir, root), git_dir, common_dir, root)
        return config is not None and not _may_convert(
            config, common_dir, root, directories, tracked
        )
    except _DoubtError:
        return False


def _trusted_entries(index: Path) -> list[IndexEntry]:
    try:
        data, before_ns = read_index(index)
        entries = parse_index(data)
    except (OSError, UnusualIndexError):
        return []
    return [entry for entry in entries if entry.mtime_ns < before_ns and entry.ino]


def _usual_config(
    git: UserGit, git_dir: Path, common_dir: Path, root: Path
) -> dict[str, str] | None:
    shared = (common_dir / name for name in ("config", "packed-refs", "objects/info/alternates"))
    for file in (git_dir / "HEAD", git_dir / "commondir", *shared):
        _read(os.fsencode(file))  # raises if git would block on it forever
    config = git.config()
    return config if config is not None and _is_usual(config, git_dir, root) else None


def _is_usual(config: dict[str, str], git_dir: Path, root: Path) -> bool:
    """Whether it uses SHA-1, and its work tree is the workspace."""
    if config.get("extensions.objectformat", "sha1").lower() != "sha1":
        return False
    work_tree = config.get("core.worktree")
    return work_tree is None or os.path.realpath(git_dir / work_tree) == os.path.realpath(root)


def _may_convert(
    config: dict[str, str],
    common_dir: Path,
    root: Path,
    directories: set[bytes],
    tracked: set[bytes],
) -> bool:
    """Whether any attribute file that git would read names a converting attribute."""
    if "attr.tree" in config:
        return True
    named = config.get("core.attributesfile")
    files = [common_dir / "info/attributes", *_global_attribute_files(named)]
    if any(_converts(_read(os.fsencode(path))) for path in files):
        return True
    top = os.fsencode(root) + b"/"
    for directory in directories:
        path = directory + b"/.gitattributes" if directory else b".gitattributes"
        text = _read(top + path)
        # If it is not in the work tree, git uses the staged one.
        if _converts(text) or (text is None and path in tracked):
            return True
    return False


def _directories(paths: list[bytes]) -> set[bytes]:
    """Every directory that one of these paths is in, the root included."""
    found = {path.rpartition(b"/")[0] for path in paths}
    for directory in list(found):
        above = directory.rpartition(b"/")[0]
        while above not in found:
            found.add(above)
            above = above.rpartition(b"/")[0]
    return found | {b""}


def _converts(attributes: bytes | None) -> bool:
    """Whether an attribute file names a converting attribute, directly or in a macro."""
    return attributes is not None and any(word.encode() in attributes for word in _CONVERTING)


def _global_attribute_files(named: str | None) -> list[Path]:
    from substrate.system import environment

    current = environment.current()
    files = [Path("/etc/gitattributes")]
    home = current.home
    if named is not None:
        if named.startswith("~"):
            if not named.startswith("~/") or home is None:
                raise _DoubtError  # another user's home: rare
            named = str(home / named[2:])
        return [*files, Path(named)] if named else files
    config_home = current.get("XDG_CONFIG_HOME")
    if config_home:
        return [*files, Path(config_home, "git/attributes")]
    return [*files, home / ".config/git/attributes"] if home is not None else files


class _DoubtError(Exception):
    """A file that git reads for attributes is not safe to open."""


def _read(path: bytes) -> bytes | None:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise _DoubtError  # opening a FIFO would block forever
        with open(path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _DoubtError from error
