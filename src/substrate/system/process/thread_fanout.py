"""Threads: calls that wait for the disk, several at a time, and a question beside other work.

A journalling file system serves all pending syncs with one write. On some disks each removal waits,
too: an ext4 without a journal, mounted with ``discard``, informs the device of each before it goes
on. Sixteen such waits together cost hardly more than one; on other disks they cost no more than one
after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from queue import SimpleQueue
    from threading import Semaphore, Thread

Item = TypeVar("Item")
Result = TypeVar("Result")

_AT_ONCE = 16
#: Fewer items are done one after the other: starting threads takes time, too.
SEVERAL = 32


class Asked(Generic[Result]):
    """A question that another thread runs. `answer` waits, and raises what the question raised."""

    def __init__(self, question: Callable[[], Result]) -> None:
        self._question = question
        self._answers: list[Result] = []
        self._error: BaseException | None = None
        from threading import Thread

        self._thread = Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        try:
            self._answers.append(self._question())
        except BaseException as error:  # noqa: BLE001  `answer` raises it
            self._error = error

    def answer(self) -> Result:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._answers[0]


class AtOnce:
    """A context manager: its threads start when they are first needed, and end with it.

    `for_each` returns when all items are done, so no work runs while the caller goes on.
    """

    def __init__(self, several: int = SEVERAL) -> None:
        """`several`: the number of items from which threads are worth it."""
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
        """Call `work` for each item, in any thread and any order.

        An error does not stop the other items; the first one is raised at the end.
        """
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
            except RuntimeError:  # the user's thread limit is reached: go on with fewer
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
        #: Released once by each thread that has finished with this job.
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
            except Exception as error:  # noqa: BLE001  `for_each` raises the first one
                self.errors.append(error)

    def let_go(self) -> None:
        if self.left is not None:
            self.left.release()

    def wait_for_one(self) -> None:
        if self.left is not None:
            self.left.acquire()
