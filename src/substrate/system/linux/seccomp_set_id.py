"""A filter that prevents setting the set-user-id or set-group-id bit on any file.

A world that may write to a shared place (a temporary directory) could otherwise leave a program
there that runs with its maker's rights: root's, if root made it. No mount flag helps afterwards,
and a cleanup afterwards is open to races. The bits are in the calls' own arguments, so the filter
is exact. Calls that pass them in memory (openat2, io_uring) fail as if the kernel did not have
them, and programs fall back.
"""

from __future__ import annotations

import errno
import os
import struct
from typing import NamedTuple

_SET_ID = 0o6000
#: O_CREAT and the bit O_TMPFILE adds: without them, the mode argument of an open is undefined.
_MAKES_A_FILE = 0o100 | 0o20000000
_RET_ALLOW = 0x7FFF0000
_REFUSED = 0x00050000 | errno.EPERM
_NOT_THERE = 0x00050000 | errno.ENOSYS
_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH = 0, 4
_X32_BIT = 0x40000000

Row = tuple[int, int, int, int]


class _Calls(NamedTuple):
    """The system call numbers of one architecture."""

    arch: int
    #: (call number, index of the mode argument)
    modes: tuple[tuple[int, int], ...]
    #: (call number, index of the flags, index of the mode)
    opens: tuple[tuple[int, int, int], ...]


#: openat2; io_uring_setup, _enter, _register: the same everywhere (so is fchmodat2, 452).
_IN_MEMORY = (437, 425, 426, 427)
_X86_64 = _Calls(
    0xC000003E, ((90, 1), (91, 1), (268, 2), (452, 2), (85, 1), (133, 1), (259, 2)),
    ((2, 1, 2), (257, 2, 3)),
)  # fmt: skip
_I386 = _Calls(
    0x40000003, ((15, 1), (94, 1), (306, 2), (452, 2), (8, 1), (14, 1), (297, 2)),
    ((5, 1, 2), (295, 2, 3)),
)  # fmt: skip
_AARCH64 = _Calls(0xC00000B7, ((52, 1), (53, 2), (452, 2), (33, 2)), ((56, 2, 3),))
_MACHINES = {"x86_64": (_X86_64, _I386), "aarch64": (_AARCH64,)}


def is_supported() -> bool:
    return os.uname().machine in _MACHINES


def build() -> bytes:
    """The BPF program for this machine; calls of any other architecture are refused."""
    blocks = [_block(one) for one in _MACHINES[os.uname().machine]]
    rows: list[Row] = [(_LD, 0, 0, _ARCH)]
    for one, block in zip(_MACHINES[os.uname().machine], blocks, strict=True):
        rows += [(_JEQ, 0, len(block), one.arch), *block]
    rows.append((_RET, 0, 0, _NOT_THERE))
    return b"".join(struct.pack("HBBI", *row) for row in rows)


def _block(numbers: _Calls) -> list[Row]:
    rows: list[Row] = [(_LD, 0, 0, _NUMBER)]
    if numbers is _X86_64:
        rows += [(_JGE, 0, 1, _X32_BIT), (_RET, 0, 0, _NOT_THERE)]
    for number in _IN_MEMORY:
        rows += [(_JEQ, 0, 1, number), (_RET, 0, 0, _NOT_THERE)]
    for number, mode in numbers.modes:
        rows += [(_JEQ, 0, 4, number), *_judge(mode)]
    for number, flags, mode in numbers.opens:
        rows += [
            (_JEQ, 0, 6, number),
            (_LD, 0, 0, _argument(flags)),
            (_JSET, 0, 3, _MAKES_A_FILE),
            *_judge(mode),
        ]
    return [*rows, (_RET, 0, 0, _RET_ALLOW)]


def _judge(mode: int) -> list[Row]:
    return [
        (_LD, 0, 0, _argument(mode)),
        (_JSET, 0, 1, _SET_ID),
        (_RET, 0, 0, _REFUSED),
        (_RET, 0, 0, _RET_ALLOW),
    ]


def _argument(which: int) -> int:
    """The offset of the argument's lower half in struct seccomp_data (little-endian)."""
    return 16 + 8 * which
