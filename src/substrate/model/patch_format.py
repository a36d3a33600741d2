"""Codex's patch format, ``*** Begin Patch … *** End Patch``: from text to whole new files.

*** Add File: path        lines that begin with +
*** Delete File: path
*** Update File: path     perhaps `*** Move to: path`, then hunks: @@ heading, then lines that
                          begin with a blank (context), - (old) or + (new)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

_BEGIN, _END = "*** Begin Patch", "*** End Patch"
_ADD, _DELETE, _UPDATE = "*** Add File: ", "*** Delete File: ", "*** Update File: "
_MOVE, _EOF = "*** Move to: ", "*** End of File"


class PatchError(ValueError):
    """The patch cannot be parsed or does not apply; the message says why."""


class _Hunk(NamedTuple):
    heading: str
    old: list[str]
    new: list[str]


#: A path and its whole new content; None: delete it.
NewContent = tuple[str, str | None]


class PatchPart(NamedTuple):
    """What a patch does to one file."""

    #: A patch of its own.
    text: str
    #: Where it moves the file to; empty: it stays.
    target: str


def patch_parts(text: str) -> dict[str, PatchPart]:
    """The patch by the files that it changes; none if it is not a patch."""
    try:
        lines = _body(text)
    except PatchError:
        return {}
    parts: dict[str, list[str]] = {}
    targets: dict[str, str] = {}
    path = ""
    for line in lines:
        if line.startswith((_ADD, _DELETE, _UPDATE)):
            path = line.partition(": ")[2].strip()
        elif line.startswith(_MOVE):
            targets[path] = line.removeprefix(_MOVE).strip()
        if path:
            parts.setdefault(path, []).append(line)
    return {
        path: PatchPart("\n".join([_BEGIN, *part, _END]), targets.get(path, ""))
        for path, part in parts.items()
    }


def patch_changes(text: str, read: Callable[[str], str]) -> list[NewContent]:
    """What a patch changes, given how to read a file; nothing is written."""
    lines = _body(text)
    changes: list[NewContent] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.startswith(_ADD):
            start = at
            while at < len(lines) and lines[at].startswith("+"):
                at += 1
            added = "".join(line[1:] + "\n" for line in lines[start:at])
            changes.append((line.removeprefix(_ADD).strip(), added))
        elif line.startswith(_DELETE):
            changes.append((line.removeprefix(_DELETE).strip(), None))
        elif line.startswith(_UPDATE):
            at = _update(lines, at, line.removeprefix(_UPDATE).strip(), read, changes)
        elif line.strip():
            raise PatchError(f"the patch has a line that means nothing: {line[:60]!r}")
    return changes


def _body(text: str) -> list[str]:
    lines = text.replace("\r\n", "\n").split("\n")
    try:
        first = next(n for n, line in enumerate(lines) if line.strip() == _BEGIN)
        last = next(n for n, line in enumerate(lines) if n > first and line.strip() == _END)
    except StopIteration:
        raise PatchError(f"the patch does not run from {_BEGIN!r} to {_END!r}") from None
    return lines[first + 1 : last]


def _update(
    lines: list[str], at: int, path: str, read: Callable[[str], str], changes: list[NewContent]
) -> int:
    target = path
    if at < len(lines) and lines[at].startswith(_MOVE):
        target = lines[at].removeprefix(_MOVE).strip()
        at += 1
    hunks: list[_Hunk] = []
    while at < len(lines) and not lines[at].startswith((_ADD, _DELETE, _UPDATE)):
        at = _hunk(lines, at, hunks)
    before = next((content for done, content in reversed(changes) if done == path), None)
    content = _applied(path, before if before is not None else read(path), hunks)
    if target != path:
        changes.append((path, None))
    changes.append((target, content))
    return at


def _hunk(lines: list[str], at: int, hunks: list[_Hunk]) -> int:
    line = lines[at]
    if line.startswith("@@"):
        hunks.append(_Hunk(line[2:].strip(), [], []))
        return at + 1
    if line.startswith(_EOF):
        return at + 1
    if not hunks:
        hunks.append(_Hunk("", [], []))
    sign, rest = line[:1], line[1:]
    if sign in ("", " "):
        hunks[-1].old.append(rest)
        hunks[-1].new.append(rest)
    elif sign == "-":
        hunks[-1].old.append(rest)
    elif sign == "+":
        hunks[-1].new.append(rest)
    else:
        raise PatchError(f"the patch has a line that means nothing: {line[:60]!r}")
    return at + 1


def _applied(path: str, text: str, hunks: list[_Hunk]) -> str:
    lines = text.split("\n")
    ends = bool(lines) and lines[-1] == ""
    if ends:
        lines.pop()
    at = 0
    for number, hunk in enumerate(hunks, start=1):
        if hunk.heading:
            at = _after_heading(lines, hunk.heading, at)
        place = _find(lines, hunk.old, at)
        if place is None:
            raise PatchError(f"hunk {number} does not fit {path}")
        lines[place : place + len(hunk.old)] = hunk.new
        at = place + len(hunk.new)
    return "\n".join(lines) + ("\n" if lines else "")


def _after_heading(lines: list[str], heading: str, at: int) -> int:
    for n in range(at, len(lines)):
        if lines[n].strip() == heading:
            return n + 1
    return at


def _find(lines: list[str], old: list[str], at: int) -> int | None:
    """Find the old lines: exactly, else ignoring trailing, else also leading white space."""
    if not old:
        return len(lines)
    alike: tuple[Callable[[str], str], ...] = (str, str.rstrip, str.strip)
    for same in alike:
        wanted = [same(line) for line in old]
        have = [same(line) for line in lines]
        starts: list[int] = [*range(at, len(have)), *range(at)]
        for start in starts:
            if have[start : start + len(wanted)] == wanted:
                return start
    return None
