"""Find a text in every snapshot at once: each distinct content is read a single time.

A hundred snapshots of one project share nearly all their trees and blobs. So the walk skips trees
that it has seen, each blob is searched once, and only then are hits mapped to paths.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from substrate.errors import UsageError
from substrate.model import ROOT, RelPath, join
from substrate.objects.snapshots import MODE_DIR, MODE_EXEC, MODE_FILE, Reader

_PROBE_BYTES = 8000
_FILES = (MODE_FILE, MODE_EXEC)


class Pattern(NamedTuple):
    compiled: re.Pattern[bytes]
    context: int = 0
    #: Contents with NUL bytes are searched as well.
    binary: bool = False
    #: The search ends once it has found so many hits; 0: it finds all.
    most: int = 0


class Hit(NamedTuple):
    """One line of one content; line 0 means a binary content as a whole."""

    line: int
    text: bytes
    before: tuple[bytes, ...] = ()
    after: tuple[bytes, ...] = ()


class Match(NamedTuple):
    path: RelPath
    oid: bytes
    #: Names of the snapshots that hold this content at this path, as they were given.
    snapshots: tuple[str, ...]
    hits: tuple[Hit, ...]


def pattern(
    text: str, *, regex: bool = False, ignore_case: bool = False, word: bool = False,
    context: int = 0, binary: bool = False, most: int = 0,
) -> Pattern:  # fmt: skip
    """`word`: the text must not be a part of a longer word."""
    raw = text.encode("utf-8", "surrogateescape")
    if not raw:
        raise UsageError("nothing to search for", hint="give a text or a regular expression")
    flags = re.MULTILINE | (re.IGNORECASE if ignore_case else 0)
    wanted = raw if regex else re.escape(raw)
    if word:
        wanted = rb"(?<!\w)(?:" + wanted + rb")(?!\w)"
    try:
        compiled = re.compile(wanted, flags)
    except re.error as error:
        raise UsageError(
            f"not a regular expression: {error}", hint="leave out --regex to search for plain text"
        ) from error
    return Pattern(compiled, context, binary, most)


def search(reader: Reader, trees: dict[str, bytes], wanted: Pattern) -> Iterator[Match]:
    """Matches sorted by path; `trees` maps each snapshot's name to its tree."""
    hits, count = {}, 0
    for oid in _blobs(reader, trees.values()):
        found = hits_in(reader.read_blob(oid), wanted)
        if found:
            hits[oid] = found
            count += len(found)
            if wanted.most and count >= wanted.most:
                break
    if not hits:
        return
    places: dict[tuple[RelPath, bytes], list[str]] = {}
    barren: set[bytes] = set()
    for name, tree in trees.items():
        for path, oid in _places(reader, tree, hits.keys(), barren):
            places.setdefault((path, oid), []).append(name)
    for (path, oid), names in sorted(places.items()):
        yield Match(path, oid, tuple(names), hits[oid])


def _blobs(reader: Reader, trees: Iterable[bytes]) -> list[bytes]:
    """Every content below these trees, once."""
    seen: set[bytes] = set()
    out: dict[bytes, None] = {}
    stack = list(trees)
    while stack:
        tree = stack.pop()
        if tree in seen:
            continue
        seen.add(tree)
        for mode, oid in reader.read_tree(tree).values():
            if mode == MODE_DIR:
                stack.append(oid)
            elif mode in _FILES:
                out[oid] = None
    return list(out)


def _places(
    reader: Reader, tree: bytes, wanted: Iterable[bytes], barren: set[bytes]
) -> list[tuple[RelPath, bytes]]:
    """The paths of the wanted contents in `tree`; adds trees without any to `barren`."""
    out: list[tuple[RelPath, bytes]] = []
    # (path, tree, hits found before it, whether its children are done)
    stack = [(ROOT, tree, 0, False)]
    while stack:
        path, oid, before, done = stack.pop()
        if done:
            if len(out) == before:
                barren.add(oid)
            continue
        if oid in barren:
            continue
        stack.append((path, oid, len(out), True))
        for name, (mode, child) in reader.read_tree(oid).items():
            if mode == MODE_DIR:
                stack.append((join(path, name), child, 0, False))
            elif mode in _FILES and child in wanted:
                out.append((join(path, name), child))
    return out


def hits_in(data: bytes, wanted: Pattern) -> tuple[Hit, ...]:
    """The lines of one content that match."""
    first = wanted.compiled.search(data)
    if first is None:
        return ()
    if b"\0" in data[:_PROBE_BYTES]:
        return (Hit(0, b"binary content matches"),) if wanted.binary else ()
    lines = data.split(b"\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    numbers = dict.fromkeys(_line_of(starts, m.start()) for m in wanted.compiled.finditer(data))
    if lines[-1] == b"":
        lines.pop()  # there is no line after the last newline
    around = wanted.context
    return tuple(
        Hit(
            n + 1, lines[n],
            tuple(lines[max(0, n - around) : n]), tuple(lines[n + 1 : n + 1 + around]),
        )
        for n in numbers
        if n < len(lines)
    )  # fmt: skip


def _line_of(starts: list[int], offset: int) -> int:
    from bisect import bisect_right

    return bisect_right(starts, offset) - 1
