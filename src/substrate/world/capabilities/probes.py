"""The probes, one by one. Each says what is missing and how to fix that."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from substrate.errors import SubstrateError
from substrate.system import environment
from substrate.system.process import fork_workers
from substrate.world.capabilities.machine_probe import Finding, Look

if TYPE_CHECKING:
    from substrate.world.strategies import LayeredWorld

_USERNS_SWITCHES = (
    (
        "/proc/sys/kernel/unprivileged_userns_clone",
        "0",
        "sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    (
        "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    ("/proc/sys/user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=10000"),
)


def overlay() -> Finding:
    """A complete world over a directory of our own: namespaces, overlay, /proc."""
    if not sys.platform.startswith("linux"):
        return Finding("overlay", False, f"{sys.platform} has no overlayfs", "use Linux")
    if "overlay" not in _read("/proc/filesystems") and not _module_there("overlay"):
        return Finding("overlay", False, "the kernel has no overlayfs", "modprobe overlay")
    from substrate.world.strategies import OverlayWorld

    return _try_out(OverlayWorld)


def copy_diff() -> Finding:
    """The same over a copy: without an overlay."""
    if not sys.platform.startswith("linux"):
        return Finding("copy-diff", False, f"{sys.platform} has no namespaces", "use Linux")
    from substrate.world.strategies import CopyWorld

    return _try_out(CopyWorld)


def _try_out(kind: type[LayeredWorld]) -> Finding:
    from substrate.world.interface import RunRequest, Wanted

    name = kind.strategy
    try:
        with tempfile.TemporaryDirectory(dir=_home(), prefix="probe-") as place:
            root = Path(place, "root")
            root.mkdir()
            (root / "lower").write_text("lower")
            world = kind(Wanted(root, Path(place)), Path(place, "worlds"))
            request = RunRequest(root, argv=("sh", "-c", "test -f lower && echo upper > lower"))
            outcome = world.run(request)
            wrote = outcome.layer is not None and (outcome.layer.upper / "lower").is_file()
            if outcome.layer is not None:
                world.discard(outcome.layer)
    except (SubstrateError, OSError) as error:
        return Finding(name, False, _words(error), _fix_for_worlds())
    if outcome.exit != 0 or not wrote:
        return Finding(name, False, "a trial world did not keep what was written in it")
    how = "as root" if os.geteuid() == 0 else "in a user namespace"
    return Finding(name, True, detail=how)


def user_namespaces() -> Finding:
    name = "user-namespaces"
    if not os.path.exists("/proc/self/ns/user"):
        return Finding(name, False, "the kernel has none", "use a kernel with CONFIG_USER_NS")
    for path, bad, fix in _USERNS_SWITCHES:
        if _read(path).strip() == bad and (os.geteuid() != 0 or "max_user" in path):
            return Finding(name, False, f"{path} is {bad}", f"sudo {fix}")
    return Finding(name, True)


def kernel() -> Finding:
    if not hasattr(os, "uname"):
        return Finding("kernel", False, sys.platform, "use Linux 5.13 or later")
    release = os.uname().release
    numbers = [int(part) for part in release.split("-")[0].split(".")[:2] if part.isdigit()]
    good = os.uname().sysname == "Linux" and numbers >= [5, 13]
    why = "" if good else f"{os.uname().sysname} {release}; worlds need Linux 5.13"
    return Finding("kernel", good, why, "" if good else "use Linux 5.13 or later", release)


def fuse_overlayfs() -> Finding:
    """The same with a FUSE process, where the kernel refuses its overlay."""
    name = "fuse-overlayfs"
    if not sys.platform.startswith("linux"):
        return Finding(name, False, f"not on {sys.platform}", "use Linux")
    if not _which(name):
        return Finding(name, False, "it is not installed", "apt-get install fuse-overlayfs")
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        fix = "modprobe fuse; in a container: --device /dev/fuse"
        if isinstance(error, PermissionError) and os.geteuid() != 0:
            fix = "chmod 666 /dev/fuse, as root"
        return Finding(name, False, f"/dev/fuse: {error.strerror}", fix)
    from substrate.world.strategies import FuseOverlayWorld

    return _try_out(FuseOverlayWorld)


def cgroups() -> Finding:
    from substrate.world.process import limits

    return limits.look()


def landlock() -> Finding:
    from substrate.system.linux import landlock as calls

    try:
        version = calls.abi_version()
    except OSError as error:
        fix = "use a kernel with CONFIG_SECURITY_LANDLOCK and lsm=…,landlock"
        return Finding("landlock", False, error.strerror or str(error), fix)
    return Finding("landlock", True, detail=f"ABI {version}")


def seccomp() -> Finding:
    found = "Seccomp:" in _read("/proc/self/status")
    fix = "" if found else "use a kernel with CONFIG_SECCOMP_FILTER"
    return Finding("seccomp", found, "" if found else "the kernel has none", fix)


def network() -> Finding:
    """A namespace that enforces ``--net off`` and ``allow:``, and a filter that reports scopes."""
    name = "network"
    if not sys.platform.startswith("linux"):
        return Finding(name, False, f"not on {sys.platform}", "use Linux")
    child = fork_workers.fork(_make_network_namespace)
    why = child.answer() if child is not None else "no process could be started"
    if why != "":
        held = f"--net off and allow: cannot be held: {why}"
        return Finding(name, False, held, _fix_for_worlds())
    if "user_notif" not in _read("/proc/sys/kernel/seccomp/actions_avail"):
        return Finding(name, True, detail="held; scopes are not recorded: no seccomp notification")
    return Finding(name, True, detail="watched and held")


def _make_network_namespace() -> str:
    """In a child: why it cannot be done, or an empty string."""
    from substrate.system.linux import netns

    user = 0 if os.geteuid() == 0 else netns.CLONE_NEWUSER
    try:
        netns.unshare(user | netns.CLONE_NEWNET)
        netns.loopback_up()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def nft() -> Finding:
    if _which("nft"):
        return Finding("nft", True, detail="not needed: networks are enforced without it")
    return Finding("nft", False, "it is not installed (nothing here needs it)")


def git() -> Finding:
    if not _which("git"):
        return Finding("git", False, "it is not on PATH", "apt-get install git")
    from substrate.objects.git import git_version

    try:
        return Finding("git", True, detail=git_version())
    except SubstrateError as error:
        return Finding("git", False, error.message, error.hint)


ALL: tuple[Look, ...] = (
    *(overlay, fuse_overlayfs, copy_diff),
    *(kernel, user_namespaces, cgroups, landlock, seccomp, network, nft, git),
)


def _fix_for_worlds() -> str:
    blocked = user_namespaces()
    if not blocked.works:
        return blocked.fix
    return "in a container: --privileged, or a volume that is no overlay at $SUBSTRATE_HOME"


def _words(error: SubstrateError | OSError) -> str:
    return error.message if isinstance(error, SubstrateError) else error.strerror or str(error)


def _home() -> str:
    home = environment.current().substrate_home
    os.makedirs(home, 0o700, exist_ok=True)
    return str(home)


def _which(program: str) -> bool:
    path = environment.current().get("PATH") or os.defpath
    return any(os.access(os.path.join(part, program), os.X_OK) for part in path.split(os.pathsep))


def _module_there(name: str) -> bool:
    release = os.uname().release
    with suppress(OSError):
        return f"/{name}.ko" in Path(f"/lib/modules/{release}/modules.dep").read_text()
    return False


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
