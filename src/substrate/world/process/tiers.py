"""The rights that each tier takes away from the command's own process, right before it starts."""

from __future__ import annotations

from contextlib import suppress

from substrate.system.linux import landlock, privileges, seccomp, seccomp_set_id
from substrate.world.process.sandbox import Sandbox

#: What root keeps in a world: the rights over files, owners and its own processes that builds
#: and package managers use. In a user namespace none of them reaches the kernel or the network.
ROOT_KEEPS = (
    *("chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap"),
    *("net_bind_service", "net_raw", "ipc_lock", "ipc_owner", "sys_chroot", "sys_nice"),
    *("sys_resource", "lease", "audit_write", "setfcap"),
)


#: File capabilities, and set-id bits that survive a write.
_GIVE_RIGHTS_AWAY = ("setfcap", "fsetid")


#: What every program writes to: devices (which no mount can make read-only), and its own /proc.
_ALWAYS_WRITTEN = (b"/dev", b"/proc")


#: Directories that are private to a new root.
_PRIVATE = (b"/tmp", b"/var/tmp", b"/run", b"/home")


def restrict_process(sandbox: Sandbox, *, privileged: bool) -> None:
    """In the command's process, before exec."""
    keep: tuple[str, ...] = ROOT_KEEPS if privileged and sandbox.tier != "full" else ()
    if sandbox.tier in ("guarded", "full"):
        # Temporary directories are shared: no program that gives rights away may be left there.
        keep = tuple(name for name in keep if name not in _GIVE_RIGHTS_AWAY)
    if sandbox.shuts_abstract and sandbox.tier == "workspace":
        _shut_abstract_sockets()
    privileges.keep_capabilities(keep)
    if sandbox.tier in ("guarded", "full"):
        privileges.forbid_new_privileges()
        _hold_by_landlock(sandbox)
        if seccomp_set_id.is_supported():
            seccomp.install(seccomp_set_id.build())
    if sandbox.tier == "full":
        seccomp.refuse_dangerous_calls()


def _shut_abstract_sockets() -> None:
    """While we still have the capability for it; before Linux 6.12 the supervisor refuses."""
    with suppress(OSError):
        landlock.shut_abstract_sockets()


def _hold_by_landlock(sandbox: Sandbox) -> None:
    """A second barrier besides the read-only mounts; without Landlock there are only the mounts."""
    try:
        landlock.abi_version()
    except OSError:
        return
    private = (*_PRIVATE, *sandbox.private) if sandbox.tier == "full" else ()
    landlock.allow_writes_only_below((sandbox.root, *sandbox.writable, *private, *_ALWAYS_WRITTEN))
