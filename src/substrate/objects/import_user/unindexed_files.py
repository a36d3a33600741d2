"""First use: files that no index vouches for are read, by the child that looks at their directory.

The rules are those of the scan (`workspace/reading.py`): only regular files, looked at again after
they were read. Whatever is unusual about one (young, changing, an attribute, a name that git
forbids, very long) leaves it to the scan.
"""

from __future__ import annotations

import os
import stat

from substrate.model.nodes import ReadyBlob
from substrate.model.paths import RelPath
from substrate.objects.packwriter import ready_blob
from substrate.objects.trees import any_forbidden, is_forbidden_name
from substrate.workspace.exclude import METADATA_FILES, Exclusions
from substrate.workspace.listing import RawEntry
from substrate.workspace.probe import blob_id
from substrate.workspace.reading import is_racy, settled_before_ns

#: Longer ones are read in pieces, by the scan.
_MOST_BYTES = 1 << 20
#: What a child made ready is in memory until it has answered.
_CHILD_BYTES = 32 << 20
_FILE_TYPE = 0o170000
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
_READ |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)


class Reader:
    """Reads files of the current directory and keeps what they are in a pack: for one child."""

    def __init__(self, exclusions: Exclusions) -> None:
        self._most_bytes = min(_MOST_BYTES, exclusions.size_cap_bytes)
        self._room_bytes = _CHILD_BYTES
        self._known: set[bytes] = set()
        self.blobs: list[ReadyBlob] = []

    @property
    def is_full(self) -> bool:
        """Nothing more is read: it is time to answer."""
        return self._room_bytes < 0

    def read(self, files: list[RawEntry], now_ns: int) -> list[tuple[RawEntry, bytes]]:
        """Those that could be read as they were listed, with their blobs' ids.

        `now_ns` is a time before they were listed.
        """
        found: list[tuple[RawEntry, bytes]] = []
        settled_ns = settled_before_ns(now_ns)
        are_allowed = not any_forbidden([os.fsencode(raw[0]) for raw in files])
        for raw in files:
            name, mode, size, mtime_ns, ctime_ns, _ = raw
            if (
                mode & _FILE_TYPE != stat.S_IFREG
                or size > self._most_bytes
                or name in METADATA_FILES
                or (not mtime_ns < settled_ns > ctime_ns and is_racy(mtime_ns, ctime_ns, now_ns))
                or (not are_allowed and is_forbidden_name(os.fsencode(name)))
            ):
                continue
            if self.is_full:
                break
            data = _content(raw)
            if data is None:
                continue
            self._room_bytes -= size
            oid = blob_id(data)
            if oid not in self._known:
                self._known.add(oid)
                self.blobs.append(ready_blob(oid, data))
            found.append((raw, oid))
        return found


def _content(raw: RawEntry) -> bytes | None:
    """All of it; None if it has an attribute of the user's, or is not what was listed."""
    name, _, size, *_ = raw
    try:
        fd = os.open(name, _READ)
        try:
            data = os.read(fd, size + 1)  # one byte more: whether that is the end
            marks = os.listxattr(fd)
            at = os.fstat(fd)
        finally:
            os.close(fd)
    except OSError:
        return None
    now = (at.st_mode, at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino)
    if now != raw[1:] or len(data) != size or any(mark.startswith("user.") for mark in marks):
        return None
    return data


def directories_below(
    root: str, device: int, exclusions: Exclusions, *, enough_files: int | None = None
) -> dict[bytes, int]:
    """Every directory that is recorded (``b"a/b/"``, the root is empty), and how many files it has.

    Only places to look at: whoever looks must see for himself what stands there by then. With
    `enough_files` no further ones once so many were counted.
    """
    found: dict[bytes, int] = {}
    count = 0
    pending = [""]
    while pending and (enough_files is None or count < enough_files):
        path = pending.pop()
        files = 0
        try:
            with os.scandir(os.path.join(root, path)) as entries:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        files += 1
                        continue
                    below = path + entry.name
                    reason = exclusions.own_reason(RelPath(os.fsencode(below)), is_dir=True, size=0)
                    if reason is None and entry.stat(follow_symlinks=False).st_dev == device:
                        pending.append(below + "/")
        except OSError:
            continue
        found[os.fsencode(path)] = files
        count += files
    return found
