"""Whether a file in an upper was copied up from the file at the same path below.

overlayfs notes in `origin` the handle of what it copied. Only if that is the same file, it was
written in place. ``mv a b`` leaves a `b` whose origin is `a`, and the real `b` must be replaced,
not overwritten: it may have other names outside the workspace.
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


def is_copy_of(origin: bytes, directory: int, name: bytes) -> bool:
    """Whether it is a copy of `name` in that directory; False also if the system cannot say."""
    if len(origin) <= _HEADER_BYTES or origin[1] != _MAGIC:
        return False
    call = _name_to_handle_at()
    handle = call(directory, name) if call is not None else None
    if handle is None:
        return False
    kind, raw = handle
    return kind & 0xFF == origin[4] and origin[_HEADER_BYTES:] == raw


@cache
def _name_to_handle_at() -> Callable[[int, bytes], tuple[int, bytes] | None] | None:
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "name_to_handle_at", None)
    if call is None:
        return None
    mount = ctypes.byref(ctypes.c_int())
    # struct file_handle: its size, its type, then that many bytes.
    handle_type = ctypes.c_char * (_SIZES.size + _HANDLE_BYTES)

    def named(directory: int, name: bytes) -> tuple[int, bytes] | None:
        handle = handle_type()
        _SIZES.pack_into(handle, 0, _HANDLE_BYTES, 0)
        if call(directory, name, handle, mount, 0) != 0:  # 0: a symlink is not followed
            return None
        size, kind = _SIZES.unpack_from(handle)
        return kind, handle.raw[_SIZES.size : _SIZES.size + size]

    return named
