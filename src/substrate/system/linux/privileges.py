"""Giving up privileges: capabilities, dumpability, the right to gain new ones."""

from __future__ import annotations

from collections.abc import Iterable

from substrate.system.linux import syscalls

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAP_VERSION_3 = 0x20080522
_EINVAL = 22

#: capabilities(7), by number.
NAMES = (
    *("chown", "dac_override", "dac_read_search", "fowner", "fsetid", "kill", "setgid", "setuid"),
    *("setpcap", "linux_immutable", "net_bind_service", "net_broadcast", "net_admin", "net_raw"),
    *("ipc_lock", "ipc_owner", "sys_module", "sys_rawio", "sys_chroot", "sys_ptrace", "sys_pacct"),
    *("sys_admin", "sys_boot", "sys_nice", "sys_resource", "sys_time", "sys_tty_config", "mknod"),
    *("lease", "audit_write", "audit_control", "setfcap", "mac_override", "mac_admin", "syslog"),
    *("wake_alarm", "block_suspend", "audit_read", "perfmon", "bpf", "checkpoint_restore"),
)
#: No kernel has more yet; asking for one that does not exist ends the loop.
_HIGHEST = 63


def keep_capabilities(names: Iterable[str]) -> None:
    """Keep only these, in this process and every program it runs; the others are lost for good."""
    kept = {NAMES.index(name) for name in names}
    for number in range(_HIGHEST + 1):
        if number in kept:
            continue
        try:
            syscalls.call("prctl", _PR_CAPBSET_DROP, number, 0, 0, 0)
        except OSError as error:
            if error.errno == _EINVAL:
                break
            raise
    _clear_ambient()
    _set_capabilities(sum(1 << number for number in kept))


def drop_own_capabilities(keep: Iterable[str] = ()) -> None:
    """Drop our own capabilities except `keep`; programs we run may still get theirs."""
    _clear_ambient()
    _set_capabilities(sum(1 << NAMES.index(name) for name in keep))


def own_proc_entries() -> None:
    """Keep our files in ``/proc/self`` ours: after a change of user id they would be root's."""
    syscalls.call("prctl", _PR_SET_DUMPABLE, 1, 0, 0, 0)


def hide_from_tracers() -> None:
    """Unprivileged processes outside may not trace us or follow our ``/proc`` links."""
    syscalls.call("prctl", _PR_SET_DUMPABLE, 0, 0, 0, 0)


def forbid_new_privileges() -> None:
    """From now on, no setuid program gives more privileges than we have."""
    syscalls.call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def die_with_parent(signum: int) -> None:
    """Have the kernel send us `signum` when the process that forked us ends; 0 cancels that."""
    syscalls.call("prctl", _PR_SET_PDEATHSIG, signum, 0, 0, 0)


def _clear_ambient() -> None:
    syscalls.call("prctl", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


def _set_capabilities(mask: int) -> None:
    """Set effective and permitted to the part of `mask` that we have; clear inheritable."""
    import ctypes
    import struct

    header = ctypes.create_string_buffer(struct.pack("Ii", _CAP_VERSION_3, 0), 8)
    data = ctypes.create_string_buffer(24)
    syscalls.syscall("capget", syscalls.address(header), syscalls.address(data))
    low, high = mask & 0xFFFFFFFF, mask >> 32
    _, had_low, _, _, had_high, _ = struct.unpack("6I", data.raw)
    low, high = low & had_low, high & had_high
    packed = struct.pack("6I", low, low, 0, high, high, 0)
    data = ctypes.create_string_buffer(packed, 24)
    syscalls.syscall("capset", syscalls.address(header), syscalls.address(data))
