"""seccomp user notification: a supervisor sees a process's network calls, then lets them go on.

This observes; it does not enforce. Between our read of a call's arguments and the kernel's, another
thread of the program may change them (the manual says so, and it is easy to do). A network
namespace enforces; this module reports what was asked for.

`fcntl` and `ctypes` are imported only on use, so that this module can be imported on other systems.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import NamedTuple

from substrate.errors import MissingDependencyError
from substrate.system.linux.syscalls import libc

_SET_MODE_FILTER = 1
_FLAG_SPEC_ALLOW = 4
_FLAG_NEW_LISTENER = 8
_FLAG_WAIT_KILLABLE_RECV = 32
_PR_SET_NO_NEW_PRIVS = 38

_RET_ALLOW = 0x7FFF0000
_RET_NOTIFY = 0x7FC00000
_RET_ENOSYS = 0x00050000 | errno.ENOSYS
_RET_NO_FAMILY = 0x00050000 | errno.EAFNOSUPPORT

_IOCTL_RECV = 0xC0502100
_IOCTL_SEND = 0xC0182101
_IOCTL_ID_VALID = 0x40082102
_IOCTL_ADDFD = 0x40182103
_IOCTL_SET_FLAGS = 0x40082104
_SYNC_WAKE_UP = 1
_CONTINUE = 1
_ADDFD_SETFD = 1

X86_64 = 0xC000003E
I386 = 0x40000003
AARCH64 = 0xC00000B7
ARM = 0x40000028

#: The calls that name a destination, by architecture. On i386, ``socketcall`` covers them all.
#: ``getsockname`` is included because a resolver that only wants a route ends with it.
CALLS: dict[int, dict[str, int]] = {
    X86_64: {
        "connect": 42, "sendto": 44, "sendmsg": 46, "getsockname": 51, "sendmmsg": 307,
    },
    I386: {
        "connect": 362, "sendto": 369, "sendmsg": 370, "getsockname": 367, "sendmmsg": 345,
        "socketcall": 102,
    },
    AARCH64: {
        "connect": 203, "sendto": 206, "sendmsg": 211, "getsockname": 204, "sendmmsg": 269,
    },
    ARM: {
        "connect": 283, "sendto": 290, "sendmsg": 296, "getsockname": 286, "sendmmsg": 374,
    },
}  # fmt: skip
#: Makes a socket; the first argument is the family. i386's ``socketcall`` has it as number 1.
_SOCKET = {X86_64: 41, I386: 359, AARCH64: 198, ARM: 281}
_SOCKETCALL_SOCKET = 1
_AF_VSOCK = 40
#: Calls that change files, reported on request; those of 32-bit programs are not reported.
FILE_CALLS: dict[int, dict[str, int]] = {
    X86_64: {
        "open": 2, "creat": 85, "openat": 257, "openat2": 437, "truncate": 76, "mkdir": 83,
        "mkdirat": 258, "rmdir": 84, "unlink": 87, "unlinkat": 263, "rename": 82, "renameat": 264,
        "renameat2": 316, "link": 86, "linkat": 265, "symlink": 88, "symlinkat": 266,
        "mknod": 133, "mknodat": 259, "chmod": 90, "fchmodat": 268, "fchmodat2": 452, "chown": 92,
        "lchown": 94, "fchownat": 260, "utimensat": 280, "utime": 132, "utimes": 235,
        "setxattr": 188, "lsetxattr": 189, "removexattr": 197, "lremovexattr": 198,
    },
    AARCH64: {
        "openat": 56, "openat2": 437, "truncate": 45, "mkdirat": 34, "unlinkat": 35,
        "renameat": 38, "renameat2": 276, "linkat": 37, "symlinkat": 36,
        "mknodat": 33, "fchmodat": 53, "fchmodat2": 452, "fchownat": 54, "utimensat": 88,
        "setxattr": 5, "lsetxattr": 6, "removexattr": 14, "lremovexattr": 15,
    },
}  # fmt: skip
#: ``open`` counts only with one of these flags: write, read and write, create, truncate.
_OPEN_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
#: Which argument holds the flags.
_OPEN_FLAGS = {"open": 1, "openat": 2}
#: Machine name from `uname` -> the architectures of its native and its 32-bit programs.
_MACHINES = {"x86_64": (X86_64, I386), "aarch64": (AARCH64, ARM)}
#: The same number everywhere. A ring could connect without a call that the filter sees.
_IO_URING_SETUP = 425
_SECCOMP_CALL = {"x86_64": 317, "aarch64": 277}
_PIDFD_GETFD = 438
_X32_BIT = 0x40000000
#: i386's ``socketcall`` numbers, and the calls they mean.
SOCKETCALLS = {3: "connect", 6: "getsockname", 11: "sendto", 16: "sendmsg", 20: "sendmmsg"}

_ARG0, _ARG_BYTES = 16, 8
_LD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06


class Passing(NamedTuple):
    """The one ``sendmsg`` that is not reported: the one that hands the listener over.

    Nothing is listening yet at that moment. The filter recognizes it by its descriptor and by an
    address in the memory of a process that is about to execute another program; that program cannot
    learn the address.
    """

    descriptor: int
    message_address: int


class Notification(NamedTuple):
    """One call that waits for the supervisor's answer."""

    id: int
    #: The thread's id, as seen from here; 0 if it is not visible.
    tid: int
    arch: int
    number: int
    args: tuple[int, ...]


