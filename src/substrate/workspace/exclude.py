"""What history leaves out: bulk that can be made again, what the user names, and huge files.

An excluded directory is never entered. Three sources, the later one wins:

    built-in list   node_modules/, dist/, …        by name, at any depth
    .substrateignore (workspace root only)         gitignore syntax; ``!dist/`` includes it again
    size cap        files larger than 64 MiB       always

*Metadata* comes before all of them, and no rule includes it again: ``.git`` directories and
``.substrate-git`` anywhere, ``.ctx`` and ``.manifold`` at the root.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from substrate.model import ROOT, RelPath, ancestors, display, parent, split

if TYPE_CHECKING:
    from substrate.workspace.ignore_rules import IgnoreRules

IGNORE_NAME = ".substrateignore"
SIZE_CAP_BYTES = 64 << 20
METADATA = "metadata"
#: A scan finds these; `Exclusions`, which sees only names, does not know them.
SYSTEM_FILES = "a mounted system directory"

#: Directories whose content a tool can make again from what is recorded.
BUILT_IN: tuple[str, ...] = (
    *("node_modules", "bower_components", "dist", "target", ".venv", "venv", "__pycache__"),
    *(".cache", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox"),
    *(".eggs", ".ipynb_checkpoints", ".gradle", ".terraform", ".next", ".nuxt", ".svelte-kit"),
    *(".turbo", ".parcel-cache", ".angular", ".nyc_output", ".sass-cache", ".pnpm-store"),
    *(".dart_tool", ".zig-cache", "zig-out", ".bazel-cache", ".ccache", ".direnv"),
)
_BUILT_IN_REASONS = {os.fsencode(name): f"built-in: {name}/" for name in BUILT_IN}
_ALWAYS = frozenset({b".substrate-git"})
_ALWAYS_DIRECTORY = frozenset({b".git"})
_ALWAYS_AT_ROOT = frozenset({b".ctx", b".manifold"})
#: Metadata names that count for files, too; the others count for directories only.
METADATA_FILES = frozenset(os.fsdecode(name) for name in _ALWAYS | _ALWAYS_AT_ROOT)
_RULES_LIMIT_BYTES = 1 << 20


class Exclusions:
    """The rules in force. `reason` returns `None` for a path that is recorded."""

    def __init__(self, rules: bytes = b"", *, size_cap_bytes: int = SIZE_CAP_BYTES) -> None:
        self.size_cap_bytes = size_cap_bytes
        self._cap_reason = f"larger than {_size_text(size_cap_bytes)}"
        self._notes: list[tuple[str, str]] = []
        self._last_above: tuple[RelPath, str | None] = (ROOT, None)
        self._rules = _parse(rules) if rules.strip() else None
        said = repr((BUILT_IN, size_cap_bytes, rules)).encode()
        #: Changes whenever any result of `reason` may change.
        self.fingerprint = hashlib.sha256(said).hexdigest()

    @classmethod
    def load(cls, root: Path, *, size_cap_bytes: int = SIZE_CAP_BYTES) -> Exclusions:
        """The rules of the workspace at `root`, with the present ``.substrateignore``."""
        rules, problem = _read_rules(root)
        loaded = cls(rules, size_cap_bytes=size_cap_bytes)
        if problem:
            loaded._notes.append((IGNORE_NAME, problem))
        return loaded

    def reason(self, path: RelPath, *, is_dir: bool, size: int) -> str | None:
        """Why `path` is left out, because of itself or of a directory above it."""
        found = self._above_reason(parent(path))
        return self.own_reason(path, is_dir=is_dir, size=size) if found is None else found

    def _above_reason(self, directory: RelPath) -> str | None:
        """`reason` of a directory, cached because it is needed for each file in it."""
        if directory == self._last_above[0]:
            return self._last_above[1]
        found = None
        for above in [*reversed(ancestors(directory)), directory] if directory else ():
            found = self.own_reason(above, is_dir=True, size=0)
            if found is not None:
                break
        self._last_above = directory, found
        return found

    def own_reason(self, path: RelPath, *, is_dir: bool, size: int) -> str | None:
        """`reason` for a caller that knows that the directories above are recorded."""
        above, name = split(path)
        if name in _ALWAYS or (is_dir and name in _ALWAYS_DIRECTORY):
            return METADATA
        if not above and name in _ALWAYS_AT_ROOT:
            return METADATA
        if self._rules is not None:
            rule = self._rules.deciding_rule(path, is_dir=is_dir)
            if rule is not None and not rule.negated:
                return f"{IGNORE_NAME}:{rule.number}: {display(rule.text)}"
            if rule is not None:
                return self._over_cap(is_dir, size)
        if is_dir:
            return _BUILT_IN_REASONS.get(name)
        return self._over_cap(is_dir, size)

    @property
    def may_exclude_files(self) -> bool:
        """Whether a rule could exclude a file by name; the built-in rules name directories only."""
        return self._rules is not None

    def _over_cap(self, is_dir: bool, size: int) -> str | None:
        return self._cap_reason if not is_dir and size > self.size_cap_bytes else None

    @property
    def cap_reason(self) -> str:
        """The reason for files over the size cap."""
        return self._cap_reason

    def describe(self) -> list[tuple[str, str]]:
        """The rules as (source, rule) pairs, for people."""
        out = [(METADATA, rule) for rule in (".git/", ".substrate-git/", "/.ctx/", "/.manifold/")]
        out += [("built-in", f"{name}/") for name in BUILT_IN]
        if self._rules is not None:
            for rule in self._rules.rules:
                out.append((f"{IGNORE_NAME}:{rule.number}", display(rule.text)))
            for number, line, problem in self._rules.problems:
                out.append((f"{IGNORE_NAME}:{number}", f"ignored, {problem}: {display(line)}"))
        out.append(("size cap", f"files {self._cap_reason}"))
        return out + self._notes


def _parse(rules: bytes) -> IgnoreRules:
    from substrate.workspace.ignore_rules import IgnoreRules

    return IgnoreRules(rules)


def _read_rules(root: Path) -> tuple[bytes, str]:
    """``(content, problem)``; the file may be anything: a command could have put it there."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    path = os.path.join(root, IGNORE_NAME)
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return b"", "not a regular file, ignored"
        fd = os.open(path, flags)
    except FileNotFoundError:
        return b"", ""
    except OSError as error:
        return b"", f"cannot be read, ignored: {error.strerror}"
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return b"", "not a regular file, ignored"
        data = file.read(_RULES_LIMIT_BYTES + 1)
    if len(data) > _RULES_LIMIT_BYTES:
        return b"", f"larger than {_size_text(_RULES_LIMIT_BYTES)}, ignored"
    return data, ""


def _size_text(size_bytes: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit} {name}"
    return f"{size_bytes} bytes"
