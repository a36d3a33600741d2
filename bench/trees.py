"""Trees to measure on: the same names and bytes every time."""

from __future__ import annotations

import os
import random
from pathlib import Path


def content(number: int, size_bytes: int) -> bytes:
    """Text-like bytes that differ from file to file and compress about as source does."""
    chance = random.Random(number)
    words = [b"def", b"return", b"value", b"self", b"%d" % number, b"import", b"name", b"(", b")"]
    line = b" ".join(chance.choices(words, k=8)) + b"\n"
    head = b"# file %d\n" % number
    body = line * (max(0, size_bytes - len(head)) // len(line) + 1)
    return (head + body)[:size_bytes]


def file_path(number: int, dirs: int) -> str:
    """The path of file `number`: two levels of directories, `dirs` of them at the bottom."""
    where = number % dirs
    return f"part{where // 32:03d}/module{where % 32:02d}/file{number:06d}.py"


def make_tree(
    root: Path, files: int, dirs: int | None = None, *, size_bytes: int = 1200, age_s: int = 3600
) -> Path:
    """Write `files` files below `root`, about a hundred to a directory unless said otherwise.

    They look `age_s` old by their mtime, as a checkout of this morning does.
    """
    count = dirs or max(1, files // 100)
    stamp = int(root.parent.stat().st_mtime) - age_s
    made: set[str] = set()
    for number in range(files):
        path = os.path.join(root, file_path(number, count))
        above = os.path.dirname(path)
        if above not in made:
            os.makedirs(above, exist_ok=True)
            made.add(above)
        with open(path, "wb") as file:
            file.write(content(number, size_bytes))
        os.utime(path, (stamp, stamp))
    return root


def edit(root: Path, files: int, changed: int, *, dirs: int | None = None, salt: int = 0) -> None:
    """Rewrite `changed` of the files, spread over the whole tree."""
    count = dirs or max(1, files // 100)
    for step in range(changed):
        number = (step * (files // changed) + salt) % files
        with open(os.path.join(root, file_path(number, count)), "ab") as file:
            file.write(b"# edit %d\n" % salt)
