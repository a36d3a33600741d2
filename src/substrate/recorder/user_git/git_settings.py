"""Parse a git configuration without git, and find the workspace paths that it refers to."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from substrate.model import RelPath

_SECTION = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\](.*)')
#: A file without any of these refers to no other path.
_LEADS = re.compile(rb"hookspath|include", re.IGNORECASE)
_INCLUDE = re.compile(r"include(if\..*)?\.path")
#: The depth of nested includes; git itself stops at ten.
_DEEPEST = 10


class GitLinks(NamedTuple):
    """Paths in the workspace that git's settings name."""

    #: Directories of hooks, each with a trailing ``/``.
    hooks: tuple[bytes, ...] = ()
    #: Further configurations.
    included: frozenset[RelPath] = frozenset()

    def is_hook(self, path: RelPath) -> bool:
        return bool(self.hooks) and path.startswith(self.hooks)


def settings(config: bytes) -> Iterator[tuple[str, str]]:
    """``section.subsection.key`` and the value as written, line by line."""
    section = ""
    for raw in config.decode("utf-8", "replace").splitlines():
        line = raw.strip()
        while match := _SECTION.match(line):  # one line may have several
            section = match[1].lower() + (f".{match[2]}" if match[2] is not None else "")
            line = match[3].strip()
        if not line or line[0] in "#;":
            continue
        key, _, value = line.partition("=")
        yield f"{section}.{key.strip().lower()}", value.strip()


#: Returns the content of a path in the workspace, before and after.
Content = Callable[[RelPath], tuple[bytes, ...]]


def links(root: bytes, home: bytes, own: tuple[bytes, ...], content: Content) -> GitLinks:
    """Follow ``core.hooksPath`` and ``include.path`` of the repository and of the user.

    `own`: the user's own configurations. A relative hooks path is relative to the work tree, a
    relative include to the file that names it.
    """
    found = _Found(root, home, content)
    for config in own:
        found.read(home, config, 0)
    for name in (b".git/config", b".git/config.worktree"):
        for config in content(RelPath(name)):
            found.read(os.path.join(root, b".git"), config, 0)
    return GitLinks(tuple(sorted(found.hooks)), frozenset(found.included))


class _Found:
    def __init__(self, root: bytes, home: bytes, content: Content) -> None:
        self.hooks: set[bytes] = set()
        self.included: set[RelPath] = set()
        self._root = root
        self._home = home
        self._content = content

    def read(self, directory: bytes, config: bytes, depth: int) -> None:
        if depth > _DEEPEST or not _LEADS.search(config):
            return
        for name, value in settings(config):
            if name == "core.hookspath":
                path = self._inside(self._root, value)
                if path:
                    self.hooks.add(path + b"/")
            elif _INCLUDE.fullmatch(name.lower()):
                path = self._inside(directory, value)
                if path and path not in self.included:
                    self.included.add(RelPath(path))
                    for inner in self._content(RelPath(path)):
                        above = os.path.dirname(os.path.join(self._root, path))
                        self.read(above, inner, depth + 1)

    def _inside(self, directory: bytes, value: str) -> bytes:
        """The path below the workspace that a value refers to; empty if it is elsewhere."""
        text = os.fsencode(value.partition(" #")[0].partition(" ;")[0].strip().strip('"'))
        if text.startswith(b"~/"):
            text = os.path.join(self._home, text[2:])
        path = os.path.normpath(os.path.join(directory, text))
        inside = self._root.rstrip(b"/") + b"/"
        return path.removeprefix(inside) if path.startswith(inside) else b""
