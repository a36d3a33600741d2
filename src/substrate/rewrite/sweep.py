"""The looks at the whole working copy: begun as soon as the locks are held, answered later.

They take longer than all the rest, and git does them in processes of their own: what else is to be
read, asked or imported is done meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Generic, NamedTuple, TypeVar

from substrate.objects.worktree_git import RawChange
from substrate.rewrite.working_copy import OWN_DIRECTORIES, WorkingCopy

_T = TypeVar("_T")
#: More directories than this are not worth naming: the whole tree is listed again.
_FEW_DIRECTORIES = 100


class Asked(Generic[_T]):
    """A question that another thread waits for. `answer` raises what the question raised."""

    def __init__(self, question: Callable[[], _T]) -> None:
        self._question = question
        self._answers: list[_T] = []
        self._error: BaseException | None = None
        self._thread = Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        try:
            self._answers.append(self._question())
        except BaseException as error:  # noqa: BLE001  handed over to whoever wants the answer
            self._error = error

    def answer(self) -> _T:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._answers[0]


class Others(NamedTuple):
    """What git neither tracks nor ignores."""

    files: tuple[bytes, ...]
    #: Repositories inside this one that are no submodules.
    nested: tuple[bytes, ...]
    #: Directories without a tracked file, the topmost of each; empty ones among them.
    directories: tuple[bytes, ...]


class Sweep:
    """Both looks at every file, side by side: its stat, and what else lies there."""

    def __init__(self, copy: WorkingCopy) -> None:
        copy.git.config()  # once, before the threads ask for it
        self._files = Asked(lambda: copy.git.raw_diff("diff-files"))
        self._others = Asked(lambda: list_others(copy))

    def files(self) -> list[RawChange]:
        return self._files.answer()

    def others(self) -> Others:
        return self._others.answer()


def list_others(copy: WorkingCopy) -> Others:
    """Directories first, because that tells of empty ones too; then the files in those."""
    asked = ("ls-files", "-z", "--others", "--exclude-standard")
    found = [n for n in copy.git.run(*asked, "--directory").split(b"\0") if n and not _is_own(n)]
    directories = [name for name in found if name.endswith(b"/")]
    files = [name for name in found if not name.endswith(b"/")]
    nested: list[bytes] = []
    if directories:
        scope = directories if len(directories) <= _FEW_DIRECTORIES else []
        for name in copy.git.run(*asked, "--", *scope).split(b"\0"):
            if name.endswith(b"/"):
                nested.append(name[:-1])
            elif name and not _is_own(name):
                files.append(name)
    tops = tuple(name[:-1] for name in directories)
    return Others(tuple(dict.fromkeys(files)), tuple(nested), tops)


def _is_own(name: bytes) -> bool:
    return name.split(b"/", 1)[0] in OWN_DIRECTORIES
