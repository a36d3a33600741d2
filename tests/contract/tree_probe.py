"""Prints all that a program can learn of a tree. Run by itself, in a world and without one.

Beside what `stat` says: what the kernel remembers by itself of a file in a view, which is not asked
of the file below each time (its size as `copy_file_range` takes it, its mode as the right to
execute it goes by).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import struct
import sys

_FIONREAD = 0x541B


def _tell(path: str) -> str:
    at = os.lstat(path)
    words = [path, f"{at.st_mode:o}", at.st_uid, at.st_gid, at.st_mtime_ns]
    if not stat.S_ISDIR(at.st_mode):  # a directory's are the view's own
        words += [at.st_size, at.st_nlink, at.st_ino, at.st_ctime_ns]
    if stat.S_ISLNK(at.st_mode):
        return repr([*words, os.readlink(path)])
    words += [os.access(path, right) for right in (os.R_OK, os.W_OK, os.X_OK)]
    names = [name for name in os.listxattr(path) if name.startswith("user.")]
    words += [(name, os.getxattr(path, name)) for name in sorted(names) if "overlay" not in name]
    if stat.S_ISREG(at.st_mode) and os.access(path, os.R_OK):
        with open(path, "rb", buffering=0) as file:
            (remembered,) = struct.unpack("i", fcntl.ioctl(file, _FIONREAD, b"\0" * 4))
            words += [remembered, hashlib.sha256(file.read()).hexdigest()]
    return repr(words)


def _walk(top: str) -> None:
    print(_tell(top))
    if os.path.islink(top) or not os.path.isdir(top) or not os.access(top, os.R_OK | os.X_OK):
        return
    for name in sorted(os.listdir(top)):
        if name != ".substrate-git":
            _walk(os.path.join(top, name))


# Names that may have been looked up before, and found or not found.
for number in range(6):
    print(number, os.path.lexists(f"n{number}"), os.path.lexists(f"dir/n{number}/n{number}"))
_walk(".")
sys.stdout.flush()
