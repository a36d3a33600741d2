"""Canonical JSON, so that equal manifests have equal bytes.

Keys sorted by code point, no white space, UTF-8, no escape that JSON does not require. Integers
are exact at any size. A float is written with the fewest digits that read back as the same
number, and as an integer if it is one below 2**53: `0`, `0.0` and `0e5` are the same parameter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from json.encoder import encode_basestring

#: No real parameter is nested deeper.
MAX_DEPTH = 200
_EXACT = 2**53


def canonical_bytes(value: object) -> bytes:
    """`value` as canonical JSON; ``ValueError`` for a value that JSON cannot represent."""
    parts: list[str] = []
    _write(value, parts.append, 0)
    try:
        return "".join(parts).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("text with half a character (a lone surrogate) is not UTF-8") from None


def _write(value: object, out: Callable[[str], None], depth: int) -> None:
    if isinstance(value, str):
        out(encode_basestring(value))
    elif value is None or isinstance(value, bool):
        out("null" if value is None else "true" if value else "false")
    elif isinstance(value, int):
        out(_digits(value))
    elif isinstance(value, float):
        out(_float(value))
    elif depth >= MAX_DEPTH:
        raise ValueError(f"nested more than {MAX_DEPTH} deep")
    elif isinstance(value, Mapping):
        separator = "{"
        for key in sorted(value):
            out(f"{separator}{encode_basestring(key)}:")
            _write(value[key], out, depth + 1)
            separator = ","
        out("}" if separator == "," else "{}")
    elif isinstance(value, (list, tuple)):
        separator = "["
        for item in value:
            out(separator)
            _write(item, out, depth + 1)
            separator = ","
        out("]" if separator == "," else "[]")
    else:
        raise ValueError(f"{type(value).__name__} is not JSON")


def _digits(value: int) -> str:
    try:
        return int.__repr__(value)
    except ValueError:  # Python's limit against slow conversions
        raise ValueError("an integer of more than 4,300 digits") from None


def _float(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError("a number that is too large for a float, or none at all")
    if value.is_integer() and abs(value) < _EXACT:
        return str(int(value))
    mantissa, e, exponent = repr(value).partition("e")
    return f"{mantissa}e{int(exponent):+d}" if e else mantissa
