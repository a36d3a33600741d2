"""Whether two large files have the same content. Holes are not read."""

from __future__ import annotations

import errno
import os

from substrate.workspace.paths.nofollow_path import Directory
from substrate.workspace.paths.read_node import open_to_read

_CHUNK_BYTES = 1 << 20


def same_content(one: tuple[Directory, bytes], other: tuple[Directory, bytes]) -> bool:
    """Compare two files, each a name in a directory, up to the first difference."""
    first = open_to_read(*one)
    try:
        second = open_to_read(*other)
        try:
            return _same(first, second)
        finally:
            os.close(second)
    finally:
        os.close(first)


def _same(first: int, second: int) -> bool:
    size = os.fstat(first).st_size
    if os.fstat(second).st_size != size:
        return False
    at = 0
    while at < size:
        at = min(_next_data(first, at, size), _next_data(second, at, size))
        if at >= size:
            return True
        chunk = os.pread(first, _CHUNK_BYTES, at)
        if not chunk or os.pread(second, len(chunk), at) != chunk:
            return False
        at += len(chunk)
    return True


def _next_data(fd: int, at: int, size: int) -> int:
    """The next byte at or after `at` that is not in a hole."""
    try:
        return os.lseek(fd, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return size
        return at  # this file system does not report holes
