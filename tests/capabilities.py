"""What a machine may lack, and so which skips are expected on it.

A test that cannot run everywhere says so with ``@pytest.mark.needs("root")``, or skips by hand
with a reason that starts ``needs <capability>``. Under CI, or with ``--strict-skips``, a skip
for any other reason, or for a capability that is there, fails the run: a suite that quietly
skips what it was meant to prove is worse than a red one.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest


def _has_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _has_other_user() -> bool:
    """Root can become the user `nobody`: for tests as an ordinary or as another user."""
    if not _has_root():
        return False
    import pwd

    try:
        pwd.getpwnam("nobody")
    except KeyError:
        return False
    return True


def _has_strace() -> bool:
    """Installed and allowed: many containers forbid ptrace."""
    if shutil.which("strace") is None:
        return False
    traced = subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False)
    return traced.returncode == 0


def _has_overlay() -> bool:
    try:
        return "overlay" in Path("/proc/filesystems").read_text()
    except OSError:
        return False


def _has_user_xattrs() -> bool:
    if not hasattr(os, "setxattr"):
        return False

    with tempfile.NamedTemporaryFile() as file:
        try:
            os.setxattr(file.name, "user.substrate-test", b"1")
        except OSError:
            return False
    return True


def _has_posix_acls() -> bool:
    if not hasattr(os, "setxattr"):
        return False
    rights = ((1, 6, -1), (2, 4, 1), (4, 0, -1), (16, 4, -1), (32, 0, -1))
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *one) for one in rights)
    with tempfile.NamedTemporaryFile() as file:
        try:
            os.setxattr(file.name, "system.posix_acl_access", acl)
        except OSError:
            return False
    return True


def _has_immutable_files() -> bool:
    """Needs CAP_LINUX_IMMUTABLE, which containers lack, and a file system with the flag."""
    if not _has_root() or shutil.which("chattr") is None:
        return False

    with tempfile.NamedTemporaryFile() as file:
        tried = subprocess.run(["chattr", "+i", file.name], capture_output=True, check=False)
        subprocess.run(["chattr", "-i", file.name], capture_output=True, check=False)
    return tried.returncode == 0


def _has_vsock() -> bool:
    """Sockets to a hypervisor can be made, with or without one."""
    import socket

    try:
        socket.socket(getattr(socket, "AF_VSOCK", -1)).close()
    except OSError:
        return False
    return True


def _has_kernel_log() -> bool:
    return _has_root() and Path("/dev/kmsg").exists()


def _has_loop_devices() -> bool:
    return _has_root() and Path("/dev/loop-control").exists()


def _has_exfat() -> bool:
    """Root may mount one by its FUSE program: few kernels of test machines know exFAT."""
    from tests.mounts import mounted_exfat

    programs = ("mkfs.exfat", "mount.exfat-fuse")
    if not _has_loop_devices() or not all(map(shutil.which, programs)):
        return False
    with tempfile.TemporaryDirectory() as directory:
        try:
            with mounted_exfat(Path(directory)):
                return True
        except (subprocess.CalledProcessError, OSError):
            return False


def _has_mounts() -> bool:
    """Root may mount a small tmpfs: for disks that are full or read-only."""
    if not _has_root() or shutil.which("mount") is None:
        return False

    with tempfile.TemporaryDirectory() as directory:
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", directory]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            return False
        return subprocess.run(["umount", directory], check=False).returncode == 0


def _has_user_namespaces() -> bool:
    """In a new user namespace any user is root, with separate limits."""
    if shutil.which("unshare") is None:
        return False
    words = ["unshare", "--user", "--map-root-user", "true"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def _has_cgroup2() -> bool:
    """Root may mount the unified hierarchy, whatever the machine itself uses."""
    if not _has_mounts():
        return False

    with tempfile.TemporaryDirectory() as directory:
        mount = ["mount", "-t", "cgroup2", "none", directory]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            return False
        return subprocess.run(["umount", directory], check=False).returncode == 0


def _has_network_namespaces() -> bool:
    """Root's, or an ordinary user's inside a user namespace."""
    if shutil.which("unshare") is None:
        return False
    flags = ["--net"] if _has_root() else ["--map-root-user", "--net"]
    tried = subprocess.run(["unshare", *flags, "true"], capture_output=True, check=False)
    return tried.returncode == 0


def _has_static_gcc() -> bool:
    """For programs that go around libc."""
    if shutil.which("gcc") is None:
        return False
    source = b"int main(void) { return 0; }"
    command = ["gcc", "-static", "-x", "c", "-", "-o", os.devnull]
    return subprocess.run(command, input=source, capture_output=True, check=False).returncode == 0


def _has_byte_names() -> bool:
    """macOS and Windows refuse file names that are not Unicode."""
    return sys.platform.startswith("linux")


def _has_case_sensitive_names() -> bool:

    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "a").touch()
        return not Path(directory, "A").exists()


def _has_package_index() -> bool:
    """pip can download from where it is configured to."""

    with tempfile.TemporaryDirectory() as directory:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", directory]
        argv = [*pip, "--retries", "0", "--timeout", "10", "iniconfig"]
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0


@cache
def _strategies() -> frozenset[str]:
    """What the product's own probe says works here, asked with a home of its own."""
    script = (
        "from substrate.world.capabilities.machine_probe import probe\n"
        "print(*[found.name for found in probe(fresh=True) if found.works])"
    )
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True,
            env=os.environ | {"SUBSTRATE_HOME": home},
        )  # fmt: skip
    return frozenset(done.stdout.split())


