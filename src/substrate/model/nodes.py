"""The state of a path: a file, a symlink, a directory, a special file, or nothing."""

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

    # Enum's own __hash__ is a Python function, called for every dict lookup; members compare by
    # identity, so object's hash is correct and faster.
    __hash__ = object.__hash__


#: History knows and shows these, but they have no content to keep.
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
    """Where `apply` gets a file's bytes; hides the object store."""

    def read_blob(self, oid: bytes) -> bytes: ...


class BlobWriter(Protocol):
    """Where a scan puts the bytes it reads; hides the object store."""

    def add_blob(self, data: bytes) -> bytes:
        """Keep `data`, return its blob id."""
        ...


#: A blob prepared for the store, as values that can pass between processes: its id, its packed form
#: (empty if the store already has it), the checksum of that form, and its size.
ReadyBlob = tuple[bytes, bytes, int, int]


class ManyBlobWriter(BlobWriter, Protocol):
    """A `BlobWriter` that also takes thousands of blobs at once."""

    def add_blobs(self, contents: list[bytes], *, are_read_soon: bool = True) -> list[bytes]:
        """Keep each of `contents`, return their blob ids in that order.

        `are_read_soon`: this process will read them again.
        """
        ...

    def readied(self, contents: list[bytes]) -> list[ReadyBlob]:
        """Run in another process: prepare the blobs for `add_ready`, in that order."""
        ...

    def add_ready(self, blobs: list[ReadyBlob], contents: list[bytes]) -> None:
        """Keep the blobs; `contents`: their bytes, if this process will read them again."""
        ...
