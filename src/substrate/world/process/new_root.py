"""The tier `full`: a new root directory, with the system read-only and nothing else."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from substrate.system.linux import mounts

if TYPE_CHECKING:
    from substrate.world.process.sandbox import Sandbox

#: What programs need; other directories at the root do not exist in the world.
_SYSTEM = (
    *(b"bin", b"sbin", b"lib", b"lib32", b"lib64", b"libx32", b"usr", b"etc", b"opt", b"var"),
    *(b"nix", b"gnu", b"sys"),
)
_DEVICES = (b"null", b"zero", b"full", b"random", b"urandom", b"tty")
_STREAMS = ((b"fd", b"/proc/self/fd"), (b"stdin", b"/proc/self/fd/0"),
            (b"stdout", b"/proc/self/fd/1"), (b"stderr", b"/proc/self/fd/2"))  # fmt: skip
_SAFE = mounts.NOSUID | mounts.NODEV


def prepare(sandbox: Sandbox) -> int:
    """A descriptor of the empty new root; made before the view covers the way to it."""
    mounts.mount(b"tmpfs", sandbox.scratch, b"tmpfs", _SAFE, b"mode=755")
    return os.open(sandbox.scratch, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def pivot(sandbox: Sandbox, new: int) -> None:
    """Fill the new root and make it ours. The view is mounted already."""
    os.fchdir(new)
    os.close(new)
    for name in _SYSTEM:
        _show(b"/" + name)
    _make_devices()
    _make_private_directories()
    for path in sandbox.private:
        _mkdir(path.lstrip(b"/"))
    for path in sandbox.readable:
        _bind(path, read_only=True)
    _bind(sandbox.root, read_only=False)
    for path in sandbox.writable:
        _bind(path, read_only=False)
    # The old /proc must stay visible until the world's init has mounted its own over it: the
    # kernel lets a user namespace have a /proc only where it could see one before.
    _mkdir(b"proc")
    mounts.bind(b"/proc", b"proc", recursive=True)
    mounts.pivot_root(b".")


def _show(path: bytes) -> None:
    """A directory of the system, or the symlink in its place."""
    inside = path.lstrip(b"/")
    if os.path.islink(path):
        os.symlink(os.readlink(path), inside)
    elif os.path.isdir(path):
        _bind(path, read_only=True)


def _bind(path: bytes, *, read_only: bool) -> None:
    """Make the same path in the new root show what `path` shows here."""
    if not os.path.exists(path):
        return
    inside = path.lstrip(b"/")
    if os.path.isdir(path):
        _mkdir(inside)
    else:
        _mkdir(os.path.dirname(inside))
        with suppress(FileExistsError):
            os.close(os.open(inside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    mounts.bind(path, inside, recursive=True)
    if read_only:
        mounts.restrict(inside, mounts.RDONLY | mounts.NOSUID, recursive=True)


def _make_devices() -> None:
    _mkdir(b"dev")
    for name in _DEVICES:
        with suppress(FileNotFoundError):
            _bind(b"/dev/" + name, read_only=False)
    if os.path.isdir("/dev/pts"):
        _bind(b"/dev/pts", read_only=False)
        os.symlink(b"pts/ptmx", b"dev/ptmx")
    for name, target in _STREAMS:
        os.symlink(target, b"dev/" + name)
    _mkdir(b"dev/shm", 0o1777)


def _make_private_directories() -> None:
    _mkdir(b"tmp", 0o1777)
    _mkdir(b"run")
    _mkdir(b"home")
    if os.path.isdir(b"var/tmp"):
        mounts.mount(b"tmpfs", b"var/tmp", b"tmpfs", _SAFE, b"mode=1777")
    # Names are resolved with a file that is often in /run.
    resolver = os.path.realpath(b"/etc/resolv.conf")
    if resolver.startswith(b"/run/"):
        _bind(resolver, read_only=True)


def _mkdir(path: bytes, mode: int = 0o755) -> None:
    os.makedirs(path or b".", exist_ok=True)
    with suppress(OSError):
        if mode != 0o755:
            os.chmod(path, mode)
