"""The caller's umask: in force but for the owner's bits, and whole for what we start."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from substrate.system import umask
from substrate.system.process import process


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = umask.current()
    yield
    umask.take(before)


def in_force() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found


def test_it_is_read_without_changing_it() -> None:
    os.umask(0o027)
    assert umask.current() == 0o027
    assert umask.current() == 0o027


@pytest.mark.parametrize(
    ("callers", "ours"), [(0o377, 0o077), (0o777, 0o077), (0o700, 0), (0o027, 0o027), (0, 0)]
)
def test_the_owner_keeps_every_right_here_and_the_program_gets_the_caller_s(
    callers: int, ours: int
) -> None:
    umask.take(callers)
    umask.take(umask.current())
    assert (in_force(), umask.current()) == (ours, callers)
    finished = process.run_foreground(["/bin/sh", "-c", f'test "$(umask)" = "{callers:04o}"'])
    assert finished.exit_code == 0
