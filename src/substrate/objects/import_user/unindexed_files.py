"""First use: each child reads the files of its directories that no index vouches for.

The rules are those of the scan (`workspace/paths/entry_reader.py`): only regular files, checked
again after reading. An unusual file (young, changing, with an attribute, with a name that git
forbids, very long) is left to the scan.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable

from substrate.model import ReadyBlob, RelPath
from substrate.objects.snapshots import any_forbidden, is_forbidden_name
from substrate.objects.store import ready_blob
from substrate.system.files import RECORDED
from substrate.workspace import METADATA_FILES, Exclusions
from substrate.workspace.paths import RawEntry, blob_id, is_racy, settled_before_ns

#: The scan reads longer files, in pieces.
_MOST_BYTES = 1 << 20
#: How many bytes of blobs a child keeps in memory until it answers.
_CHILD_BYTES = 32 << 20
_FILE_TYPE = 0o170000
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
_READ |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOCTTY", 0)


class Reader:
    """Reads files of the current directory and keeps their pack entries: for one child."""

    def __init__(self, exclusions: Exclusions, ours: Iterable[bytes] = ()) -> None:
        """`ours`: blobs that are already in the store, and are not prepared again."""
        self._most_bytes = min(_MOST_BYTES, exclusions.size_cap_bytes)
        self._room_bytes = _CHILD_BYTES
        self._known: set[bytes] = set(ours)
        self.blobs: list[ReadyBlob] = []

    @property
    def is_full(self) -> bool:
        """Whether the memory limit is reached: the child must answer now."""
        return self._room_bytes < 0

    def read(self, files: list[RawEntry], now_ns: int) -> list[tuple[RawEntry, bytes]]:
        """The files that could be read unchanged since they were listed, with their blob ids.

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
            oid = blob_id(data)
            if oid not in self._known:
                self._known.add(oid)
                self._room_bytes -= size
                self.blobs.append(ready_blob(oid, data))
            found.append((raw, oid))
        return found


def _content(raw: RawEntry) -> bytes | None:
    """The whole content; None if it has a recorded attribute, or changed since it was listed."""
    name, _, size, *_ = raw
    try:
        fd = os.open(name, _READ)
        try:
            data = os.read(fd, size + 1)  # one byte more, to detect growth
            marks = os.listxattr(fd)
            at = os.fstat(fd)
        finally:
            os.close(fd)
    except OSError:
        return None
    now = (at.st_mode, at.st_size, at.st_mtime_ns, at.st_ctime_ns, at.st_ino)
    if now != raw[1:] or len(data) != size or any(mark.startswith(RECORDED) for mark in marks):
        return None
    return data


def directories_below(
    root: str, device: int, exclusions: Exclusions, *, enough_files: int | None = None
) -> dict[bytes, int]:
    """Every recorded directory (``b"a/b/"``, the root is empty), and how many files it has.

    The result is only a hint: the caller must check each directory again when it reads it. With
    `enough_files`, stop after counting this many files.
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
