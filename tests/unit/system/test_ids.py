from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator

import pytest

from substrate.system import clock, ids


@pytest.fixture(autouse=True)
def real_clock() -> Iterator[None]:
    yield
    clock.set_clock(None)
    ids._sequence.last = (0, -1, 0)


@pytest.mark.parametrize(("prefix", "start"), [("c", "c-"), ("s", "s-"), ("spn", "spn_")])
def test_an_id_says_what_it_names(prefix: ids.Prefix, start: str) -> None:
    assert re.fullmatch(start + "[0-9a-hjkmnp-tv-z]{13}", ids.new_id(prefix))


def test_ids_sort_by_time() -> None:
    made = []
    for ms in (1, 2, 40, 10**6, 1_763_917_923_123, 1_763_917_923_124):
        clock.set_clock(lambda ms=ms: ms * 1_000_000)  # type: ignore[misc]
        made.append(ids.new_id("c"))
    assert made == sorted(made)


def test_ids_of_one_millisecond_grow_and_differ() -> None:
    clock.set_clock(lambda: 5_000_000)
    made = [ids.new_id("c") for _ in range(5_000)]
    assert made == sorted(set(made))


def test_a_clock_that_runs_backwards_makes_no_smaller_id() -> None:
    now = [10**18]
    clock.set_clock(lambda: now[0])
    made = []
    for _ in range(100):
        made.append(ids.new_id("c"))
        now[0] -= 3_600_000_000_000
    assert made == sorted(set(made))


def test_when_the_random_part_runs_over_the_time_moves_on() -> None:
    clock.set_clock(lambda: 5_000_000)
    ids._sequence.last = (os.getpid(), 5, 32**4 - 1)
    assert ids.new_id("c") == "c-0000000060000"
    assert ids.new_id("c") == "c-0000000060001"


def test_a_clock_before_1970_is_no_error() -> None:
    clock.set_clock(lambda: -(10**18))
    assert ids.new_id("c").startswith("c-000000000")


def test_a_forked_child_does_not_repeat_its_parents_ids() -> None:
    clock.set_clock(lambda: 5_000_000)
    ids.new_id("c")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, ids.new_id("c").encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    childs = os.read(read, 100).decode()
    os.close(read)
    assert childs != ids.new_id("c")


def test_threads_never_share_an_id() -> None:
    made: list[str] = []

    def make() -> None:
        mine = [ids.new_id("spn") for _ in range(500)]
        made.extend(mine)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 4_000
