"""Ids that sort by creation time: ``c-1jg2k3m4n7x2w``, ``spn_…``."""

from __future__ import annotations

import os
from _thread import allocate_lock
from typing import Literal

from substrate.system import clock

Prefix = Literal["c", "p", "s", "spn", "try", "wld"]

_SEPARATOR = {"c": "-", "p": "-", "s": "-", "spn": "_", "try": "_", "wld": "_"}
#: Crockford's base 32, lower case: no i, l, o, u, and ASCII order is numeric order.
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME_DIGITS = 9
_RANDOM_DIGITS = 4
_RANDOM_LIMIT = 32**_RANDOM_DIGITS


class _Sequence:
    """The newest id of this process: its process id, milliseconds and random part.

    The process id is kept because a forked child that counted on from its parent's last id would
    make the same ids as its parent.
    """

    __slots__ = ("last", "lock")

    def __init__(self) -> None:
        self.last = (0, -1, 0)
        self.lock = allocate_lock()


_sequence = _Sequence()


def new_id(prefix: Prefix) -> str:
    """A new id, greater than every earlier one of this process even if the clock runs backwards."""
    with _sequence.lock:
        milliseconds, random = _next()
    return (
        prefix
        + _SEPARATOR[prefix]
        + _base32(milliseconds, _TIME_DIGITS)
        + _base32(random, _RANDOM_DIGITS)
    )


def _next() -> tuple[int, int]:
    pid, last_ms, last_random = _sequence.last
    here = os.getpid()
    milliseconds = max(0, clock.now_ns() // 1_000_000)
    # The first id of a millisecond uses the lower half of the range, so counting up rarely
    # overflows.
    random = int.from_bytes(os.urandom(4), "big") % (_RANDOM_LIMIT // 2)
    if milliseconds <= last_ms:
        milliseconds = last_ms
        if pid == here:
            random = last_random + 1
            if random == _RANDOM_LIMIT:
                milliseconds, random = milliseconds + 1, 0
    _sequence.last = (here, milliseconds, random)
    return milliseconds, random


def _base32(number: int, width: int) -> str:
    out = []
    for _ in range(width):
        number, digit = divmod(number, 32)
        out.append(_DIGITS[digit])
    return "".join(reversed(out))
