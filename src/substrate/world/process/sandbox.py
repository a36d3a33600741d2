"""What a world is made of, and making it: everything between fork and the command's own fork.

    waiting process ──fork──▶ maker ──fork──▶ world's init (pid 1) ──fork──▶ the command
                              │               mounts /proc, reaps,
                              │               keeps no capability
                              └ namespaces, mounts; then it is gone

As root the mounts are made *outside* the command's user namespace, and the command's mount
namespace is a copy that belongs to it. The kernel then locks every mount in it: the command cannot
unmount any of them to see what is below, whatever rights it gets inside.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import NamedTuple, ParamSpec, TypeVar

from substrate.system.linux import mounts, namespaces, privileges
from substrate.system.process import Channel
from substrate.world.interface import Network
from substrate.world.process import broker_socket as door
from substrate.world.process import new_root
from substrate.world.process.pid_space import Entrance

_P = ParamSpec("_P")
_T = TypeVar("_T")

_OWN = namespaces.NEWNS | namespaces.NEWIPC
_INNER = namespaces.NEWUSER | namespaces.NEWPID | _OWN


#: The kernel only checks whether a writer is uid 0, which is true in a world made by root. With
#: ``core_pattern`` it could have a program run outside.
_KERNEL_KNOBS = (b"/proc/sys", b"/proc/sysrq-trigger", b"/proc/irq", b"/proc/bus", b"/proc/acpi")


#: The kernel's log, and devices that create disks, send keys, or reach the kernel's memory.
_KERNEL_DEVICES = (
    *(b"/dev/kmsg", b"/dev/loop-control", b"/dev/mapper/control", b"/dev/btrfs-control"),
    *(b"/dev/mem", b"/dev/kmem", b"/dev/port", b"/dev/uinput", b"/dev/uhid", b"/dev/userio"),
    *(b"/dev/snapshot", b"/dev/cuse", b"/dev/nvram", b"/dev/watchdog", b"/dev/watchdog0"),
)


class Sandbox(NamedTuple):
    """How the machine looks to the command. Paths are absolute, with symlinks resolved."""

    #: The workspace.
    root: bytes
    #: Mounts the workspace's view at `root`; runs in the world's mount namespace.
    mount_view: Callable[[], None]
    #: One of `interface.TIERS`.
    tier: str = "workspace"
    read_only: tuple[bytes, ...] = ()
    #: Hidden behind an empty file or directory.
    masked: tuple[bytes, ...] = ()
    #: Where `guarded` and `full` let the command write, besides the workspace.
    writable: tuple[bytes, ...] = ()
    #: What `full` shows besides the system, read-only.
    readable: tuple[bytes, ...] = ()
    #: What `full` makes new and empty: it is gone when the world is.
    private: tuple[bytes, ...] = ()
    #: An empty directory for this world only, for the new root of `full`.
    scratch: bytes = b""
    network: Network | None = None
    #: Resource limits for the command's process, by their names in `resource`.
    resources: tuple[tuple[str, int], ...] = ()
    #: The pid namespace of earlier commands to join; `None`: its own.
    company: Entrance | None = None
    #: The directory of the world's door, as seen inside; empty: it has none.
    door: bytes = b""
    #: Whether abstract sockets of other processes are unreachable, if the kernel supports that.
    shuts_abstract: bool = False
    #: Made before its command is known: do everything that is possible before.
    is_ahead: bool = False
    #: Whether the waiting process wants a copy of the view's mount.
    keeps_view: bool = False


class SetupError(Exception):
    """A step of making the world failed: which step, and the system's message."""

    def __init__(self, step: str, error: OSError) -> None:
        super().__init__(f"{step}: {error.strerror or error}")


def is_privileged() -> bool:
    """Whether worlds are made by root (identity-mapped) or as an ordinary user."""
    return os.geteuid() == 0


def enter(sandbox: Sandbox, channel: Channel) -> None:
    """Leave our namespaces for the world's. The next fork is the world's init."""
    privileged = is_privileged()
    uid, gid = os.geteuid(), os.getegid()
    if privileged:
        _step("a mount namespace", namespaces.unshare, namespaces.NEWNS)
    elif sandbox.company is not None:
        _step("the session's processes", _join, sandbox.company)
    else:
        _step("a user namespace", namespaces.unshare, _INNER)
        _step("our own /proc", privileges.own_proc_entries)
        _step("the ids of the user namespace", namespaces.map_own_id, uid, gid)
    _step("private mounts", mounts.make_private)
    listener = arrange(sandbox, partial(_hand_view_out, sandbox, channel))
    if listener is not None:
        channel.send("door", fds=(listener,))
        os.close(listener)
    if privileged and sandbox.company is not None:
        _step("the session's processes", _join, sandbox.company)
    elif privileged:
        _step("a user namespace", namespaces.unshare, _INNER)
        # Only a process outside may map more than one id.
        channel.send("map")
        channel.receive()


def _join(company: Entrance) -> None:
    """Join the user and pid namespaces of earlier commands, with mounts of our own.

    Our mounts are a copy that belongs to another user namespace than the original, so they are
    locked.
    """
    namespaces.setns(company.user_ns, namespaces.NEWUSER)
    namespaces.setns(company.pid_ns, namespaces.NEWPID)
    privileges.own_proc_entries()
    namespaces.unshare(_OWN)


