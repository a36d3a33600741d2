"""seccomp user notification: a process's network calls are told to a supervisor, then go on.

This watches; it does not enforce. Between our look at a call's arguments and the kernel's, another
thread of the program may change them (the manual says so, and it is easy to do). What must be held
is held by a network namespace; this says what was asked for.

Nothing here is imported on other systems before it is used: `fcntl` and `ctypes` come late.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from typing import NamedTuple

from substrate.errors import MissingDependencyError
from substrate.system.linux.calls import libc

_SET_MODE_FILTER = 1
_FLAG_SPEC_ALLOW = 4
_FLAG_NEW_LISTENER = 8
_FLAG_WAIT_KILLABLE_RECV = 32
_PR_SET_NO_NEW_PRIVS = 38

_RET_ALLOW = 0x7FFF0000
_RET_NOTIFY = 0x7FC00000
_RET_ENOSYS = 0x00050000 | errno.ENOSYS

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

#: The calls that name a destination, by architecture. ``socketcall`` is i386's one door to them.
#: ``getsockname`` is told too: a resolver that only asks for a route ends with it.
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
#: What `uname` says -> the kernel's own calls and those of its 32-bit programs.
_MACHINES = {"x86_64": (X86_64, I386), "aarch64": (AARCH64, ARM)}
#: The same number everywhere. A ring could connect without a call that anybody sees.
_IO_URING_SETUP = 425
_SECCOMP_CALL = {"x86_64": 317, "aarch64": 277}
_PIDFD_GETFD = 438
_X32_BIT = 0x40000000
#: i386's ``socketcall`` numbers, and the calls they stand for.
SOCKETCALLS = {3: "connect", 6: "getsockname", 11: "sendto", 16: "sendmsg", 20: "sendmmsg"}

_ARG0, _ARG_BYTES = 16, 8
_LD, _JEQ, _JGE, _RET = 0x20, 0x15, 0x35, 0x06


class Passing(NamedTuple):
    """The one ``sendmsg`` that is not told: the one that hands the listener over.

    Nobody would be listening yet. It is known by its descriptor and by an address in the memory
    of a process that is about to become another program, which cannot learn it.
    """

    descriptor: int
    message_address: int


class Notification(NamedTuple):
    """One call, waiting for our word."""

    id: int
    #: The thread's id, as seen from here; 0 if it cannot be seen.
    tid: int
    arch: int
    number: int
    args: tuple[int, ...]


def machine_supported() -> bool:
    return os.uname().machine in _MACHINES


def build_filter(passing: Passing) -> bytes:
    """The BPF program for this machine."""
    native, compat = _MACHINES[os.uname().machine]
    code = _Assembler()
    code.load(4)
    code.jump_equal(native, "native")
    code.jump_equal(compat, "compat")
    code.jump("allow")
    for arch, label in ((native, "native"), (compat, "compat")):
        _add_calls(code, arch, label, passing)
    code.label("allow").returns(_RET_ALLOW)
    code.label("notify").returns(_RET_NOTIFY)
    code.label("enosys").returns(_RET_ENOSYS)
    return code.program()


def _add_calls(code: _Assembler, arch: int, label: str, passing: Passing) -> None:
    calls = CALLS[arch]
    code.label(label).load(0)
    if arch == X86_64:
        code.jump_at_least(_X32_BIT, "enosys")  # x32: a third way in that nobody uses
    for name in ("connect", "getsockname", "sendmmsg"):
        code.jump_equal(calls[name], "notify")
    code.jump_equal(_IO_URING_SETUP, "enosys")
    code.jump_equal(calls["sendto"], label + "-sendto")
    code.jump_equal(calls["sendmsg"], label + "-sendmsg")
    if "socketcall" in calls:
        code.jump_equal(calls["socketcall"], label + "-socketcall")
    code.jump("allow")
    # send() is sendto() without an address: the hot path of every connection stays untouched.
    code.label(label + "-sendto").load(_ARG0 + 4 * _ARG_BYTES)
    code.jump_unless_equal(0, "notify").load(_ARG0 + 4 * _ARG_BYTES + 4)
    code.jump_unless_equal(0, "notify").jump("allow")
    code.label(label + "-sendmsg").load(_ARG0).jump_unless_equal(passing.descriptor, "notify")
    code.load(_ARG0 + _ARG_BYTES)
    code.jump_unless_equal(passing.message_address & 0xFFFFFFFF, "notify")
    code.load(_ARG0 + _ARG_BYTES + 4)
    code.jump_unless_equal(passing.message_address >> 32, "notify").jump("allow")
    if "socketcall" in calls:
        code.label(label + "-socketcall").load(_ARG0)
        for number in SOCKETCALLS:
            code.jump_equal(number, "notify")
        code.jump("allow")


class _Assembler:
    """BPF with names for places; every jump is forward."""

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

    def jump_at_least(self, value: int, to: str) -> _Assembler:
        self._steps.append((_JGE, value, to, True))
        return self

    def jump(self, to: str) -> _Assembler:
        # Equal or not: both ways lead there. A plain BPF_JA would do, but this needs no case.
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

    Everything that needs an import or an allocation is done here, because between fork and exec a
    process that had threads may not.
    """

    def __init__(self, descriptor: int) -> None:
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
        code = build_filter(passing)
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
        """In the child: from here on its network calls wait for the supervisor's word.

        Without `no_new_privs` it takes CAP_SYS_ADMIN in the process's user namespace.
        """
        if no_new_privs and self._libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            self._fail("prctl")
        listener = -1
        # Signals that do not kill must not restart a call that is being looked at (Linux 5.19).
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
            # The waiter wakes on the core we run on: a third of the cost (Linux 6.6).
            fcntl.ioctl(descriptor, _IOCTL_SET_FLAGS, _SYNC_WAKE_UP)
        except OSError:
            pass

    def receive(self) -> Notification | None:
        """The next call; None if its process was gone before we looked. May block: poll first."""
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
        """Whether the call still waits. If not, its pid may be another's, and what was read too."""
        try:
            self._ioctl(self.descriptor, _IOCTL_ID_VALID, struct.pack("=Q", note.id))
        except OSError:
            return False
        return True

    def go_on(self, note: Notification) -> None:
        """Let the kernel do the call as if nobody had looked."""
        self._send(struct.pack("=QqiI", note.id, 0, 0, _CONTINUE))

    def answer(self, note: Notification, value: int) -> None:
        """Say that the call returned `value`, without doing it."""
        self._send(struct.pack("=QqiI", note.id, value, 0, 0))

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
            # ENOENT: killed meanwhile. Nobody is left who could hear our answer.
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