def machine_supported() -> bool:
    return os.uname().machine in _MACHINES


def build_filter(passing: Passing, *, no_vsock: bool = False, writes: bool = False) -> bytes:
    """The BPF program for this machine.

    `no_vsock`: refuse sockets to a hypervisor, because no network namespace isolates those.
    `writes`: also report calls that change files.
    """
    native, compat = _MACHINES[os.uname().machine]
    code = _Assembler()
    code.load(4)
    code.jump_equal(native, "native")
    code.jump_equal(compat, "compat")
    code.jump("allow")
    for arch, label in ((native, "native"), (compat, "compat")):
        told = writes and arch == native
        _add_calls(code, arch, label, passing, no_vsock=no_vsock, writes=told)
    code.label("allow").returns(_RET_ALLOW)
    code.label("notify").returns(_RET_NOTIFY)
    code.label("enosys").returns(_RET_ENOSYS)
    code.label("no-family").returns(_RET_NO_FAMILY)
    return code.program()


def _add_calls(
    code: _Assembler, arch: int, label: str, passing: Passing, *, no_vsock: bool, writes: bool
) -> None:
    calls = CALLS[arch]
    code.label(label).load(0)
    if arch == X86_64:
        code.jump_at_least(_X32_BIT, "enosys")  # x32: a third ABI, which is not in use
    for name in ("connect", "getsockname", "sendmmsg"):
        code.jump_equal(calls[name], "notify")
    code.jump_equal(_IO_URING_SETUP, "enosys")
    if no_vsock:
        code.jump_equal(_SOCKET[arch], label + "-socket")
    code.jump_equal(calls["sendto"], label + "-sendto")
    code.jump_equal(calls["sendmsg"], label + "-sendmsg")
    if "socketcall" in calls:
        code.jump_equal(calls["socketcall"], label + "-socketcall")
    if writes:
        for name, number in FILE_CALLS[arch].items():
            is_filtered = name in (*_OPEN_FLAGS, "utimensat")
            code.jump_equal(number, f"{label}-{name}" if is_filtered else "notify")
    code.jump("allow")
    if writes:  # without a path it sets the times of an open file: `cp -p` does it for each
        code.label(label + "-utimensat").load(_ARG0 + _ARG_BYTES)
        code.jump_unless_equal(0, "notify").load(_ARG0 + _ARG_BYTES + 4)
        code.jump_unless_equal(0, "notify").jump("allow")
    for name in _OPEN_FLAGS if writes else ():
        if name in FILE_CALLS[arch]:
            code.label(f"{label}-{name}").load(_ARG0 + _OPEN_FLAGS[name] * _ARG_BYTES)
            code.jump_any_bit(_OPEN_WRITES, "notify").jump("allow")
    # send() is sendto() without an address: allow it, because every connection uses it all the
    # time.
    code.label(label + "-sendto").load(_ARG0 + 4 * _ARG_BYTES)
    code.jump_unless_equal(0, "notify").load(_ARG0 + 4 * _ARG_BYTES + 4)
    code.jump_unless_equal(0, "notify").jump("allow")
    code.label(label + "-sendmsg").load(_ARG0).jump_unless_equal(passing.descriptor, "notify")
    code.load(_ARG0 + _ARG_BYTES)
    code.jump_unless_equal(passing.message_address & 0xFFFFFFFF, "notify")
    code.load(_ARG0 + _ARG_BYTES + 4)
    code.jump_unless_equal(passing.message_address >> 32, "notify").jump("allow")
    if no_vsock:
        code.label(label + "-socket").load(_ARG0).jump_equal(_AF_VSOCK, "no-family").jump("allow")
    if "socketcall" in calls:
        code.label(label + "-socketcall").load(_ARG0)
        if no_vsock:  # the family is in memory, where no filter can read it
            code.jump_equal(_SOCKETCALL_SOCKET, "no-family")
        for number in SOCKETCALLS:
            code.jump_equal(number, "notify")
        code.jump("allow")


