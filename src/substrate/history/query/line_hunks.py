"""The line difference between one version of a file and the next, as blame needs it.

old: a b c      new: a x y c      hunks: [(1, 1, 2)]   at line 1 of old, 1 removed, 2 added
"""

from __future__ import annotations

import struct
from typing import NamedTuple, TypeVar

from substrate.model import common, gaps

Mark = TypeVar("Mark")


class Hunk(NamedTuple):
    #: Lines of the old version before this hunk.
    at: int
    removed: int
    added: int


def split_lines(data: bytes) -> list[bytes]:
    """Lines with their newline; only a newline ends a line, as in git."""
    lines = data.split(b"\n")
    last = lines.pop()
    out = [line + b"\n" for line in lines]
    return [*out, last] if last else out


def count_lines(data: bytes) -> int:
    return data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))


def hunks(old: bytes, new: bytes) -> list[Hunk]:
    """The differences from top to bottom. Equal parts at both ends are only compared as bytes."""
    head = _equal_head(old, new)
    tail = _equal_tail(old, new, head)
    before, after = (
        split_lines(old[head : len(old) - tail]),
        split_lines(new[head : len(new) - tail]),
    )
    first = old.count(b"\n", 0, head)
    if not before or not after:
        return [Hunk(first, len(before), len(after))] if before or after else []
    found = gaps(common(before, after), len(before), len(after))
    return [Hunk(first + left.start, len(left), len(right)) for left, right in found]


def apply_hunks(lines: list[Mark], steps: list[Hunk], mark: Mark) -> list[Mark]:
    """The marks of the new version's lines: added lines get `mark`, the others keep theirs."""
    if len(steps) == 1:
        at, removed, added = steps[0]
        lines[at : at + removed] = [mark] * added
        return lines
    out: list[Mark] = []
    done = 0
    for at, removed, added in steps:
        out += lines[done:at]
        out += [mark] * added
        done = at + removed
    return out + lines[done:]


def pack_hunks(steps: list[Hunk]) -> bytes:
    flat = [number for step in steps for number in step]
    return struct.pack(f"<{len(flat)}I", *flat)


def unpack_hunks(data: bytes) -> list[Hunk]:
    flat = struct.unpack(f"<{len(data) // 4}I", data)
    return [Hunk(*flat[n : n + 3]) for n in range(0, len(flat), 3)]


def _equal_head(old: bytes, new: bytes) -> int:
    """How many bytes of whole lines both begin with."""
    low, high = 0, min(len(old), len(new))
    if old[:high] == new[:high]:
        low = high
    while low < high:
        middle = (low + high + 1) // 2
        if old[low:middle] == new[low:middle]:
            low = middle
        else:
            high = middle - 1
    return old.rfind(b"\n", 0, low) + 1


def _equal_tail(old: bytes, new: bytes, head: int) -> int:
    """How many bytes of whole lines both end with, after `head`."""
    low, high = 0, min(len(old), len(new)) - head
    while low < high:
        middle = (low + high + 1) // 2
        same = old[len(old) - middle : len(old) - low] == new[len(new) - middle : len(new) - low]
        low, high = (middle, high) if same else (low, middle - 1)
    newline = old.find(b"\n", len(old) - low)
    return len(old) - newline - 1 if newline >= 0 else 0
