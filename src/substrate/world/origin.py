"""Whether a file in an upper was copied up from the file that stands at the same path below.

overlayfs notes in `origin` the handle of what it copied. Only the same file was written to in
place; ``mv a b`` leaves a `b` whose origin is `a`, and the real `b` must be replaced, not
overwritten: it may have other names outside the workspace.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

#: version, magic, length, flags, type, uuid (struct ovl_fb of the kernel).
_HEADER_BYTES = 5 + 16
_MAGIC = 0xFB
_HANDLE_BYTES = 128


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
    import ctypes

    class Handle(ctypes.Structure):
        _fields_ = (
            ("size", ctypes.c_uint),
            ("kind", ctypes.c_int),
            ("raw", ctypes.c_ubyte * _HANDLE_BYTES),
        )

    handle = Handle(_HANDLE_BYTES, 0)
    mount = ctypes.c_int()
    if call(-100, os.fspath(path), ctypes.byref(handle), ctypes.byref(mount), 0) != 0:
        return None
    return handle.kind, bytes(handle.raw[: handle.size])


@cache
def _name_to_handle_at() -> Any:
    import ctypes

    return getattr(ctypes.CDLL(None, use_errno=True), "name_to_handle_at", None)
