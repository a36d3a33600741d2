"""A seccomp filter that refuses system calls for a process and everything it starts.

It lists what is refused, not what is allowed: programs use calls that are unknown here, and
namespaces, mounts and capabilities do the isolation. The filter closes what those leave open: parts
of the kernel that have been exploited before, and new namespaces.
"""

from __future__ import annotations

import errno
import os
import struct

from substrate.system.linux import syscalls

_SET_MODE_FILTER = 1
_RET_ALLOW = 0x7FFF0000
_RET_ERRNO = 0x00050000
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000
_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARG0, _ARG1 = 0, 4, 16, 24

#: Refused with EPERM: name -> (x86-64, the generic table); None where the call does not exist.
REFUSED: dict[str, tuple[int, int | None]] = {
    # mounts, and files by handle
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "move_mount": (429, 429),
    "open_tree": (428, 428), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "open_by_handle_at": (304, 265),
    "chroot": (161, 51),
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "kcmp": (312, 272), "pidfd_getfd": (438, 438),
    # other namespaces
    "unshare": (272, 97), "setns": (308, 268),
    # keys, and parts of the kernel with a history of holes
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "modify_ldt": (154, None),
    # the machine
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "clock_adjtime": (305, 266), "iopl": (172, None), "ioperm": (173, None), "syslog": (103, 116),
    "sethostname": (170, 161), "setdomainname": (171, 162), "vhangup": (153, 58),
}  # fmt: skip
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_IOCTL = (16, 29)
#: Every kind of namespace that clone(2) can make.
_NEW_NAMESPACES = 0x7E020000 | 0x00000080
#: Insert characters into a terminal's input, that is, into the shell that started us.
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C


def is_supported() -> bool:
    return os.uname().machine in _ARCHITECTURES


def refuse_dangerous_calls() -> None:
    """Install the filter. Needs `privileges.forbid_new_privileges` first."""
    install(build())


def install(program: bytes) -> None:
    """Add a filter to those already installed. Needs `privileges.forbid_new_privileges` first."""
    import ctypes

    buffer = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(
        struct.pack("HxxxxxxQ", len(program) // 8, syscalls.address(buffer)), 16
    )
    syscalls.syscall("seccomp", _SET_MODE_FILTER, 0, syscalls.address(header))


def build() -> bytes:
    """The BPF program for this machine."""
    machine = os.uname().machine
    column = 0 if machine == "x86_64" else 1
    refused = [row[column] for row in REFUSED.values()]
    rows: list[tuple[int, int, int, int]] = [
        (_LD, 0, 0, _ARCH),
        # 32-bit calls have other numbers: refuse all of them.
        (_JEQ, 1, 0, _ARCHITECTURES[machine]),
        (_RET, 0, 0, _RET_ERRNO | errno.ENOSYS),
        (_LD, 0, 0, _NUMBER),
    ]
    if machine == "x86_64":
        rows += [(_JGE, 0, 1, _X32_BIT), (_RET, 0, 0, _RET_ERRNO | errno.ENOSYS)]
    for number in refused:
        if number is not None:
            rows += [(_JEQ, 0, 1, number), (_RET, 0, 0, _RET_ERRNO | errno.EPERM)]
    # clone3's flags are in memory, where no filter can read them: libraries fall back to clone.
    rows += [(_JEQ, 0, 1, _CLONE3[column]), (_RET, 0, 0, _RET_ERRNO | errno.ENOSYS)]
    rows += [
        (_JEQ, 0, 4, _CLONE[column]),
        (_LD, 0, 0, _ARG0),
        (_JSET, 0, 1, _NEW_NAMESPACES),
        (_RET, 0, 0, _RET_ERRNO | errno.EPERM),
        (_RET, 0, 0, _RET_ALLOW),
        (_JEQ, 0, 4, _IOCTL[column]),
        (_LD, 0, 0, _ARG1),
        (_JEQ, 1, 0, _TIOCSTI),
        (_JEQ, 0, 1, _TIOCLINUX),
        (_RET, 0, 0, _RET_ERRNO | errno.EPERM),
        (_RET, 0, 0, _RET_ALLOW),
    ]
    return b"".join(struct.pack("HBBI", *row) for row in rows)
