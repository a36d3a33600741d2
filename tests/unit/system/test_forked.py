"""Work in a forked child."""

from __future__ import annotations

import time

import pytest

from substrate.system import forked

pytestmark = pytest.mark.needs("fork")


def test_a_child_answers_within_its_time() -> None:
    child = forked.fork(lambda: [1, b"two"])
    assert child is not None
    assert child.answer_within(60) == [1, b"two"]


def test_a_child_that_takes_too_long_is_ended() -> None:
    child = forked.fork(lambda: time.sleep(3600))
    assert child is not None
    assert child.answer_within(0.05) is None
