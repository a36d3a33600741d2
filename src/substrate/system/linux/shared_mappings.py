"""Files that processes have mapped shared and writable: a write to such memory causes no event.

The kernel does not even change the file's times at each write. Only /proc shows the mappings, and
only those of processes that this user may look into.
"""

from __future__ import annotations

import os
import re

#: In a file's name /proc shows a newline, and nothing else, as an escape.
_NEWLINE = b"\\012"
_LINE = re.compile(rb"^\S+ .w.s \S+ \S+ \d+ +(/.*)$", re.MULTILINE)


def writable_below(root: bytes) -> set[bytes]:
    """The absolute paths of such files below `root`."""
    top = root.rstrip(b"/") + b"/"
    shown = top.replace(b"\n", _NEWLINE)
    found: set[bytes] = set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/maps", "rb") as file:
                text = file.read()
        except OSError:
            continue  # another user's, or it has ended
        if shown in text:
            found.update(path.replace(_NEWLINE, b"\n") for path in _LINE.findall(text))
    return {path for path in found if path.startswith(top)}
