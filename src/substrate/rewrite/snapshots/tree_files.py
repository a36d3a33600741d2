"""The files of a snapshot: list, search and export them, without submodules."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from substrate.errors import RefusedError
from substrate.model import ROOT, Kind, Node, RelPath, is_within, join, rel_path
from substrate.objects.snapshots import Directory, Reader, Snapshot
from substrate.system.files import fsync_dir, write_all

_GITLINK = 0o160000


def files_of(reader: Reader, snap: Snapshot) -> Iterator[tuple[RelPath, Node]]:
    """Files, links and empty directories; other directories are implied."""
    stack = [(ROOT, snap)]
    while stack:
        path, at = stack.pop()
        here = Directory(reader, at)
        names = [n for n in sorted(here.names()) if here.tree.get(n, (0, b""))[0] != _GITLINK]
        if not names and path:
            yield path, Node(Kind.DIRECTORY, here.record.dir_mode, b"", here.record.dir_xattrs)
        for name in names:
            below = here.subdirectory(name)
            if below is None:
                yield join(path, name), here.node(name)
            else:
                stack.append((join(path, name), below))


def write_out(
    reader: Reader, snap: Snapshot, directory: Path, scopes: Iterable[RelPath] = ()
) -> list[RelPath]:
    """Write the snapshot, or some paths of it, into a new or empty directory."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise RefusedError(
            f"{directory} is not empty", hint="name a directory that is not there yet"
        )
    directory.mkdir(parents=True, exist_ok=True)
    wanted = tuple(scopes)
    written = []
    for path, node in files_of(reader, snap):
        if wanted and not any(is_within(path, scope) for scope in wanted):
            continue
        _write(reader, os.fsencode(directory), rel_path(path), node)
        written.append(path)
    fsync_dir(directory)
    return written


def _write(reader: Reader, top: bytes, path: RelPath, node: Node) -> None:
    place = os.path.join(top, path)
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if node.kind is Kind.DIRECTORY:
        os.makedirs(place, exist_ok=True)
        os.chmod(place, node.mode)
    elif node.kind is Kind.SYMLINK:
        os.symlink(reader.read_blob(node.oid), place)
    elif node.kind is Kind.FILE:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
        fd = os.open(place, flags, 0o600)
        try:
            write_all(fd, reader.read_blob(node.oid))
            os.fsync(fd)
        finally:
            os.close(fd)
        os.chmod(place, node.mode & 0o1777)
