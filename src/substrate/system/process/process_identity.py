"""What tells one process, and one boot, from another."""

from __future__ import annotations

import os
import sys
from functools import cache

from substrate.system import files


@cache
def boot_id() -> str:
    """A name for this boot of the machine; empty where the system offers none.

    A lock or journal entry written under another boot id belongs to nobody who still lives.
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


def pid_alive(pid: int) -> bool:
    """Whether a process of that id runs here now (it may be another one that reuses the id).

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
    """Something that differs when the id was reused; empty when unknown or gone."""
    return _own_start_token(pid) if pid == os.getpid() else _linux_stat_field(pid, 22)


@cache
def _own_start_token(pid: int) -> str:
    """By its id, because a fork inherits what is remembered here."""
    return _linux_stat_field(pid, 22)


def _linux_stat_field(pid: int, number: int) -> str:
    """Field `number` (from 1, as in proc(5), 3 and up) of ``/proc/<pid>/stat``, else empty."""
    try:
        text = files.read_kernel_file(f"/proc/{pid}/stat")
    except OSError:
        return ""
    # The command's name stands in parentheses and may hold blanks and parentheses itself.
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
    # os.kill(pid, 0) would send CTRL_C there.
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
    """The system as packs name it: linux, darwin, windows."""
    return "windows" if sys.platform == "win32" else sys.platform
