"""What waits until the caller has its answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from substrate.system.process import deferred_work


def test_where_nothing_catches_up_it_is_done_at_once() -> None:
    done: list[int] = []
    deferred_work.do(lambda: done.append(1))
    assert done == [1]


@pytest.mark.needs("posix")
def test_put_off_until_the_answer(tmp_path: Path) -> None:
    said = tmp_path / "said"

    def say(word: str) -> None:
        with said.open("a") as file:
            file.write(word + " ")

    def fail() -> None:
        raise OSError

    child = os.fork()
    if child == 0:
        try:
            deferred_work.postpone()
            deferred_work.do(lambda: say("first"))
            deferred_work.do(fail)
            deferred_work.do(lambda: say("second"))
            say("answer")
            deferred_work.run()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert said.read_text() == "answer first second "


@pytest.mark.needs("posix")
def test_it_is_cleared_away_where_nothing_may_give_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> int:
        raise PermissionError

    layer = tmp_path / "layer"
    layer.mkdir()
    child = os.fork()
    if child == 0:
        try:
            monkeypatch.setattr(os, "nice", refuse)
            deferred_work.postpone()
            deferred_work.clear(layer.rmdir)
            deferred_work.run_clearing()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert not layer.exists()
