"""Git's delta format: rebuild an object from its base and a list of copy and insert steps."""

from __future__ import annotations


class BadDeltaError(ValueError):
    """The delta does not fit its base, or is malformed."""


def apply_delta(base: bytes, delta: bytes) -> bytes:
    """The object that `delta` describes; `BadDeltaError` if anything is wrong."""
    try:
        return _apply(base, delta)
    except IndexError as error:
        raise BadDeltaError("the delta ends too early") from error


def _apply(base: bytes, delta: bytes) -> bytes:
    base_size, at = _size(delta, 0)
    result_size, at = _size(delta, at)
    if base_size != len(base):
        raise BadDeltaError("the delta was made for another base")
    parts: list[bytes] = []
    produced = 0
    while at < len(delta):
        step = delta[at]
        at += 1
        if step & 0x80:
            offset, length, at = _copy_step(delta, step, at)
            if offset + length > base_size:
                raise BadDeltaError("the delta copies from beyond its base")
            parts.append(base[offset : offset + length])
        elif step:
            length = step
            if at + length > len(delta):
                raise BadDeltaError("the delta ends too early")
            parts.append(delta[at : at + length])
            at += length
        else:
            raise BadDeltaError("the delta holds an unknown step")
        produced += length
        if produced > result_size:
            break
    if produced != result_size:
        raise BadDeltaError("the delta's result has the wrong size")
    return b"".join(parts)


def _size(delta: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = delta[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at
        if shift > 63:
            raise BadDeltaError("a size in the delta is too long")


def _copy_step(delta: bytes, step: int, at: int) -> tuple[int, int, int]:
    """A copy step's offset and length: bits 0-3 and 4-6 of `step` say which bytes follow."""
    offset = length = 0
    for bit in range(4):
        if step & (1 << bit):
            offset |= delta[at] << (8 * bit)
            at += 1
    for bit in range(3):
        if step & (0x10 << bit):
            length |= delta[at] << (8 * bit)
            at += 1
    return offset, length or 0x10000, at
