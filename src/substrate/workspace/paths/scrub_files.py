"""Removing a text from files that Substrate keeps for itself: trash, outputs, crash reports."""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from substrate.model import PLACEHOLDER, ForgetRule
from substrate.system.files import read_xattrs, write_all, write_xattrs

_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_TEMPORARY = ".forgetting"


class Scrubbed(NamedTuple):
    changed: tuple[Path, ...] = ()
    #: Files and directories that could not be read or written, each with the reason.
    failed: tuple[tuple[Path, str], ...] = ()


def scrub_tree(top: Path, needle: bytes, *, dry_run: bool) -> Scrubbed:
    """Replace `needle` in every regular file at or below `top`.

    Also in extended attributes of files and directories. Symlinks are not followed.
    """
    changed: list[Path] = []
    failed: list[tuple[Path, str]] = []
    for path, is_file in _files_and_directories(top, failed):
        try:
            in_attributes = _scrub_attributes(path, needle, dry_run=dry_run)
            if (is_file and _scrub_file(path, needle, dry_run=dry_run)) or in_attributes:
                changed.append(path)
        except OSError as error:
            failed.append((path, error.strerror or str(error)))
    return Scrubbed(tuple(changed), tuple(failed))


def _files_and_directories(
    top: Path, failed: list[tuple[Path, str]]
) -> Iterator[tuple[Path, bool]]:
    """Each path, with whether it is a regular file."""
    stack = [top]
    while stack:
        path = stack.pop()
        try:
            mode = os.lstat(path).st_mode
            if stat.S_ISDIR(mode):
                stack += [path / name for name in os.listdir(path)]
            if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
                yield path, stat.S_ISREG(mode)
        except FileNotFoundError:
            continue
        except OSError as error:
            failed.append((path, error.strerror or str(error)))


def _scrub_attributes(path: Path, needle: bytes, *, dry_run: bool) -> bool:
    found = read_xattrs(path)
    clean = ForgetRule(secret=os.fsdecode(needle)).scrubbed_pairs(found)
    if clean != found and not dry_run:
        write_xattrs(path, clean, found)
    return clean != found


def _scrub_file(path: Path, needle: bytes, *, dry_run: bool) -> bool:
    fd = os.open(path, os.O_RDONLY | _NO_FOLLOW)
    try:
        at = os.fstat(fd)
        if not at.st_size:
            return False
        with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as data:
            if data.find(needle) < 0:
                return False
            if not dry_run:
                _replace(path, data, needle, at)
            return True
    finally:
        os.close(fd)


def _replace(path: Path, data: mmap.mmap, needle: bytes, at: os.stat_result) -> None:
    """Write a new file beside the old one and rename it into place.

    It keeps the mode, times and extended attributes.
    """
    temporary = path.with_name(path.name[:200] + _TEMPORARY)
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_FOLLOW, 0o600)
    try:
        start = 0
        while (found := data.find(needle, start)) >= 0:
            write_all(fd, data[start:found] + PLACEHOLDER.encode())
            start = found + len(needle)
        write_all(fd, data[start:])
        os.fchmod(fd, stat.S_IMODE(at.st_mode))
        write_xattrs(fd, read_xattrs(path), ())
        os.utime(fd, ns=(at.st_atime_ns, at.st_mtime_ns))
        os.fsync(fd)
    except BaseException:
        os.unlink(temporary)
        raise
    finally:
        os.close(fd)
    os.replace(temporary, path)
