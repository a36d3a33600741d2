"""What only Linux has: namespaces, mounts, capabilities, seccomp. Nothing here runs elsewhere.

No module here imports `ctypes` or `fcntl` at its top, because an import must work everywhere.
Failures are `OSError` with the call's name.
"""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.system.linux import ext4_placement as ext4_placement
    from substrate.system.linux import inotify as inotify
    from substrate.system.linux import landlock as landlock
    from substrate.system.linux import memory as memory
    from substrate.system.linux import mounts as mounts
    from substrate.system.linux import namespaces as namespaces
    from substrate.system.linux import netns as netns
    from substrate.system.linux import open_in_root as open_in_root
    from substrate.system.linux import privileges as privileges
    from substrate.system.linux import process_name as process_name
    from substrate.system.linux import seccomp as seccomp
    from substrate.system.linux import seccomp_passthrough as seccomp_passthrough
    from substrate.system.linux import seccomp_set_id as seccomp_set_id
    from substrate.system.linux import shared_mappings as shared_mappings
    from substrate.system.linux import syscalls as syscalls
    from substrate.system.linux.inotify import Unmounts as Unmounts
    from substrate.system.linux.rename_equivalence import is_same_ground as is_same_ground
    from substrate.system.linux.seccomp_notify import ARM as ARM
    from substrate.system.linux.seccomp_notify import CALLS as CALLS
    from substrate.system.linux.seccomp_notify import FILE_CALLS as FILE_CALLS
    from substrate.system.linux.seccomp_notify import I386 as I386
    from substrate.system.linux.seccomp_notify import SOCKETCALLS as SOCKETCALLS
    from substrate.system.linux.seccomp_notify import Handover as Handover
    from substrate.system.linux.seccomp_notify import Listener as Listener
    from substrate.system.linux.seccomp_notify import Notification as Notification
    from substrate.system.linux.seccomp_notify import read_memory as read_memory
    from substrate.system.linux.socket_maker import SocketMaker as SocketMaker

__getattr__ = lazy_names(
    __name__,
    {
        "inotify": "Unmounts",
        "rename_equivalence": "is_same_ground",
        "seccomp_notify": (
            "ARM, CALLS, FILE_CALLS, Handover, I386, Listener, Notification, SOCKETCALLS, "
            "read_memory"
        ),
        "socket_maker": "SocketMaker",
    },
)
