"""What the shell says may be torn by Ctrl-C, and what we answer may be lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from substrate.shell.channel import Channel, Message

pytestmark = pytest.mark.needs("linux")


class Ends:
    def __init__(self, directory: Path) -> None:
        self.channel = Channel(directory)
        self._said = os.open(directory / "said", os.O_RDWR | os.O_NONBLOCK)
        self._answer = os.open(directory / "answer", os.O_RDWR | os.O_NONBLOCK)

    def say(self, *fields: str, cut: int | None = None) -> None:
        data = b"\0\1" + b"".join(field.encode() + b"\0" for field in fields)
        os.write(self._said, data[:cut])

    def next(self) -> Message | None:
        return self.channel.next(lambda: True, dict)

    def answers(self) -> bytes:
        try:
            return os.read(self._answer, 4096)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        self.channel.close()
        os.close(self._said)
        os.close(self._answer)


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    made = Ends(tmp_path)
    yield made
    made.close()


BEGIN = ("begin", "t1", "12", "echo \1end", "/home", "t1")
END = ("end", "t2", "12", "0", "t2")


def test_messages_come_whole_and_in_order(ends: Ends) -> None:
    ends.say(*BEGIN)
    ends.say(*END)
    assert ends.next() == Message("begin", b"t1", (b"12", b"echo \1end", b"/home"))
    assert ends.next() == Message("end", b"t2", (b"12", b"0"))
    assert ends.next() is None


@pytest.mark.parametrize("cut", range(1, 32))
def test_a_torn_message_hides_no_later_one(ends: Ends, cut: int) -> None:
    ends.say(*BEGIN, cut=cut)
    ends.say(*END)
    first = ends.next()
    if first is None:  # only once it is said again
        ends.say(*END)
        first = ends.next()
    assert first == Message("end", b"t2", (b"12", b"0"))


def test_an_answer_is_given_again_and_the_question_taken_once(ends: Ends) -> None:
    ends.say(*END)
    message = ends.next()
    assert message is not None
    ends.say(*END)
    assert ends.next() is None
    assert ends.answers() == b""
    ends.channel.answer(message, "ok")
    assert ends.answers() == b"t2 ok\n"
    ends.say(*END)
    assert ends.next() is None
    assert ends.answers() == b"t2 ok\n"


def test_noise_is_skipped(ends: Ends) -> None:
    ends.say("nonsense", "", "x")
    ends.say(*END)
    assert ends.next() is not None


@pytest.mark.parametrize("said", ["abc", "-5", "1" * 5000, "9" * 20, "²"])
def test_numbers_that_are_none_are_no_message(ends: Ends, said: str) -> None:
    """Anything in the shell's world can write here: it must not end the shell."""
    ends.say("end", "t0", "1", said, "t0")
    ends.say("begin", "t0", said, "ls", "/", "t0")
    ends.say(*END)
    message = ends.next()
    assert message is not None and message.token == b"t2"
    assert (message.number, message.status) == (12, 0)


@pytest.mark.parametrize("flood", [b"x", b"\0", b"\1end\0"])
def test_a_writer_that_writes_without_end_is_not_listened_to_for_ever(
    tmp_path: Path, ends: Ends, flood: bytes
) -> None:
    """The end of the shell is still noticed, and memory is bounded."""
    asked = 0

    def is_over() -> bool:
        nonlocal asked
        asked += 1
        return asked > 1

    yes = subprocess.Popen(
        [sys.executable, "-c", f"while True: out.write({flood!r} * 65536)".join(
            ["import sys\nout = open(sys.argv[1], 'wb', 0)\n", "\n"]
        ), str(tmp_path / "said")],
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        assert ends.channel.next(is_over, dict) is None
    finally:
        yes.kill()
        yes.wait()
    kept = ends.channel._rest + b"".join(ends.channel._fields)
    assert len(kept) < 8 * 1024 * 1024