class _Assembler:
    """Assembles BPF with named labels; every jump goes forward."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, int, str, bool]] = []
        self._places: dict[str, int] = {}

    def label(self, name: str) -> _Assembler:
        self._places[name] = len(self._steps)
        return self

    def load(self, offset: int) -> _Assembler:
        self._steps.append((_LD, offset, "", True))
        return self

    def returns(self, value: int) -> _Assembler:
        self._steps.append((_RET, value, "", True))
        return self

    def jump_equal(self, value: int, to: str) -> _Assembler:
        self._steps.append((_JEQ, value, to, True))
        return self

    def jump_unless_equal(self, value: int, to: str) -> _Assembler:
        self._steps.append((_JEQ, value, to, False))
        return self

    def jump_any_bit(self, bits: int, to: str) -> _Assembler:
        self._steps.append((_JSET, bits, to, True))
        return self

    def jump_at_least(self, value: int, to: str) -> _Assembler:
        self._steps.append((_JGE, value, to, True))
        return self

    def jump(self, to: str) -> _Assembler:
        # BPF_JA jumps unconditionally.
        self._steps.append((0x05, 0, to, True))
        return self

    def program(self) -> bytes:
        out = b""
        for index, (code, value, to, when) in enumerate(self._steps):
            far = self._places[to] - index - 1 if to else 0
            if code == 0x05:
                out += struct.pack("=HBBI", code, 0, 0, far)
            else:
                out += struct.pack("=HBBI", code, far if when else 0, 0 if when else far, value)
        return out


class Handover:
    """Made before a fork; in the child it installs the filter and passes the listener on.

    Everything that needs an import or an allocation is done in the constructor, because between
    fork and exec a process that had threads may do neither.
    """

    def __init__(self, descriptor: int, *, no_vsock: bool = False, writes: bool = False) -> None:
        """`descriptor` is the child's end of a unix socket pair."""
        import ctypes

        if not machine_supported():
            raise MissingDependencyError(f"seccomp is not known for {os.uname().machine} here")
        self._libc = libc()
        self._errno = ctypes.get_errno
        self._descriptor = descriptor
        self._byte = ctypes.create_string_buffer(b"L", 1)
        self._iov = ctypes.create_string_buffer(
            struct.pack("=QQ", ctypes.addressof(self._byte), 1), 16
        )
        self._control = ctypes.create_string_buffer(24)
        # struct msghdr: no name, one vector, one control message.
        self._message = ctypes.create_string_buffer(
            struct.pack(
                "=QIIQQQQII", 0, 0, 0, ctypes.addressof(self._iov), 1,
                ctypes.addressof(self._control), 24, 0, 0,
            ),
            56,
        )  # fmt: skip
        passing = Passing(descriptor, ctypes.addressof(self._message))
        code = build_filter(passing, no_vsock=no_vsock, writes=writes)
        self._code = ctypes.create_string_buffer(code, len(code))
        self._program = ctypes.create_string_buffer(
            struct.pack("=HHIQ", len(code) // 8, 0, 0, ctypes.addressof(self._code)), 16
        )
        self._call = _SECCOMP_CALL[os.uname().machine]
        self._arguments = [ctypes.c_long(self._call), ctypes.c_long(_SET_MODE_FILTER)]
        self._program_pointer = ctypes.byref(self._program)
        self._message_pointer = ctypes.byref(self._message)
        self._control_write = struct.Struct("=QiiiI").pack_into

    def install(self, *, no_new_privs: bool) -> None:
        """In the child: from now on its network calls wait for the supervisor's answer.

        Without `no_new_privs` this needs CAP_SYS_ADMIN in the process's user namespace.
        """
        if no_new_privs and self._libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            self._fail("prctl")
        listener = -1
        # Signals that do not kill must not restart a call that is being examined (Linux 5.19).
        for extra in (_FLAG_WAIT_KILLABLE_RECV, 0):
            flags = _FLAG_NEW_LISTENER | _FLAG_SPEC_ALLOW | extra
            listener = self._libc.syscall(*self._arguments, flags, self._program_pointer)
            if listener >= 0 or self._errno() != errno.EINVAL:
                break
        if listener < 0:
            self._fail("seccomp")
        self._control_write(self._control, 0, 20, socket.SOL_SOCKET, socket.SCM_RIGHTS, listener, 0)
        if self._libc.sendmsg(self._descriptor, self._message_pointer, 0) != 1:
            self._fail("sendmsg")
        os.close(listener)

    def _fail(self, call: str) -> None:
        number = self._errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")


class Listener:
    """The supervisor's side of a filter."""

    def __init__(self, descriptor: int) -> None:
        import fcntl

        self.descriptor = descriptor
        self._ioctl = fcntl.ioctl
        try:
            # The waiting thread wakes on the core we run on: a third of the cost (Linux 6.6).
            fcntl.ioctl(descriptor, _IOCTL_SET_FLAGS, _SYNC_WAKE_UP)
        except OSError:
            pass

    def receive(self) -> Notification | None:
        """The next call; None if its process ended before we looked. May block: poll first."""
        buffer = bytearray(80)
        try:
            self._ioctl(self.descriptor, _IOCTL_RECV, buffer)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):
                return None
            raise
        number, tid, _, call, arch, _, *args = struct.unpack("=QIIiIQ6Q", buffer)
        return Notification(number, tid, arch, call, tuple(args))

    def still_valid(self, note: Notification) -> bool:
        """Whether the call still waits. If not, its pid may be reused and the data read stale."""
        try:
            self._ioctl(self.descriptor, _IOCTL_ID_VALID, struct.pack("=Q", note.id))
        except OSError:
            return False
        return True

    def go_on(self, note: Notification) -> None:
        """Let the kernel make the call unchanged."""
        self._send(struct.pack("=QqiI", note.id, 0, 0, _CONTINUE))

    def answer(self, note: Notification, value: int) -> None:
        """Return `value` from the call, without making it."""
        self._send(struct.pack("=QqiI", note.id, value, 0, 0))

    def fail(self, note: Notification, number: int) -> None:
        """Fail the call with this error, without making it."""
        self._send(struct.pack("=QqiI", note.id, 0, -number, 0))

    def replace_descriptor(
        self, note: Notification, target: int, source: int, *, close_on_exec: bool
    ) -> bool:
        """Put our descriptor `source` where the process has `target`; False if it is gone."""
        flags = os.O_CLOEXEC if close_on_exec else 0
        request = struct.pack("=QIIII", note.id, _ADDFD_SETFD, source, target, flags)
        try:
            self._ioctl(self.descriptor, _IOCTL_ADDFD, request)
        except OSError:
            return False
        return True

    def borrow_socket(self, pid: int, descriptor: int) -> socket.socket | None:
        """Our own handle of a process's socket; None if there is none, or we may not."""
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            return None
        try:
            copy = libc().syscall(_PIDFD_GETFD, handle, descriptor, 0)
        finally:
            os.close(handle)
        if copy < 0:
            return None
        try:
            return socket.socket(fileno=copy)
        except OSError:
            os.close(copy)
            return None

    def close(self) -> None:
        os.close(self.descriptor)

    def _send(self, response: bytes) -> None:
        try:
            self._ioctl(self.descriptor, _IOCTL_SEND, response)
        except OSError as error:
            # ENOENT: the process was killed in between and needs no answer.
            if error.errno not in (errno.ENOENT, errno.EINPROGRESS):
                raise


def read_memory(tid: int, address: int, size: int) -> bytes:
    """What a process has at `address`; short or empty where it has nothing or we may not look."""
    if not address or size <= 0:
        return b""
    try:
        memory = os.open(f"/proc/{tid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(memory, size, address)
    except (OSError, OverflowError):
        return b""
    finally:
        os.close(memory)
