"""Ids that sort by the time they were made: ``c-1jg2k3m4n7x2w``, ``spn_…``."""

from __future__ import annotations

import os
from _thread import allocate_lock
from typing import Literal

from substrate.system import clock

Prefix = Literal["c", "s", "spn", "wld"]

_SEPARATOR = {"c": "-", "s": "-", "spn": "_", "wld": "_"}
#: Crockford's base 32, lower case: no i, l, o, u, and ASCII order is numeric order.
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME_DIGITS = 9
_RANDOM_DIGITS = 4
_RANDOM_LIMIT = 32**_RANDOM_DIGITS

_lock = allocate_lock()
#: (process, milliseconds, random part) of the newest id. The process is kept because a forked
#: child that counted on from its parent's last id would make the very ids its parent makes.
_last = (0, -1, 0)


def new_id(prefix: Prefix) -> str:
    """A fresh id, greater than every earlier one of this process even if the clock runs back."""
    with _lock:
        milliseconds, random = _next()
    return (
        prefix
        + _SEPARATOR[prefix]
        + _base32(milliseconds, _TIME_DIGITS)
        + _base32(random, _RANDOM_DIGITS)
    )


def _next() -> tuple[int, int]:
    global _last
    pid, last_ms, last_random = _last
    here = os.getpid()
    milliseconds = max(0, clock.now_ns() // 1_000_000)
    # Half the range is left above the first id of a millisecond, so that counting on rarely
    # runs over.
    random = int.from_bytes(os.urandom(4), "big") % (_RANDOM_LIMIT // 2)
    if milliseconds <= last_ms:
        milliseconds = last_ms
        if pid == here:
            random = last_random + 1
            if random == _RANDOM_LIMIT:
                milliseconds, random = milliseconds + 1, 0
    _last = (here, milliseconds, random)
    return milliseconds, random


def _base32(number: int, width: int) -> str:
    out = []
    for _ in range(width):
        number, digit = divmod(number, 32)
        out.append(_DIGITS[digit])
    return "".join(reversed(out))
