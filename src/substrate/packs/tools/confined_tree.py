"""Access to the files of a replayed tree that cannot reach anything outside.

Every path is walked name by name with directory descriptors that do not follow links. A link
inside the tree is resolved by hand; a link that leads out of it is an error, and so is anything
but a regular file. So a FIFO cannot hang a replay, a device cannot flood it, and ``/etc/passwd``
cannot leak into it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from substrate.model import ROOT, RelPath, join
from substrate.packs.replay import place_of, to_name
from substrate.workspace.paths import Directory, Walker

_CHUNK = 1 << 20
_MOST_LINKS = 40
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)


class TreeError(Exception):
    """A path that cannot be used; the message says why."""


class Found(NamedTuple):
    path: RelPath
    is_directory: bool


class ConfinedTree:
    """The tree in `directory`, which was at `recorded_root` when it was recorded."""

    def __init__(self, directory: Path, recorded_root: str = "") -> None:
        self.directory = directory
        self.recorded_root = recorded_root
        self._walker = Walker(directory)

    # -- names ----------------------------------------------------------------------------------

    def locate(self, path: str, cwd: str = "") -> RelPath:
        """The path in the tree for a path that an agent wrote; links are not resolved yet."""
        if "\0" in path:
            raise TreeError("a path cannot hold a NUL byte")
        raw = os.fsencode(path)
        if not raw.startswith(b"/"):
            raw = os.path.join(os.fsencode(cwd) or b".", raw)
        return self._below(raw, path)

    def _below(self, raw: bytes, shown: str) -> RelPath:
        clean = os.path.normpath(raw)
        if clean.startswith(b"/"):
            clean = b"/" + clean.lstrip(b"/")
            for root in self._roots():
                if clean == root:
                    return ROOT
                if clean.startswith(root.rstrip(b"/") + b"/"):
                    return RelPath(clean[len(root.rstrip(b"/")) + 1 :])
            return self._absolute_input(clean, shown)
        if clean == b".":
            return ROOT
        if clean == b".." or clean.startswith(b"../"):
            raise TreeError(f"{shown} is outside the replayed tree")
        return RelPath(clean)

    def _roots(self) -> list[bytes]:
        """The recorded and the current location of the tree: a command may have printed either."""
        recorded = [os.fsencode(self.recorded_root)] if self.recorded_root else []
        return [os.path.normpath(root) for root in [*recorded, os.fsencode(self.directory)]]

    def _absolute_input(self, clean: bytes, shown: str) -> RelPath:
        """A log may name its inputs by absolute paths: they are in the tree, below its root."""
        try:
            inside = place_of(clean)
            if not self.recorded_root and self._lstat(inside) is not None:
                return inside
        except (ValueError, OSError):
            pass
        raise TreeError(f"{shown} is outside the replayed tree")

    def _lstat(self, path: RelPath) -> os.stat_result | None:
        if not path:
            return os.stat(self.directory)
        try:
            directory, name = self._walker.parent_of(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        with directory:
            try:
                return directory.lstat(name)
            except FileNotFoundError:
                return None

    def resolve(self, path: RelPath) -> RelPath:
        """`path` with its links resolved; `TreeError` for a link out of the tree."""
        todo = path.split(b"/") if path else []
        todo.reverse()
        done: RelPath = ROOT
        links = 0
        while todo:
            part = todo.pop()
            if part in (b"", b"."):
                continue
            if part == b"..":
                done = RelPath(done.rpartition(b"/")[0])
                continue
            here = join(done, part)
            info = self._lstat(here)
            if info is None or not stat.S_ISLNK(info.st_mode):
                done = here
                continue
            links += 1
            if links > _MOST_LINKS:
                raise TreeError(f"{to_name(path)}: too many links")
            target = self._readlink(here)
            if target.startswith(b"/"):
                done = ROOT
                target = self._below(target, f"{to_name(here)} -> {to_name(target)}")
            elif _climbs_out(done, target):
                raise TreeError(f"{to_name(here)} is a link out of the replayed tree")
            todo += reversed(target.split(b"/"))
        return done

    def _readlink(self, path: RelPath) -> bytes:
        directory, name = self._walker.parent_of(path)
        with directory:
            return directory.readlink(name)

    # -- reading --------------------------------------------------------------------------------

    def chunks(self, path: RelPath, cap: int) -> Iterator[bytes]:
        """A regular file's bytes, at most `cap` of them: a larger file is an error."""
        fd = self._open_regular(self.resolve(path), path)
        try:
            total = 0
            while chunk := os.read(fd, _CHUNK):
                total += len(chunk)
                if total > cap:
                    raise TreeError(f"{to_name(path)} is larger than {cap} bytes")
                yield chunk
        finally:
            os.close(fd)

    def size(self, path: RelPath) -> int:
        """How large a regular file is."""
        fd = self._open_regular(self.resolve(path), path)
        try:
            return os.fstat(fd).st_size
        finally:
            os.close(fd)

    def read(self, path: RelPath, cap: int) -> bytes:
        return b"".join(self.chunks(path, cap))

    def _open_regular(self, path: RelPath, shown: RelPath) -> int:
        try:
            directory, name = self._walker.parent_of(path)
            with directory:
                info = directory.lstat(name)
                if stat.S_ISDIR(info.st_mode):
                    raise TreeError(f"{to_name(shown)} is a directory")
                if not stat.S_ISREG(info.st_mode):
                    raise TreeError(f"{to_name(shown)} is no regular file")
                fd = directory.open(name, os.O_RDONLY | _NONBLOCK)
        except OSError as error:
            raise _tree_error(shown, error) from error
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise TreeError(f"{to_name(shown)} is no regular file")
        return fd

    def kind(self, path: RelPath) -> int:
        """The file type bits of `path`, links followed; 0 if it does not exist."""
        info = self._lstat(self.resolve(path))
        return stat.S_IFMT(info.st_mode) if info is not None else 0

    def names(self, path: RelPath) -> list[Found]:
        """The entries of a directory, sorted by name."""
        at = self.resolve(path)
        try:
            with self._walker.directory(at) as directory:
                return [
                    Found(join(at, name), stat.S_ISDIR(directory.lstat(name).st_mode))
                    for name in directory.names()
                ]
        except OSError as error:
            raise _tree_error(path, error) from error

    def files(self, path: RelPath = ROOT) -> Iterator[RelPath]:
        """Every regular file at or below `path`, without following links, in order of names."""
        kind = self.kind(path)
        if kind == stat.S_IFREG:
            yield self.resolve(path)
            return
        if kind not in (0, stat.S_IFDIR):
            raise TreeError(f"{to_name(path)} is no regular file")
        stack = [iter(self.names(path))]
        while stack:
            found = next(stack[-1], None)
            if found is None:
                stack.pop()
            elif found.is_directory:
                stack.append(iter(self.names(found.path)))
            else:
                info = self._lstat(found.path)
                if info is not None and stat.S_ISREG(info.st_mode):
                    yield found.path

    # -- writing --------------------------------------------------------------------------------

    def write(self, path: RelPath, data: bytes) -> None:
        """Create or overwrite a regular file, with its directories."""
        at = self.resolve(path)
        if not at:
            raise TreeError("the tree itself is no file")
        try:
            self._make_parents(at)
            directory, name = self._walker.parent_of(at)
            with directory:
                self._write_in(directory, name, data, path)
        except OSError as error:
            raise _tree_error(path, error) from error

    def _write_in(self, directory: Directory, name: bytes, data: bytes, shown: RelPath) -> None:
        if directory.exists(name) and not stat.S_ISREG(directory.lstat(name).st_mode):
            raise TreeError(f"{to_name(shown)} is no regular file")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NONBLOCK
        with os.fdopen(directory.open(name, flags, 0o644), "wb") as file:
            file.write(data)

    def remove(self, path: RelPath) -> None:
        """Remove a file, link or empty directory; links are not followed."""
        try:
            directory, name = self._walker.parent_of(path)
            with directory:
                if stat.S_ISDIR(directory.lstat(name).st_mode):
                    directory.rmdir(name)
                else:
                    directory.unlink(name)
        except OSError as error:
            raise _tree_error(path, error) from error

    def put(self, path: RelPath, kind: str, mode: int, data: bytes) -> None:
        """Create exactly this file, link or directory, replacing what exists there."""
        if self._lstat(path) is not None and kind != "directory":
            self.remove(path)
        try:
            self._make_parents(path)
            directory, name = self._walker.parent_of(path)
            with directory:
                if kind == "symlink":
                    directory.symlink(data, name)
                    return
                if kind == "directory":
                    if not directory.exists(name):
                        directory.mkdir(name)
                elif kind == "file":
                    self._write_in(directory, name, data, path)
                else:
                    raise TreeError(f"{to_name(path)}: a {kind} cannot be made again")
                directory.chmod(name, mode & 0o777)
        except OSError as error:
            raise _tree_error(path, error) from error

    def _make_parents(self, path: RelPath) -> None:
        parts = path.split(b"/")[:-1]
        for count in range(1, len(parts) + 1):
            directory, name = self._walker.parent_of(RelPath(b"/".join(parts[:count])))
            with directory:
                if not directory.exists(name):
                    directory.mkdir(name)
                    directory.chmod(name, 0o755)


def _climbs_out(at: RelPath, target: bytes) -> bool:
    """Whether a relative link in the directory `at` leads above the root at any point."""
    depth = len(at.split(b"/")) if at else 0
    for part in target.split(b"/"):
        if part == b"..":
            depth -= 1
            if depth < 0:
                return True
        elif part not in (b"", b"."):
            depth += 1
    return False


def _tree_error(path: RelPath, error: OSError) -> TreeError:
    name = to_name(path) or "."
    if error.errno == errno.ENOENT:
        return TreeError(f"{name} is not in the replayed tree")
    if error.errno in (errno.ELOOP, errno.ENXIO):
        return TreeError(f"{name} is no regular file")
    return TreeError(f"{name}: {error.strerror or error}")
