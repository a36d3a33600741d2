"""What stands at a path: a file, a link, a directory, something special, or nothing."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from substrate.model.paths import RelPath


class Kind(Enum):
    ABSENT = "absent"
    FILE = "file"
    SYMLINK = "symlink"
    DIRECTORY = "directory"
    FIFO = "fifo"
    SOCKET = "socket"
    CHAR_DEVICE = "char-device"
    BLOCK_DEVICE = "block-device"

    # As they are compared: Enum's own is a function of Python's, called for each look into a table.
    __hash__ = object.__hash__


#: Known and shown, but without content that could be kept.
SPECIAL_KINDS = frozenset({Kind.FIFO, Kind.SOCKET, Kind.CHAR_DEVICE, Kind.BLOCK_DEVICE})


class Node(NamedTuple):
    """The recorded state of one path. Equal nodes are indistinguishable to a restore."""

    kind: Kind
    #: The twelve permission bits (``0o7777``); 0 for links and absent paths.
    mode: int = 0
    #: Git blob id (20 bytes) of a file's content or a link's target; empty otherwise.
    oid: bytes = b""
    #: ``user.*`` extended attributes, sorted by name.
    xattrs: tuple[tuple[bytes, bytes], ...] = ()

    @property
    def is_special(self) -> bool:
        return self.kind in SPECIAL_KINDS

    @property
    def has_content(self) -> bool:
        return self.kind in (Kind.FILE, Kind.SYMLINK)


ABSENT = Node(Kind.ABSENT)


class Change(NamedTuple):
    """One path that differs between two states; directories are paths too."""

    path: RelPath
    old: Node
    new: Node


class BlobReader(Protocol):
    """Where apply gets a file's bytes from, without knowing about object stores."""

    def read_blob(self, oid: bytes) -> bytes: ...


class BlobWriter(Protocol):
    """Where a scan puts the bytes it reads, without knowing about object stores."""

    def add_blob(self, data: bytes) -> bytes:
        """Keep `data`, return its blob id."""
        ...


#: A content that was made ready for the store, in values that pass between processes: its id, how
#: it stands in a pack (empty if the store has it), the checksum of that, and its size.
ReadyBlob = tuple[bytes, bytes, int, int]


class ManyBlobWriter(BlobWriter, Protocol):
    """The same where thousands come at once."""

    def add_blobs(self, contents: list[bytes], *, are_read_soon: bool = True) -> list[bytes]:
        """Keep each of `contents`, return their blob ids in that order.

        `are_read_soon`: they are asked for again in this process.
        """
        ...

    def readied(self, contents: list[bytes]) -> list[ReadyBlob]:
        """In another process: what `add_ready` takes, in that order."""
        ...

    def add_ready(self, blobs: list[ReadyBlob], contents: list[bytes]) -> None:
        """Keep them; `contents`: theirs, if they are asked for again in this process."""
        ...
