"""The files that the compiled client read before the tool ran, after the report on stdin.

The agent starts its tool as soon as the hook returns, and the report may be recorded later. So
`launcher/files_before.h` appends the small files that the report names:

    report NUL (path NUL mode NUL size NUL content)*

`mode` is octal, or ``-`` where there is no such file. JSON holds no NUL.
"""

from __future__ import annotations

import os

from substrate.model import FileBefore

_NONE = b"-"


def split(data: bytes) -> tuple[bytes, dict[str, FileBefore]]:
    """The report, and the files by the names that it uses; a malformed rest is ignored."""
    report, _, rest = data.partition(b"\0")
    found: dict[str, FileBefore] = {}
    at = 0
    while at < len(rest):
        head = rest[at : at + 8192].split(b"\0", 3)
        if len(head) < 4:
            break
        path, mode, size = head[:3]
        try:
            length, permissions = int(size), 0 if mode == _NONE else int(mode, 8)
        except ValueError:
            break
        at += len(path) + len(mode) + len(size) + 3
        if length < 0 or at + length > len(rest):
            break
        content = None if mode == _NONE else rest[at : at + length]
        found[os.fsdecode(path)] = FileBefore(permissions & 0o7777, content)
        at += length
    return report, found
