"""What a command must not reach or change outside the workspace, found on this machine."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

import substrate
from substrate.system import Environment, daemon_paths
from substrate.system.files import real_path
from substrate.system.sync import liveness_locks
from substrate.world.interface import Wanted
from substrate.world.process import host_services

_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
_SHOWN_ANYWAY = ("/usr/", "/bin", "/sbin", "/lib", "/opt/", "/etc/", "/var/", "/nix/", "/gnu/")
_ROOTS_SOCKET = "/run/substrate.sock"


def read_only(environment: Environment, root: Path) -> tuple[bytes, ...]:
    """Our own home, and our own program: a command must not change what runs after it."""
    home = real_path(environment.substrate_home)
    return tuple(
        os.fsencode(path)
        for path in (home, *_own_program(environment, root))
        if os.path.isdir(path) and not _holds(path, root)
    )


def stays_shut(wanted: Wanted) -> tuple[bytes, ...]:
    """Paths that stay read-only in the directories that `guarded` and `full` leave writable."""
    if wanted.tier not in ("guarded", "full"):
        return ()
    return tuple(os.fsencode(path) for path in wanted.read_only if os.path.exists(path))


def masked(environment: Environment, *, allow_host_services: bool) -> tuple[bytes, ...]:
    """Sockets that lead out of the world, other worlds, and the file whose locks show who lives: a
    process that can read it can lock it, too."""
    home = real_path(environment.substrate_home)
    # Otherwise the list changes after the first command, and no world made ahead would fit. What
    # does not exist is not hidden, and would appear in the world as soon as somebody makes it.
    liveness_locks.ensure(Path(home))
    with suppress(OSError):
        os.mkdir(os.path.join(home, "run"), 0o700)
    paths = [_ROOTS_SOCKET, environment.get("SUBSTRATE_SOCKET") or _ROOTS_SOCKET]
    paths += [os.fsdecode(daemon_paths.directory(os.fsencode(path))) for path in paths]
    paths += [os.path.join(home, name) for name in ("run", "worlds", liveness_locks.NAME)]
    if not allow_host_services:
        paths += host_services.paths(environment)
    found = {real_path(path) for path in paths if os.path.lexists(path)}
    return tuple(os.fsencode(path) for path in sorted(found))


def writable(environment: Environment, wanted: Wanted) -> tuple[bytes, ...]:
    """Where a command may write in the tiers that make everything else read-only.

    `guarded`: temporary directories, and declared ones. `full` has its own temporary directories
    and gets the declared ones.
    """
    paths = [str(path) for path in wanted.writable]
    if wanted.tier == "guarded":
        paths += [*_TEMPORARY, *_own_temporary(environment, wanted.root)]
    found = {real_path(path) for path in paths if os.path.isdir(path)}
    # A command may have put a symlink there, to have its target made writable for the next command.
    for path in map(str, wanted.git_writable):
        if real_path(path) == path and os.path.isdir(path):
            found.add(path)
    # A directory inside another needs no mount of its own, nor does one that contains the
    # workspace: the view is its own mount.
    return tuple(
        os.fsencode(path)
        for path in sorted(found)
        if not any(path != other and _is_below(path, other) for other in found)
    )


def _own_temporary(environment: Environment, root: Path) -> list[str]:
    """TMPDIR, unless it is in a writable directory, where a command may have made it a link."""
    path = os.path.normpath(environment.get("TMPDIR") or _TEMPORARY[0])
    is_open = any(_is_below(path, top) for top in (*_TEMPORARY, str(root)))
    return [] if is_open else [path]


def readable(environment: Environment, wanted: Wanted) -> tuple[bytes, ...]:
    """Directories of programs outside the system's directories: `full` shows them as well."""
    found = [real_path(path) for path in wanted.readable]
    for entry in (environment.get("PATH") or "").split(os.pathsep):
        path = real_path(entry) if entry.startswith("/") else ""
        if not os.path.isdir(path) or path.startswith(_SHOWN_ANYWAY):
            continue
        # A command may have written what is in the workspace, to have more shown to the next one.
        is_inside = _is_below(os.path.normpath(entry), str(wanted.root))
        if is_inside and not _is_below(path, str(wanted.root)):
            continue
        # A Python environment is more than its bin: its libraries, and the Python it was made from.
        base = _python_of(os.path.dirname(path))
        if is_inside and base is not None and not _is_python(base):
            continue
        found += [path] if base is None else [os.path.dirname(path), base]
    shown = [path for path in found if not path.startswith(_SHOWN_ANYWAY) and path != "/"]
    return tuple(os.fsencode(path) for path in sorted(set(shown)))


def _python_of(environment: str) -> str | None:
    """The installation behind a virtual environment; None if it is not one."""
    try:
        with open(os.path.join(environment, "pyvenv.cfg"), encoding="utf-8") as file:
            lines = [line.partition("=") for line in file]
    except OSError:
        return None
    for name, _, value in lines:
        if name.strip() == "home":
            return os.path.dirname(real_path(value.strip()))
    return None


def _is_python(base: str) -> bool:
    """Whether a Python's standard library is there."""
    return any(Path(base).glob("lib*/py*/os.py"))


def _own_program(environment: Environment, root: Path) -> tuple[str, ...]:
    package = os.path.dirname(real_path(substrate.__file__))
    if _is_below(package, str(root)):
        return ()  # the project is Substrate itself: its view protects it
    prefix = real_path(sys.prefix)
    # An environment made for us alone may be read-only as a whole. One that the user works in may
    # not (they install into it), and neither may /usr.
    alone = sys.prefix != sys.base_prefix and not _is_below(prefix, str(root))
    in_use = environment.get("VIRTUAL_ENV")
    if alone and (in_use is None or real_path(in_use) != prefix):
        return (prefix, package) if not _is_below(package, prefix) else (prefix,)
    return (package,)


def _holds(path: str, root: Path) -> bool:
    """Whether making `path` read-only would include the workspace, which is inside it."""
    return _is_below(str(root), path)


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
