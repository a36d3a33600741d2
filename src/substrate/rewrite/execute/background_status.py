"""Scans of the whole working copy: started as soon as the locks are held, awaited later.

The scans take longer than everything else and run in separate git processes. Reading, other
queries and imports happen at the same time.
"""

from __future__ import annotations

from typing import NamedTuple

from substrate.objects.git import RawChange
from substrate.rewrite.execute.working_copy import OWN_DIRECTORIES, WorkingCopy
from substrate.system.process import Asked


class Others(NamedTuple):
    """Paths that git neither tracks nor ignores."""

    files: tuple[bytes, ...]
    #: Repositories inside this one that are not submodules.
    nested: tuple[bytes, ...]


class Sweep:
    """Both scans in parallel: the stat of every tracked file, and the untracked files."""

    def __init__(self, copy: WorkingCopy) -> None:
        copy.git.config()  # once, before the threads ask for it
        self._files = Asked(lambda: copy.git.raw_diff("diff-files"))
        self._others = Asked(lambda: list_others(copy))

    def files(self) -> list[RawChange]:
        return self._files.answer()

    def others(self) -> Others:
        return self._others.answer()


def list_others(copy: WorkingCopy) -> Others:
    # Not with --directory: that hides the contents of a directory where a file is tracked.
    out = copy.git.run("ls-files", "-z", "--others", "--exclude-standard")
    names = [name for name in out.split(b"\0") if name and not _is_own(name)]
    nested = tuple(name[:-1] for name in names if name.endswith(b"/"))
    return Others(tuple(name for name in names if not name.endswith(b"/")), nested)


def list_directories(copy: WorkingCopy) -> list[bytes]:
    """The topmost directories without a tracked file, including empty ones."""
    out = copy.git.run("ls-files", "-z", "--others", "--exclude-standard", "--directory")
    names = (name for name in out.split(b"\0") if name.endswith(b"/"))
    return [name[:-1] for name in names if not _is_own(name)]


def _is_own(name: bytes) -> bool:
    return name.split(b"/", 1)[0] in OWN_DIRECTORIES
