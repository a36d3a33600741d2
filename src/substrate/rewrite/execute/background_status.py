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
    # Not with --directory: that hides what lies in a directory where a file is tracked.
    out = copy.git.run("ls-files", "-z", "--others", "--exclude-standard")
    names = [name for name in out.split(b"\0") if name and not _is_own(name)]
    nested = tuple(name[:-1] for name in names if name.endswith(b"/"))
    return Others(tuple(name for name in names if not name.endswith(b"/")), nested)


def list_directories(copy: WorkingCopy) -> list[bytes]:
    """Directories without a tracked file, empty ones among them; the topmost of each."""
    out = copy.git.run("ls-files", "-z", "--others", "--exclude-standard", "--directory")
    names = (name for name in out.split(b"\0") if name.endswith(b"/"))
    return [name[:-1] for name in names if not _is_own(name)]


def _is_own(name: bytes) -> bool:
    return name.split(b"/", 1)[0] in OWN_DIRECTORIES
