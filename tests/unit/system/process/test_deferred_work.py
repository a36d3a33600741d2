"""What waits until the caller has its answer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from substrate.system import afterwards


def test_where_nobody_catches_up_it_is_done_at_once() -> None:
    done: list[int] = []
    afterwards.do(lambda: done.append(1))
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
            afterwards.postpone()
            afterwards.do(lambda: say("first"))
            afterwards.do(fail)
            afterwards.do(lambda: say("second"))
            say("answer")
            afterwards.run()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert said.read_text() == "answer first second "


@pytest.mark.needs("posix")
def test_it_is_cleared_away_where_nobody_may_give_way(
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
            afterwards.postpone()
            afterwards.clear(layer.rmdir)
            afterwards.run_clearing()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert not layer.exists()