def _hand_view_out(sandbox: Sandbox, channel: Channel) -> None:
    """Send a copy of the view's mount as it is now, before anything is changed about it here."""
    if not sandbox.keeps_view:
        return
    with suppress(OSError):  # then it is just not used again
        view = mounts.clone_mount(sandbox.root)
        channel.send("view", fds=(view,))
        os.close(view)


def arrange(sandbox: Sandbox, on_view: Callable[[], None] = lambda: None) -> int | None:
    """Mount everything but ``/proc``, which belongs to processes that do not exist yet.

    `on_view` is called when the view is mounted, and nothing else of the world. Returns the
    listening socket of the world's door.
    """
    listener = None
    trees = _trees_to_keep(sandbox)
    new = _step("a new root", new_root.prepare, sandbox) if sandbox.tier == "full" else -1
    _step("the workspace's view", sandbox.mount_view)
    on_view()
    for path, tree in trees:
        _step(f"the mount {os.fsdecode(path)}", _attach, tree, path)
    for path in sandbox.read_only:
        _step(f"{os.fsdecode(path)} read-only", _read_only, path, sandbox.root)
    for path in (*sandbox.masked, *_block_devices()):
        _step(f"hiding {os.fsdecode(path)}", mask, path)
    if is_privileged() and os.path.ismount(b"/sys"):
        _step("/sys read-only", partial(mounts.restrict, recursive=True), b"/sys", mounts.RDONLY)
    if sandbox.door and sandbox.tier != "full":
        listener = _step("the door", door.make, sandbox.door, sandbox.tier)
    if sandbox.tier == "guarded":
        _step("everything read-only", _shut, sandbox.root, sandbox.writable)
    elif sandbox.tier == "full":
        _step("a new root", new_root.pivot, sandbox, new)
        if sandbox.door:
            listener = _step("the door", door.make, sandbox.door, sandbox.tier)
    return listener


def submounts(root: bytes) -> list[bytes]:
    """Mounts inside the workspace: a view would hide them, so they are bound in as they are."""
    found: list[bytes] = []
    for target in mounts.below(root, mounts.mounts()):
        if not any(target.startswith(outer + b"/") for outer in found):
            found.append(target)
    return found


def mount_proc() -> None:
    """In the world's init: a ``/proc`` that shows this world's processes and no others."""
    flags = mounts.NOSUID | mounts.NODEV | mounts.NOEXEC
    _step("/proc", mounts.mount, b"proc", b"/proc", b"proc", flags)
    if is_privileged():
        for path in _KERNEL_KNOBS:
            if os.path.exists(path):
                _step(f"{os.fsdecode(path)} read-only", _read_only, path)


def _trees_to_keep(sandbox: Sandbox) -> list[tuple[bytes, int]]:
    """Copies of what the view will cover, but the command must see as it really is."""
    inside = sandbox.root.rstrip(b"/") + b"/"
    paths = [*submounts(sandbox.root), *(p for p in sandbox.read_only if p.startswith(inside))]
    trees = []
    for path in paths:
        with suppress(FileNotFoundError):
            trees.append((path, mounts.clone_tree(path)))
    return trees


def _attach(tree: int, path: bytes) -> None:
    mounts.attach_tree(tree, path)
    os.close(tree)


def _read_only(path: bytes, root: bytes = b"") -> None:
    """Make `path` read-only; below `root` it is already a mount of its own."""
    if not root or not path.startswith(root.rstrip(b"/") + b"/"):
        mounts.bind(path, path, recursive=True)
    mounts.restrict(path, mounts.RDONLY, recursive=True)


def _shut(root: bytes, writable: tuple[bytes, ...]) -> None:
    """Make every mount read-only, then the workspace and `writable` as they were."""
    found = [path for path in writable if os.path.exists(path)]
    for path in found:
        mounts.bind(path, path, recursive=True)
    mounts.restrict(b"/", mounts.RDONLY, recursive=True)
    # /proc too: a new one could not be mounted beside a read-only one.
    for path in (root, *found, b"/proc"):
        mounts.relax(path)


def mask(path: bytes) -> None:
    """Hide what is there; what does not exist needs no hiding."""
    try:
        found = os.stat(path)
    except OSError:
        return
    if stat.S_ISDIR(found.st_mode):
        flags = mounts.NOSUID | mounts.NODEV | mounts.NOEXEC | mounts.RDONLY
        mounts.mount(b"tmpfs", path, b"tmpfs", flags, b"size=4k,mode=755")
    else:
        mounts.bind(b"/dev/null", path)


def _block_devices() -> list[bytes]:
    """Disks, through which root would reach the workspace's real blocks; the kernel's controls."""
    if not is_privileged():
        return []  # users with access to disks were given it; docs/security.md says so
    found = [path for path in _KERNEL_DEVICES if os.path.exists(path)]
    for directory in (b"/dev", b"/dev/mapper"):
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if entry.is_symlink() or entry.is_dir() or entry.is_file():
                    continue
                mode = entry.stat(follow_symlinks=False).st_mode
                passes = entry.name.startswith((b"sg", b"nvme", b"raw")) and stat.S_ISCHR(mode)
                if stat.S_ISBLK(mode) or passes:
                    found.append(entry.path)
    return found


def _step(name: str, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    try:
        return work(*args, **kwargs)
    except OSError as error:
        raise SetupError(name, error) from error
