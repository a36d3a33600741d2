"""What taking steps back must give, worked out on plain dicts.

Independent of the product: three-way merges of modes and of lines are computed here by other
means, and where git may or may not find a merge (edits side by side) both answers are allowed,
as long as a conflict changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.crash.oracle import Seen, Tree

#: A state of the tree before and after what is being taken back.
Step = tuple[Tree, Tree]

_LINE = re.compile(rb"(\d+): \d+\n")


class Verdict(NamedTuple):
    """`tree`: what success must look like. A conflict must change nothing at all."""

    tree: Tree
    may_succeed: bool
    may_conflict: bool
    #: Why a conflict is expected, for a failing test's reader.
    why: tuple[str, ...] = ()
    #: Two sides' line edits went into one file.
    merged: bool = False


class _CannotError(Exception):
    """Both sides changed the same thing."""


def changed(before: Tree, after: Tree) -> list[bytes]:
    return sorted(p for p in before.keys() | after.keys() if before.get(p) != after.get(p))


def leaves(before: Tree, after: Tree) -> list[bytes]:
    """Changed paths, directories only if nothing below them changed."""
    paths = changed(before, after)
    return [
        p
        for p in paths
        if not _only_directory(before, after, p) or not any(is_below(q, p) for q in paths)
    ]


def _only_directory(before: Tree, after: Tree, path: bytes) -> bool:
    kinds = {side[path].kind for side in (before, after) if path in side}
    return kinds == {"directory"}


def is_below(path: bytes, above: bytes) -> bool:
    return path.startswith(above + b"/")


def in_scope(path: bytes, scope: Sequence[bytes]) -> bool:
    return not scope or any(path == one or is_below(path, one) for one in scope)


def take_back(now: Tree, steps: Iterable[Step], scope: Sequence[bytes] = ()) -> Verdict:
    """Newest step first; everything that no step changed stays."""
    wish = _Wish(now)
    for before, after in steps:
        for path in changed(before, after):
            if in_scope(path, scope) and path not in wish.conflicts:
                wish.merge(path, after.get(path), before.get(path), before)
    return wish.verdict()


def put_back(now: Tree, then: Tree, paths: Sequence[bytes]) -> Verdict:
    """Exactly these paths as they were; nothing else, above or below, is lost for it."""
    wish = _Wish(now)
    for path in sorted(paths):
        if now.get(path) != then.get(path):
            wish.want(path, then.get(path), then)
    return wish.verdict()


class _Wish:
    def __init__(self, now: Tree) -> None:
        self.now = now
        self.wanted: dict[bytes, Seen | None] = {}
        self.sources: dict[bytes, Tree] = {}
        self.conflicts: dict[bytes, str] = {}
        self.unsure = False
        self.merged = False

    def view(self, path: bytes) -> Seen | None:
        return self.wanted[path] if path in self.wanted else self.now.get(path)

    def want(self, path: bytes, seen: Seen | None, source: Tree) -> None:
        self.wanted[path] = seen
        self.sources[path] = source

    def merge(self, path: bytes, base: Seen | None, theirs: Seen | None, source: Tree) -> None:
        try:
            self.want(path, self._merged(base, self.view(path), theirs), source)
        except _CannotError as error:
            self.conflicts[path] = str(error)

    def _merged(self, base: Seen | None, ours: Seen | None, theirs: Seen | None) -> Seen | None:
        if ours in (base, theirs):
            return theirs
        kinds = [side.kind if side else "absent" for side in (base, ours, theirs)]
        if base and ours and theirs and kinds == ["file"] * 3:
            mode = three_way(base.mode, ours.mode, theirs.mode)
            return Seen("file", mode, self._content(base.content, ours.content, theirs.content))
        if base and ours and theirs and kinds == ["directory"] * 3:
            return Seen("directory", three_way(base.mode, ours.mode, theirs.mode))
        if kinds[1:] == ["directory", "directory"]:
            return ours
        if kinds == ["directory", "directory", "absent"]:
            return None  # goes if it is empty by then
        raise _CannotError(f"{base} → {theirs}, but there is {ours}")

    def _content(self, base: bytes, ours: bytes, theirs: bytes) -> bytes:
        if ours in (base, theirs):
            return theirs
        if base == theirs:
            return ours
        rows = [numbered(text) for text in (base, ours, theirs)]
        if any(r is None for r in rows) or len({len(r or []) for r in rows}) != 1:
            raise _CannotError("contents that are not line edits")
        b, o, t = (r or [] for r in rows)
        mine = {i for i in range(len(b)) if o[i] != b[i]}
        other = {i for i in range(len(b)) if t[i] != b[i]}
        if any(o[i] != t[i] for i in mine & other):
            raise _CannotError("the same line")
        if any(abs(i - j) < 2 for i in mine for j in other):
            self.unsure = True  # side by side: git may call it a conflict
        self.merged = True
        return b"".join(t[i] if i in other else o[i] for i in range(len(b)))

    # -- the shape of the tree ------------------------------------------------------------------

    def verdict(self) -> Verdict:
        self._bring_parents()
        tree = {p: s for p, s in self.now.items() if p not in self.wanted}
        tree.update({p: s for p, s in self.wanted.items() if s is not None})
        for path in sorted(self.wanted, reverse=True):
            filled = any(is_below(p, path) for p in tree)
            stood = self.now.get(path)
            if filled and self.wanted[path] is None and stood and stood.kind == "directory":
                tree[path] = stood
        for path, seen in tree.items():
            above = path.rpartition(b"/")[0]
            if above and (above not in tree or tree[above].kind != "directory"):
                self.conflicts.setdefault(path, f"no directory for {seen}")
        why = tuple(f"{path!r}: {text}" for path, text in self.conflicts.items())
        return Verdict(tree, not why, bool(why) or self.unsure, why, self.merged)

    def _bring_parents(self) -> None:
        for path, seen in list(self.wanted.items()):
            if seen is None:
                continue
            parts = path.split(b"/")
            for depth in range(1, len(parts)):
                above = b"/".join(parts[:depth])
                if self.view(above) is None and above in self.sources.get(path, {}):
                    self.wanted[above] = self.sources[path][above]


def three_way(base: int, ours: int, theirs: int) -> int:
    if ours in (base, theirs):
        return theirs
    if base == theirs:
        return ours
    raise _CannotError("mode")


def numbered(text: bytes) -> list[bytes] | None:
    """The lines of a file whose lines carry their numbers: edits keep every line in its place."""
    rows = text.splitlines(keepends=True)
    for i, row in enumerate(rows):
        match = _LINE.fullmatch(row)
        if match is None or int(match[1]) != i:
            return None
    return rows or None
