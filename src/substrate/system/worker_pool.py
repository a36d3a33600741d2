"""Work on several cores: forked children that inherit what is in memory and answer over pipes.

Children see everything the parent held when they were forked, for nothing: that is what makes
this better than a pool of fresh interpreters for work on large tables.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from substrate.errors import SubstrateError

Item = TypeVar("Item")
Result = TypeVar("Result")

_HEAD_BYTES = 8


def cores() -> int:
    """How many processes can really run at once here."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Child:
    def __init__(self, pid: int, requests: int, answers: int) -> None:
        self.pid, self.requests, self.answers = pid, requests, answers
        #: The number of the item it works on; -1 when idle.
        self.task = -1

    def close(self) -> None:
        for fd in (self.requests, self.answers):
            os.close(fd)
        os.waitpid(self.pid, 0)


def map_forked(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    workers: int,
    rescue: Callable[[Item], Result] | None = None,
    isolate: bool = False,
) -> Iterator[Result]:
    """``map`` over child processes, results in order. Where there is no fork: in this process.

    A single worker is this process, too, unless `isolate` asks for a child that may crash.

    An item whose child dies is given to `rescue`, here; without one that is an error. Item,
    result and nothing else are pickled; `function` is inherited.
    """
    if (workers <= 1 and not isolate) or not hasattr(os, "fork"):
        yield from map(function, items)
        return
    pool = _Pool(function, workers, rescue)
    try:
        yield from pool.run(items)
    finally:
        pool.close()


class _Pool:
    def __init__(
        self,
        function: Callable[[Item], Result],
        workers: int,
        rescue: Callable[[Item], Result] | None,
    ) -> None:
        self._function: Callable[[object], object] = function  # type: ignore[assignment]
        self._rescue: Callable[[object], object] | None = rescue  # type: ignore[assignment]
        self._wanted = workers
        self._children: list[_Child] = []
        self._items: dict[int, object] = {}
        self._results: dict[int, object] = {}

    def run(self, items: Iterable[Item]) -> Iterator[Result]:
        source = enumerate(items)
        upcoming = next(source, None)
        due = 0
        while True:
            while upcoming is not None:
                child = self._idle()
                if child is None:
                    break
                self._give(child, *upcoming)
                # Made while the children work: reading ahead costs them nothing.
                upcoming = next(source, None)
            while due in self._results:
                yield self._results.pop(due)  # type: ignore[misc]
                due += 1
            if upcoming is None and not self._items:
                return
            self._collect()

    def _idle(self) -> _Child | None:
        for child in self._children:
            if child.task < 0:
                return child
        if len(self._children) < self._wanted:
            self._children.append(self._fork())
            return self._children[-1]
        return None

    def _fork(self) -> _Child:
        their_requests, requests = os.pipe()
        answers, their_answers = os.pipe()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                # Another child's ends must not keep that child waiting for a parent that is gone.
                for fd in (requests, answers, *(c.requests for c in self._children)):
                    os.close(fd)
                _serve(self._function, their_requests, their_answers)
                status = 0
            finally:
                os._exit(status)
        os.close(their_requests)
        os.close(their_answers)
        return _Child(pid, requests, answers)

    def _give(self, child: _Child, number: int, item: object) -> None:
        self._items[number] = item
        child.task = number
        try:
            _send(child.requests, item)
        except BrokenPipeError:
            pass  # it died: noticed when its answer is awaited

    def _collect(self) -> None:
        """Wait for one answer at least."""
        working = {child.answers: child for child in self._children if child.task >= 0}
        ready, _, _ = select.select(list(working), [], [])
        for fd in ready:
            child = working[fd]
            number, child.task = child.task, -1
            item = self._items.pop(number)
            answer = _receive(fd)
            if answer is None:
                self._children.remove(child)
                child.close()
                self._results[number] = self._rescued(item)
                continue
            fine, value = answer
            if not fine:
                raise RuntimeError(f"a worker failed: {value}")  # a bug: reported as such
            self._results[number] = value

    def _rescued(self, item: object) -> object:
        if self._rescue is None:
            raise SubstrateError("a worker process died", hint="is the machine short of memory?")
        return self._rescue(item)

    def close(self) -> None:
        for child in self._children:
            if child.task >= 0:  # given up on: do not wait for it to finish
                try:
                    os.kill(child.pid, 9)
                except OSError:
                    pass
            child.close()
        self._children = []


def _serve(function: Callable[[object], object], requests: int, answers: int) -> None:
    # Looking for cycles would touch, and so copy, every page that is shared with the parent.
    gc.disable()
    while True:
        raw = _read(requests)
        if raw is None:
            return
        try:
            answer: tuple[bool, object] = (True, function(pickle.loads(raw)))
        except Exception as error:  # noqa: BLE001  told to the parent, which raises it
            answer = (False, f"{type(error).__name__}: {error}")
        _send(answers, answer)


def _send(fd: int, value: object) -> None:
    raw = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    view = memoryview(len(raw).to_bytes(_HEAD_BYTES, "little") + raw)
    while view:
        view = view[os.write(fd, view) :]


def _receive(fd: int) -> tuple[bool, object] | None:
    raw = _read(fd)
    return pickle.loads(raw) if raw is not None else None


def _read(fd: int) -> bytes | None:
    head = _exactly(fd, _HEAD_BYTES)
    return _exactly(fd, int.from_bytes(head, "little")) if head is not None else None


def _exactly(fd: int, count: int) -> bytes | None:
    parts = []
    while count > 0:
        part = os.read(fd, min(count, 1 << 20))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
