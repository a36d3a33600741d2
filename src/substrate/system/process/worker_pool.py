"""A pool of forked children that inherit our memory and answer over pipes, item by item.

`fork_workers` is for children that answer once. A pool is for work whose items are found while the
children work, and for results in order.

Children see everything that the parent had in memory at the fork, at no cost. That makes this
better than a pool of new interpreters for work on large tables.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

from substrate.errors import SubstrateError
from substrate.system.process.fork_workers import widen
from substrate.system.process.process import fork_child

Item = TypeVar("Item")
Result = TypeVar("Result")

#: The number of parts that follow, and their total length with the table of their lengths.
_HEAD = struct.Struct("<QQ")
#: Items queued per child: it begins the next one without waiting for us.
_AHEAD = 2


class _Child:
    def __init__(self, pid: int, requests: int, answers: int) -> None:
        self.pid, self.requests, self.answers = pid, requests, answers
        #: Numbers of the items it was given and has not answered; it works on the first.
        self.tasks: deque[int] = deque()
        #: Bytes that its pipe had no room for yet.
        self.unsent = memoryview(b"")

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
    """``map`` over child processes, results in order. Without fork: in this process.

    With one worker it also runs in this process, unless `isolate` asks for a child that may crash.

    If a child dies, `rescue` handles its item in this process; without `rescue` that is an error.
    Only items and results are pickled; `function` is inherited. A `pickle.PickleBuffer` in a result
    arrives as it is, or as a memoryview of the bytes from the pipe: it is not copied again.
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
        #: Numbers of items given to a child that died before it began them.
        self._again: list[int] = []

    def run(self, items: Iterable[Item]) -> Iterator[Result]:
        source = enumerate(items)
        upcoming = next(source, None)
        due = 0
        while True:
            child = self._free()
            while child is not None and (self._again or upcoming is not None):
                if self._again:
                    self._give(child, self._again.pop())
                elif upcoming is not None:
                    number, self._items[number] = upcoming
                    self._give(child, number)
                    # Prepared while the children work: reading ahead does not delay them.
                    upcoming = next(source, None)
                child = self._free()
            while due in self._results:
                yield self._results.pop(due)  # type: ignore[misc]
                due += 1
            if upcoming is None and not self._items:
                return
            self._exchange()

    def _free(self) -> _Child | None:
        """A child that can take an item, preferably an idle one."""
        child = min(self._children, key=lambda one: len(one.tasks), default=None)
        if child is not None and not child.tasks:
            return child
        if len(self._children) < self._wanted:
            self._children.append(self._fork())
            return self._children[-1]
        return child if child is not None and len(child.tasks) < _AHEAD else None

    def _fork(self) -> _Child:
        their_requests, requests = _pipe()
        answers, their_answers = _pipe()

        def work() -> None:
            # A child that holds another child's pipe would keep that one waiting after the parent
            # ended.
            for fd in (requests, answers, *(c.requests for c in self._children)):
                os.close(fd)
            _serve(self._function, their_requests, their_answers)

        pid = fork_child(work)
        os.close(their_requests)
        os.close(their_answers)
        os.set_blocking(requests, False)
        return _Child(pid, requests, answers)

    def _give(self, child: _Child, number: int) -> None:
        child.tasks.append(number)
        child.unsent = memoryview(b"".join((child.unsent, *_packed(self._items[number]))))
        self._send(child)

    @staticmethod
    def _send(child: _Child) -> None:
        """Send as much as fits: to wait for a child that waits for us would block forever."""
        try:
            while child.unsent:
                child.unsent = child.unsent[os.write(child.requests, child.unsent) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            child.unsent = memoryview(b"")  # the child died: noticed when its answer is awaited

    def _exchange(self) -> None:
        """Wait until a child answers or can take more data."""
        working = {child.answers: child for child in self._children if child.tasks}
        hungry = {child.requests: child for child in self._children if child.unsent}
        ready, writable, _ = select.select(list(working), list(hungry), [])
        for fd in writable:
            self._send(hungry[fd])
        for fd in ready:
            child = working[fd]
            answer = _receive(fd)
            number = child.tasks.popleft()
            item = self._items.pop(number)
            if answer is None:
                self._children.remove(child)
                child.close()
                self._again += child.tasks
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
            if child.tasks:  # abandoned: do not wait for it to finish
                with suppress(OSError):
                    os.kill(child.pid, 9)
            child.close()
        self._children = []


def _serve(function: Callable[[object], object], requests: int, answers: int) -> None:
    # A collection would write to, and so copy, every page that is shared with the parent.
    gc.disable()
    while True:
        parts = _read(requests)
        if parts is None:
            return
        try:
            item: object = pickle.loads(parts[0], buffers=parts[1:])
            answer: tuple[bool, object] = (True, function(item))
        except Exception as error:  # noqa: BLE001  sent to the parent, which raises it
            answer = (False, f"{type(error).__name__}: {error}")
        _write(answers, _packed(answer))


def _pipe() -> tuple[int, int]:
    ours, theirs = os.pipe()
    widen(theirs)
    return ours, theirs


def _packed(value: object) -> list[bytes | memoryview]:
    apart: list[pickle.PickleBuffer] = []
    raw = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=apart.append)
    parts: list[bytes | memoryview] = [raw, *(buffer.raw() for buffer in apart)]
    table = struct.pack(f"<{len(parts)}Q", *map(len, parts))
    head = _HEAD.pack(len(parts), len(table) + sum(map(len, parts)))
    return [head + table, *parts]


def _write(fd: int, parts: list[bytes | memoryview]) -> None:
    while parts:
        done = os.writev(fd, parts)
        while parts and done >= len(parts[0]):
            done -= len(parts.pop(0))
        if parts:
            parts[0] = memoryview(parts[0])[done:]


def _receive(fd: int) -> tuple[bool, object] | None:
    parts = _read(fd)
    return pickle.loads(parts[0], buffers=parts[1:]) if parts is not None else None


def _read(fd: int) -> list[memoryview] | None:
    head = _exactly(fd, _HEAD.size)
    if head is None:
        return None
    count, size = _HEAD.unpack(head)
    body = _exactly(fd, size)
    if body is None:
        return None
    view, parts, at = memoryview(body), [], 8 * count
    for length in struct.unpack_from(f"<{count}Q", body):
        parts.append(view[at : at + length])
        at += length
    return parts


def _exactly(fd: int, count: int) -> bytearray | None:
    """Exactly `count` bytes; None if the other end was closed before that."""
    data = bytearray(count)
    rest = memoryview(data)
    while rest:
        got = os.readv(fd, [rest])
        if not got:
            return None
        rest = rest[got:]
    return data
