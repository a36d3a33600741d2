"""A change of a text file as lines to show: hunks with a few unchanged lines around them."""

from __future__ import annotations

from typing import NamedTuple

from substrate.history.query import line_hunks

#: Unchanged lines shown before and after a hunk.
CONTEXT = 3


class ShownLine(NamedTuple):
    #: ``-``, ``+`` or a space.
    sign: str
    #: Line numbers from 1; None if the line is not in that version.
    old: int | None
    new: int | None
    text: bytes


class ShownHunk(NamedTuple):
    #: Line numbers from 1 of the first changed line.
    old_start: int
    new_start: int
    lines: list[ShownLine]


def shown_hunks(old: bytes, new: bytes) -> list[ShownHunk]:
    """One per difference. Lines around it are shown once: neighbours share what is between."""
    before, after = line_hunks.split_lines(old), line_hunks.split_lines(new)
    found = line_hunks.hunks(old, new)
    out: list[ShownHunk] = []
    shift = done = 0
    for number, (at, removed, added) in enumerate(found):
        limit = found[number + 1].at if number + 1 < len(found) else len(before)
        end = min(at + removed + CONTEXT, limit)
        lines = [
            ShownLine(" ", n + 1, n + 1 + shift, before[n])
            for n in range(max(done, at - CONTEXT), at)
        ]
        lines += [ShownLine("-", at + n + 1, None, before[at + n]) for n in range(removed)]
        start = at + shift
        lines += [ShownLine("+", None, start + n + 1, after[start + n]) for n in range(added)]
        shift += added - removed
        lines += [ShownLine(" ", n + 1, n + 1 + shift, before[n]) for n in range(at + removed, end)]
        out.append(ShownHunk(at + 1, start + 1, lines))
        done = end
    return out
