"""What distinguishes one process, and one boot, from another."""

from __future__ import annotations

import os
import sys
from functools import cache

from substrate.system.files import files


@cache
def boot_id() -> str:
    """An id of this boot of the machine; empty where the system has none.

    The writer of a lock or journal entry with another boot id is certainly dead.
    """
    if sys.platform == "linux":
        try:
            with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""
    if sys.platform == "darwin":
        return _darwin_boot_session()
    return ""


def pid_namespace() -> str:
    """An id of the pid namespace of this process; empty where there are none."""
    return _pid_namespace(os.getpid())


@cache
def _pid_namespace(pid: int) -> str:
    """Cached per pid, because a forked child inherits the cache and may be in another namespace."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def pid_alive(pid: int) -> bool:
    """Whether a process with that id runs here now (it may be another one that reuses the id).

    A zombie counts as dead: it holds nothing and will do nothing more.
    """
    if pid <= 0:
        return False
    if sys.platform == "win32":
        return _windows_pid_alive(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    except OverflowError:
        return False
    return _linux_stat_field(pid, 3) not in ("Z", "X")


def process_start_token(pid: int) -> str:
    """A value that changes when the pid is reused; empty if unknown or if there is no process."""
    return _own_start_token(pid) if pid == os.getpid() else _linux_stat_field(pid, 22)


@cache
def _own_start_token(pid: int) -> str:
    """Cached per pid, because a forked child inherits the cache."""
    return _linux_stat_field(pid, 22)


def _linux_stat_field(pid: int, number: int) -> str:
    """Field `number` (from 1, as in proc(5), 3 and up) of ``/proc/<pid>/stat``, else empty."""
    try:
        text = files.read_kernel_file(f"/proc/{pid}/stat")
    except OSError:
        return ""
    # The command's name is in parentheses and may itself contain blanks and parentheses.
    fields = text[text.rfind(b")") + 2 :].split()
    return fields[number - 3].decode("ascii", "replace") if len(fields) > number - 3 else ""


def _darwin_boot_session() -> str:
    import ctypes

    libc = ctypes.CDLL(None)
    buffer = ctypes.create_string_buffer(64)
    size = ctypes.c_size_t(len(buffer))
    if libc.sysctlbyname(b"kern.bootsessionuuid", buffer, ctypes.byref(size), None, 0) != 0:
        return ""
    return buffer.value.decode("ascii", "replace")


def _windows_pid_alive(pid: int) -> bool:
    # On Windows os.kill(pid, 0) would send CTRL_C.
    import ctypes

    query_limited_information, still_active = 0x1000, 259
    kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)  # type: ignore[attr-defined,unused-ignore]
    handle = kernel32.OpenProcess(query_limited_information, False, pid)
    if not handle:
        access_denied = 5
        return bool(ctypes.get_last_error() == access_denied)  # type: ignore[attr-defined,unused-ignore]
    try:
        code = ctypes.c_ulong()
        kernel32.GetExitCodeProcess(handle, ctypes.byref(code))
        return code.value == still_active
    finally:
        kernel32.CloseHandle(handle)


def os_name() -> str:
    """The system's name in packs: linux, darwin, windows."""
    return "windows" if sys.platform == "win32" else sys.platform
