"""Calls that wait for the disk, several at a time.

A journalling file system writes what all who wait for a sync are waiting for in one go. Some disks
make each removed file wait, too: an ext4 without a journal that is mounted with ``discard`` tells
the device about each before it goes on. Sixteen such waits together cost hardly more than one; on
other disks they cost no more than one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from queue import SimpleQueue
    from threading import Semaphore, Thread

Item = TypeVar("Item")

_AT_ONCE = 16
#: Fewer are done one after the other: starting threads takes its time, too.
SEVERAL = 32


class AtOnce:
    """Use as a context manager: its threads are made when they are first needed, and end with it.

    `for_each` returns when all is done, so that nothing of it runs while the caller goes on.
    """

    def __init__(self, several: int = SEVERAL) -> None:
        """`several`: from so many items on threads are worth it."""
        self._several = several
        self._jobs: SimpleQueue[_Job | None] | None = None
        self._threads: list[Thread] = []

    def __enter__(self) -> AtOnce:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for _ in self._threads:
            self._tell(None)
        for thread in self._threads:
            thread.join()
        self._threads = []

    def for_each(self, work: Callable[[Item], object], items: Sequence[Item]) -> None:
        """`work` must not mind which thread it is in, nor the order. Every item gets its turn;
        the first error that was met is raised then."""
        job = _Job(work, items)
        helpers = self._helpers(len(items) - 1) if len(items) >= self._several else []
        if helpers:
            from threading import Semaphore

            job.left = Semaphore(0)
            for _ in helpers:
                self._tell(job)
        job.run()
        for _ in helpers:
            job.wait_for_one()
        if job.errors:
            raise job.errors[0]

    def _helpers(self, most: int) -> list[Thread]:
        from queue import SimpleQueue
        from threading import Thread

        if self._jobs is None:
            self._jobs = SimpleQueue()
        while len(self._threads) < min(most, _AT_ONCE - 1):
            thread = Thread(target=self._serve, daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the user may have no more of them: it is done with fewer
                break
            self._threads.append(thread)
        return self._threads

    def _tell(self, job: _Job | None) -> None:
        assert self._jobs is not None, "there are threads"
        self._jobs.put(job)

    def _serve(self) -> None:
        assert self._jobs is not None, "made before its threads"
        while (job := self._jobs.get()) is not None:
            job.run()
            job.let_go()


class _Job:
    def __init__(self, work: Callable[[Item], object], items: Sequence[Item]) -> None:
        self._work: Callable[[Any], object] = work
        self._left: list[Any] = [*reversed(items)]
        self.errors: list[Exception] = []
        #: One for each thread that has nothing more to do for it.
        self.left: Semaphore | None = None

    def run(self) -> None:
        work, left = self._work, self._left
        while True:
            try:
                item = left.pop()
            except IndexError:
                return
            try:
                work(item)
            except Exception as error:  # noqa: BLE001  raised by who waits for all of them
                self.errors.append(error)

    def let_go(self) -> None:
        if self.left is not None:
            self.left.release()

    def wait_for_one(self) -> None:
        if self.left is not None:
            self.left.acquire()