@cache
def _strategies_of_nobody() -> frozenset[str]:
    """The same, asked as another user: ``/dev/fuse`` may be for root alone."""
    if not _has_other_user():
        return frozenset()
    from substrate.world.capabilities.machine_probe import probe
    from tests.contract.as_user import NOBODY, as_user

    def ask() -> list[str]:
        return [found.name for found in probe(fresh=True) if found.works]

    with tempfile.TemporaryDirectory() as home, pytest.MonkeyPatch.context() as patch:
        os.chown(home, NOBODY, NOBODY)
        patch.setenv("HOME", home)
        patch.setenv("SUBSTRATE_HOME", os.path.join(home, "substrate"))
        return frozenset(as_user(NOBODY, ask))


def _world(strategy: str, *, of_nobody: bool = False) -> Callable[[], bool]:
    """Where the probe says yes, no test of it may be skipped."""
    ask = _strategies_of_nobody if of_nobody else _strategies
    return lambda: sys.platform.startswith("linux") and strategy in ask()


#: Name -> does this machine have it?
CAPABILITIES: dict[str, Callable[[], bool]] = {
    "byte-names": _has_byte_names,
    "case-sensitive": _has_case_sensitive_names,
    "cgroup2": _has_cgroup2,
    "chromium": lambda: any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
    "compiler": lambda: shutil.which("cc") is not None,
    "curl": lambda: shutil.which("curl") is not None,
    "exfat": _has_exfat,
    "fork": lambda: hasattr(os, "fork"),
    "gcc": lambda: shutil.which("gcc") is not None,
    "gcc-static": _has_static_gcc,
    "jq": lambda: all(map(shutil.which, ("jq", "sha256sum"))),
    "immutable-files": _has_immutable_files,
    "linux": lambda: sys.platform.startswith("linux"),
    "loop-devices": _has_loop_devices,
    "vsock": _has_vsock,
    "kernel-log": _has_kernel_log,
    "npm": lambda: shutil.which("npm") is not None,
    "other-user": _has_other_user,
    "overlay": _has_overlay,
    "package-index": _has_package_index,
    "posix": lambda: os.name == "posix",
    "root": _has_root,
    "mounts": _has_mounts,
    "netns": _has_network_namespaces,
    "not-root": lambda: not _has_root(),
    "ssh-keygen": lambda: shutil.which("ssh-keygen") is not None,
    "strace": _has_strace,
    "zsh": lambda: shutil.which("zsh") is not None,
    "symlinks": lambda: os.name == "posix",
    "user-namespaces": _has_user_namespaces,
    "user-xattrs": _has_user_xattrs,
    "posix-acls": _has_posix_acls,
    "world-overlay": _world("overlay"),
    "world-overlay-of-nobody": _world("overlay", of_nobody=True),
    "world-fuse-overlayfs": _world("fuse-overlayfs"),
    "world-fuse-overlayfs-of-nobody": _world("fuse-overlayfs", of_nobody=True),
    "world-copy-diff": _world("copy-diff"),
    "world-copy-diff-of-nobody": _world("copy-diff", of_nobody=True),
}


@cache
def present(capability: str) -> bool:
    """Whether this machine has `capability`; `KeyError` if it is not declared."""
    return CAPABILITIES[capability]()


def is_expected_skip(reason: str) -> bool:
    """Whether a skip for `reason` is right here: a declared capability that is really missing."""
    text = reason.removeprefix("Skipped: ")
    if not text.startswith("needs "):
        return False
    capability = text.removeprefix("needs ").partition(":")[0].strip()
    return capability in CAPABILITIES and not present(capability)
