"""Children that answer over a pipe: each portion once, and a dead child is a missing answer."""

from __future__ import annotations

import errno
import os
import signal
import tempfile
import threading
import time
from pathlib import Path

import pytest

from substrate.system.process.fork_workers import MOST_PORTIONS, Portions, by_weight, can_fork, fork

pytestmark = pytest.mark.skipif(not can_fork(), reason="this system has no safe fork")


def answer_of(work: object) -> object:
    child = fork(work)  # type: ignore[arg-type]
    assert child is not None
    return child.answer()


def test_an_answer_of_any_size() -> None:
    assert answer_of(lambda: ("a", b"b", [1, 2.5], {"c": None})) == (
        "a",
        b"b",
        [1, 2.5],
        {"c": None},
    )
    assert answer_of(lambda: b"x" * 10_000_000) == b"x" * 10_000_000


def test_a_child_that_fails_answers_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise RuntimeError("not to be seen")

    assert answer_of(fail) is None
    assert answer_of(lambda: os.kill(os.getpid(), signal.SIGKILL)) is None
    assert answer_of(object) is None  # nothing that can be sent
    assert answer_of(lambda: os._exit(0)) is None
    assert capfd.readouterr() == ("", "")


def test_what_is_done_after_the_answer_keeps_no_caller_waiting() -> None:
    reader, writer = os.pipe()
    child = fork(lambda: "early", lambda: (os.read(reader, 1), b"x" * 10_000_000))
    assert child is not None
    assert child.early_answer() == "early"
    os.write(writer, b".")
    assert child.late_answer() == (b".", b"x" * 10_000_000)
    os.close(reader)
    os.close(writer)


def test_a_sandbox_without_files_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.ENOSYS, "not in here")

    monkeypatch.setattr(os, "memfd_create", refuse, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    child = fork(lambda: "early", lambda: "late")
    assert child is not None
    assert (child.early_answer(), child.late_answer()) == ("early", "late")
    assert list(tmp_path.iterdir()) == []


def test_a_child_that_dies_after_its_answer_has_answered(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        raise RuntimeError("not to be seen")

    for end in (fail, lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: os._exit(0)):
        child = fork(lambda: "early", end)
        assert child is not None
        assert child.early_answer() == "early"
        assert child.late_answer() is None
    assert capfd.readouterr() == ("", "")


def test_nothing_of_the_parent_runs_in_the_child() -> None:
    marks: list[int] = []
    reader, writer = os.pipe()
    try:
        assert answer_of(lambda: 1) == 1
    finally:
        marks.append(os.getpid())
        os.write(writer, b".")
    os.close(writer)
    assert os.read(reader, 10) == b"."
    os.close(reader)
    assert marks == [os.getpid()]


def test_every_portion_is_claimed_once() -> None:
    portions = Portions(MOST_PORTIONS)
    children = [fork(lambda: list(portions.claims())) for _ in range(3)]
    claimed = list(portions.claims())
    portions.close()
    for child in children:
        assert child is not None
        answer = child.answer()
        assert isinstance(answer, list)
        claimed += answer
    assert sorted(claimed) == list(range(MOST_PORTIONS))


def test_too_many_portions() -> None:
    with pytest.raises(ValueError, match="too many"):
        Portions(MOST_PORTIONS + 1)


def test_sigchld_ignored() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert answer_of(lambda: [1]) == [1]
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_not_beside_other_threads() -> None:
    gate = threading.Event()
    thread = threading.Thread(target=gate.wait)
    thread.start()
    try:
        assert not can_fork()
    finally:
        gate.set()
        thread.join()
    assert can_fork()


def test_no_descriptor_is_left() -> None:
    before = len(os.listdir("/proc/self/fd"))
    answer_of(lambda: 1)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_child_that_takes_too_long_is_ended() -> None:
    quick, slow = fork(lambda: [1]), fork(lambda: time.sleep(3600))
    assert quick is not None
    assert slow is not None
    assert quick.answer_within(60) == [1]
    assert slow.answer_within(0.05) is None


def test_portions_by_weight_hold_everything_once_in_order() -> None:
    weights = {f"d{n}": n % 7 + 1 for n in range(3000)}
    portions = by_weight(weights, 50)
    assert [key for portion in portions for key in portion] == list(weights)
    assert len(portions) <= 200
    assert all(sum(weights[key] for key in portion) >= 50 for portion in portions[:-1])
    assert by_weight({}, 50) == [[]]


def test_a_child_without_its_parent_takes_no_more() -> None:
    """It would keep the lock that it inherited for as long as there is work."""
    reader, writer = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            portions, own_pid = Portions(100), os.getpid()
            is_begun, say = os.pipe()

            def work() -> None:
                for _ in portions.claims():
                    os.write(writer, b"x")
                    os.write(say, b"begun")
                    while os.getppid() == own_pid:
                        time.sleep(0.001)

            fork(work)
            os.read(is_begun, 1)
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(parent, 0)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b"x"
