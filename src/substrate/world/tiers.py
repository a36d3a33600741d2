"""What each tier takes away from the command's own process, right before it starts."""

from __future__ import annotations

from substrate.system.linux import privileges
from substrate.world.sandbox import Sandbox

#: What root keeps in a world: the rights over files, owners and its own processes that builds
#: and package managers use. In a user namespace none of them reaches the kernel or the network.
ROOT_KEEPS = (
    *("chown", "dac_override", "fowner", "fsetid", "kill", "setgid", "setuid", "setpcap"),
    *("net_bind_service", "net_raw", "ipc_lock", "ipc_owner", "sys_chroot", "sys_nice"),
    *("sys_resource", "lease", "audit_write", "setfcap"),
)


def restrict_process(sandbox: Sandbox, *, privileged: bool) -> None:
    """In the command's process, before exec."""
    keep = ROOT_KEEPS if privileged and sandbox.tier != "full" else ()
    privileges.keep_capabilities(keep)
