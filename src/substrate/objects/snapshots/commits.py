"""Commit objects: parse, serialise, and the line with author and time."""

from __future__ import annotations

import re
from typing import NamedTuple

from substrate.errors import DamagedStoreError


class Commit(NamedTuple):
    """A commit as stored. Times are inside `author` and `committer`; see `signature`."""

    tree: bytes
    parents: tuple[bytes, ...]
    author: bytes
    committer: bytes
    message: bytes
    #: Further header lines, such as ``(b"substrate-attrs", b"<hex>")``; git ignores them.
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def header(self, name: bytes) -> bytes | None:
        """The first further header of that name."""
        return next((value for key, value in self.headers if key == name), None)

    @property
    def time_s(self) -> int:
        """Seconds since the epoch, from the committer line."""
        match = re.search(rb"> (-?\d+) [+-]\d{4}$", self.committer)
        return int(match[1]) if match else 0


def signature(name: str, email: str, time_s: int) -> bytes:
    """``Name <mail> seconds +0000``, without the characters that git does not allow there."""
    who = [re.sub(r"[\x00-\x1f<>]", "", part).strip(" .,:;\"'\\") for part in (name, email)]
    shown = who[0] or "unknown"
    return f"{shown} <{who[1]}> {max(time_s, 0)} +0000".encode("utf-8", "surrogateescape")


def serialize_commit(commit: Commit) -> bytes:
    lines = [b"tree " + commit.tree.hex().encode()]
    lines += [b"parent " + parent.hex().encode() for parent in commit.parents]
    lines += [b"author " + commit.author, b"committer " + commit.committer]
    lines += [key + b" " + value.replace(b"\n", b"\n ") for key, value in commit.headers]
    # Git ends a message at a NUL, and `git fsck` rejects it.
    return b"\n".join(lines) + b"\n\n" + commit.message.replace(b"\0", b"")


def parse_commit(data: bytes) -> Commit:
    """Parse a commit object; `DamagedStoreError` if it is not one."""
    head, _, message = data.partition(b"\n\n")
    fields: list[tuple[bytes, bytes]] = []
    for line in head.split(b"\n"):
        key, space, value = line.partition(b" ")
        if not key and space and fields:
            fields[-1] = (fields[-1][0], fields[-1][1] + b"\n" + value)
        else:
            fields.append((key, value))
    known = dict(reversed(fields))  # the first of each name wins
    try:
        return Commit(
            tree=bytes.fromhex(known[b"tree"].decode("ascii")),
            parents=tuple(
                bytes.fromhex(value.decode("ascii")) for key, value in fields if key == b"parent"
            ),
            author=known[b"author"],
            committer=known[b"committer"],
            message=message,
            headers=tuple(
                field
                for field in fields
                if field[0] not in (b"tree", b"parent", b"author", b"committer")
            ),
        )
    except (KeyError, ValueError) as error:
        raise DamagedStoreError("a commit is malformed", hint="run `substrate fsck`") from error
