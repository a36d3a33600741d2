"""What goes over the broker's socket, and what the broker keeps in mind of it."""

from __future__ import annotations

import socket
import threading

import pytest

from substrate.broker.nested_commands import Begun, State
from substrate.protocol import broker_wire


def pair() -> tuple[socket.socket, socket.socket]:
    left, right = socket.socketpair()
    for one in (left, right):
        one.settimeout(10)
    return left, right


def test_a_question_comes_through_whole() -> None:
    left, right = pair()
    with left, right:
        asked = broker_wire.Question(broker_wire.ASK, [b"log", b"\xff\n", b""], b"/a b", b"on", 132)
        broker_wire.send_question(left, asked)
        heard = broker_wire.receive_question(right)
        assert (heard.kind, heard.words, heard.cwd) == (asked.kind, asked.words, asked.cwd)
        assert (heard.flags, heard.columns) == (b"on", 132)


@pytest.mark.parametrize(
    "body",
    [b"", b"ask", b"ask\0", b"ask\0/\0\0", b"ask\0/\0\0x\0", b"other\0/\0\08\0", b"ask\0a\0\08\0"],
)
def test_what_is_no_question_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError):
        broker_wire.decode(body)


def test_a_length_beyond_the_bound_is_not_waited_for() -> None:
    left, right = pair()
    with left, right:
        left.sendall(b"\xff\xff\xff\xff")
        with pytest.raises(ValueError, match="too long"):
            broker_wire.receive_question(right)
        long = broker_wire.Question(broker_wire.ASK, [b"x" * broker_wire.MOST_BYTES], b"/")
        with pytest.raises(ValueError, match="too long"):
            broker_wire.send_question(left, long)


def test_a_long_answer_comes_in_frames() -> None:
    left, right = pair()
    data = bytes(range(256)) * 600

    def answer() -> None:
        broker_wire.send_frame(left, broker_wire.OUT, data)
        broker_wire.send_frame(left, broker_wire.EXITED, b"0")

    sender = threading.Thread(target=answer)
    with left, right:
        sender.start()
        got = b""
        while True:
            kind, payload = broker_wire.receive_frame(right)
            if kind == broker_wire.EXITED:
                break
            got += payload
        sender.join()
        assert got == data


def test_a_closed_connection_is_an_end_not_an_answer() -> None:
    left, right = pair()
    with right:
        left.sendall(broker_wire.OUT + (5).to_bytes(4, "big") + b"ab")
        left.close()
        with pytest.raises(EOFError):
            broker_wire.receive_frame(right)


def test_what_has_ended_is_no_longer_open_but_still_counted() -> None:
    state = State()
    state.add(Begun("spn_1", "spn_0", "/", (b"a", b"bc"), b"", 0))
    state.add(Begun("spn_2", "spn_0", "/", (), b"line", 0))
    state.end("spn_1")
    state.end("spn_1")
    assert list(state.begun) == ["spn_2"]
    assert (state.spans, state.text_bytes) == (["spn_1", "spn_2"], 7)
