"""From wanted files to a plan: which directories to make and remove, and what blocks a path.

A directory is removed only if every name in it is removed; a directory that was already empty
stays. A user's file where the target wants a directory (or the reverse) blocks the path.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from substrate.errors import RefusedError
from substrate.model import ABSENT, Kind, Node, RelPath, ancestors, display, is_within, join, parent
from substrate.workspace.apply import Op, Plan


class Wish(NamedTuple):
    expect: Node
    become: Node


class Layout(NamedTuple):
    ops: tuple[Op, ...]
    #: Paths that cannot be created, and what blocks them.
    blocked: dict[RelPath, str]
    #: Ignored files that had to make room for a directory; the snapshot must hold them.
    displaced: dict[RelPath, Node]


class Planner:
    """`node_at` reads the tree; `gives_way`: the path is ignored, so the target wins."""

    def __init__(
        self,
        root: Path,
        node_at: Callable[[RelPath], Node],
        gives_way: Callable[[RelPath], bool],
        directory_mode: int,
    ) -> None:
        self._root = os.fsencode(root)
        self._node_at = node_at
        self._gives_way = gives_way
        self._new_directory = Node(Kind.DIRECTORY, directory_mode)
        self._seen: dict[RelPath, Node] = {}

    def lay_out(self, wishes: Mapping[RelPath, Wish]) -> Layout:
        wanted = {path: wish for path, wish in wishes.items() if wish.expect != wish.become}
        blocked: dict[RelPath, str] = {}
        while True:
            found = self._blocked(wanted)
            if not found:
                break
            blocked.update(found)
            for path in found:
                del wanted[path]
        ops = dict(wanted)
        displaced = self._make_directories(ops)
        self._remove_directories(ops)
        plan = tuple(Op(path, wish.expect, wish.become) for path, wish in ops.items())
        return Layout(plan, blocked, displaced)

    def _now(self, path: RelPath) -> Node:
        """Kind and mode on disk; a path below anything but a directory is absent."""
        node = self._seen.get(path)
        if node is None:
            node = self._seen[path] = self._node_at(path)
        return node

    # -- what is in the way ---------------------------------------------------------------------

    def _blocked(self, wanted: Mapping[RelPath, Wish]) -> dict[RelPath, str]:
        out = {}
        for path, wish in wanted.items():
            if wish.become == ABSENT:
                continue
            why = self._above(path, wanted) or self._below(path, wanted)
            if why:
                out[path] = why
        return out

    def _above(self, path: RelPath, wanted: Mapping[RelPath, Wish]) -> str:
        for above in reversed(ancestors(path)):
            node = self._now(above)
            if node.kind is Kind.DIRECTORY:
                continue
            if node == ABSENT:
                return ""
            wish = wanted.get(above)
            if wish is not None and wish.become.kind in (Kind.ABSENT, Kind.DIRECTORY):
                return ""
            if wish is None and self._gives_way(above):
                return ""
            return f"the {node.kind.value} {display(above)} is where its directory has to be"
        return ""

    def _below(self, path: RelPath, wanted: Mapping[RelPath, Wish]) -> str:
        if self._now(path).kind is not Kind.DIRECTORY:
            return ""
        stays = next((p for p in self._files_below(path) if not _goes(p, wanted)), None)
        return f"a directory with {display(stays)} in it is there" if stays else ""

    def _files_below(self, path: RelPath) -> list[RelPath]:
        out: list[RelPath] = []
        stack = [path]
        while stack:
            here = stack.pop()
            for name, is_directory in self._names(here):
                below = join(here, name)
                (stack if is_directory else out).append(below)
        return out

    def _names(self, path: RelPath) -> list[tuple[bytes, bool]]:
        try:
            with os.scandir(os.path.join(self._root, path)) as found:
                return [(e.name, e.is_dir(follow_symlinks=False)) for e in found]
        except OSError:
            return []

    # -- directories ----------------------------------------------------------------------------

    def _make_directories(self, ops: dict[RelPath, Wish]) -> dict[RelPath, Node]:
        displaced = {}
        for path in [p for p, wish in ops.items() if wish.become != ABSENT]:
            for above in ancestors(path):
                node = self._now(above)
                if node.kind is Kind.DIRECTORY:
                    break
                if above in ops and ops[above].become.kind is Kind.DIRECTORY:
                    continue
                if node != ABSENT and above not in ops:
                    displaced[above] = node
                ops[above] = Wish(node, self._new_directory)
        return displaced

    def _remove_directories(self, ops: dict[RelPath, Wish]) -> None:
        for path, wish in list(ops.items()):
            if wish.become.kind is Kind.FILE or wish.become.kind is Kind.SYMLINK:
                node = self._now(path)
                if node.kind is Kind.DIRECTORY:
                    ops[path] = wish._replace(expect=node)
                    self._empty(path, ops)
        gone = [path for path, wish in ops.items() if wish.become == ABSENT]
        doomed = {above for path in gone for above in ancestors(path)}
        for path in sorted(doomed, key=lambda p: p.count(b"/"), reverse=True):
            if path not in ops and self._is_emptied(path, ops):
                ops[path] = Wish(self._now(path), ABSENT)

    def _empty(self, path: RelPath, ops: dict[RelPath, Wish]) -> None:
        """Remove every directory inside as well: a file replaces this one."""
        stack = [path]
        while stack:
            here = stack.pop()
            for name, is_directory in self._names(here):
                if is_directory:
                    below = join(here, name)
                    ops[below] = Wish(self._now(below), ABSENT)
                    stack.append(below)

    def _is_emptied(self, path: RelPath, ops: Mapping[RelPath, Wish]) -> bool:
        if self._now(path).kind is not Kind.DIRECTORY:
            return False
        made = any(parent(p) == path for p, wish in ops.items() if wish.become != ABSENT)
        names = self._names(path)
        return bool(names) and not made and all(_goes(join(path, n), ops) for n, _ in names)


def _goes(path: RelPath, ops: Mapping[RelPath, Wish]) -> bool:
    wish = ops.get(path)
    return wish is not None and wish.become == ABSENT


def plan_of(ops: Iterable[Op]) -> Plan:
    """`Plan.of`; `RefusedError` for a list that no tree can satisfy. Nothing has changed yet."""
    try:
        return Plan.of(ops)
    except ValueError as error:
        raise RefusedError(
            f"these paths are in each other's way: {error}",
            hint="name fewer paths, or move what is there aside; nothing was changed",
        ) from error


def below_any(path: RelPath, scopes: tuple[RelPath, ...]) -> bool:
    return any(is_within(path, scope) for scope in scopes)
