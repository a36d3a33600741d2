"""Whether a file in an upper was copied up from the file that stands at the same path below.

overlayfs notes in `origin` the handle of what it copied. Only the same file was written to in
place; ``mv a b`` leaves a `b` whose origin is `a`, and the real `b` must be replaced, not
overwritten: it may have other names outside the workspace.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache

#: version, magic, length, flags, type, uuid (struct ovl_fb of the kernel).
_HEADER_BYTES = 5 + 16
_MAGIC = 0xFB
_HANDLE_BYTES = 128
_SIZES = struct.Struct("=Ii")
_AT_FDCWD = -100


def is_copy_of(origin: bytes, path: bytes) -> bool:
    """False also where the system cannot say."""
    if len(origin) <= _HEADER_BYTES or origin[1] != _MAGIC:
        return False
    handle = _handle(path)
    if handle is None:
        return False
    kind, raw = handle
    return kind & 0xFF == origin[4] and origin[_HEADER_BYTES:] == raw


def _handle(path: bytes) -> tuple[int, bytes] | None:
    call = _name_to_handle_at()
    if call is None:
        return None
    # struct file_handle: its size, its type, then as many bytes as there are.
    handle = bytearray(_SIZES.pack(_HANDLE_BYTES, 0) + bytes(_HANDLE_BYTES))
    if call(path, handle) != 0:
        return None
    size, kind = _SIZES.unpack_from(handle)
    return kind, bytes(handle[_SIZES.size : _SIZES.size + size])


@cache
def _name_to_handle_at() -> Callable[[bytes, bytearray], int] | None:
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "name_to_handle_at", None)
    if call is None:
        return None
    mount = ctypes.c_int()
    raw = ctypes.c_char * (_SIZES.size + _HANDLE_BYTES)

    def named(path: bytes, handle: bytearray) -> int:
        return int(call(_AT_FDCWD, path, raw.from_buffer(handle), ctypes.byref(mount), 0))

    return named
