"""What a command must not reach or change outside the workspace, found on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from substrate.system import agent_place
from substrate.system.environment import Environment
from substrate.system.files import real_path
from substrate.world.protocol import Wanted

#: Whoever can talk to one of these can have programs run outside the world.
_HOST_SERVICES = (
    *("/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock"),
    *("/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/buildkit/buildkitd.sock"),
    *("/run/dbus/system_bus_socket", "/run/systemd/private", "/run/snapd.socket"),
    *("/run/libvirt/libvirt-sock", "/var/lib/lxd/unix.socket", "/var/lib/incus/unix.socket"),
)
_USER_SERVICES = ("bus", "docker.sock", "podman/podman.sock", "systemd/private")
#: Terminals and editors that take orders: what they are told to type or run, runs outside.
_SESSION_SERVICES = ("tmux-{uid}", "screens/S-{name}", "emacs{uid}", "zellij-{uid}")
_USER_SESSION_SERVICES = ("emacs", "zellij")
_SESSION_SOCKETS = (
    *("NVIM", "NVIM_LISTEN_ADDRESS", "WEZTERM_UNIX_SOCKET", "SWAYSOCK", "I3SOCK"),
    *("VSCODE_IPC_HOOK_CLI", "VSCODE_GIT_IPC_HANDLE", "ZELLIJ_SOCKET_DIR"),
)
_ADDRESSES = (
    "DBUS_SESSION_BUS_ADDRESS",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "DOCKER_HOST",
    "KITTY_LISTEN_ON",
)
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
    """What does not open with the directories that `guarded` and `full` leave open."""
    if wanted.tier not in ("guarded", "full"):
        return ()
    return tuple(os.fsencode(path) for path in wanted.read_only if os.path.exists(path))


def masked(environment: Environment, *, allow_host_services: bool) -> tuple[bytes, ...]:
    """Sockets that lead out of the world, and other worlds."""
    home = real_path(environment.substrate_home)
    paths = [_ROOTS_SOCKET, environment.get("SUBSTRATE_SOCKET") or _ROOTS_SOCKET]
    paths += [os.fsdecode(agent_place.directory(os.fsencode(path))) for path in paths]
    paths += [os.path.join(home, "run"), os.path.join(home, "worlds")]
    if not allow_host_services:
        paths += _HOST_SERVICES
        runtime = environment.get("XDG_RUNTIME_DIR")
        if runtime:
            names = (*_USER_SERVICES, *_USER_SESSION_SERVICES)
            paths += [os.path.join(runtime, name) for name in names]
        paths += _session_services(environment)
        for name in _ADDRESSES:
            paths += _socket_paths(environment.get(name) or "")
    found = {real_path(path) for path in paths if os.path.lexists(path)}
    return tuple(os.fsencode(path) for path in sorted(found))


def _session_services(environment: Environment) -> list[str]:
    """Where tmux, screen, and editors that can be remote-controlled listen for this user."""
    name = environment.get("USER") or environment.get("LOGNAME") or "root"
    tops = {*_TEMPORARY, environment.get("TMUX_TMPDIR") or "", environment.get("TMPDIR") or ""}
    found = [f"/run/screen/S-{name}", environment.get("SCREENDIR") or ""]
    for top in tops:
        found += [
            os.path.join(top, one.format(uid=os.geteuid(), name=name)) for one in _SESSION_SERVICES
        ]
    # TMUX=/tmp/tmux-0/default,4711,0
    found.append((environment.get("TMUX") or "").partition(",")[0])
    found += [environment.get(variable) or "" for variable in _SESSION_SOCKETS]
    found += _socket_paths((environment.get("KITTY_LISTEN_ON") or "").replace(":/", ":///", 1))
    return [path for path in found if path.startswith("/")]


def writable(environment: Environment, wanted: Wanted) -> tuple[bytes, ...]:
    """Where the tiers that shut everything still let a command write.

    `guarded`: temporary directories, and what was declared. `full` has temporary directories of
    its own and gets what was declared.
    """
    paths = [str(path) for path in wanted.writable]
    if wanted.tier == "guarded":
        paths += [*_TEMPORARY, *_own_temporary(environment, wanted.root)]
    found = {real_path(path) for path in paths if os.path.isdir(path)}
    # A command may have put a link there, to have what it leads to opened for the next one.
    for path in map(str, wanted.git_writable):
        if real_path(path) == path and os.path.isdir(path):
            found.add(path)
    # One that lies in another needs no mount of its own, nor does what holds the workspace: the
    # view is its own mount.
    return tuple(
        os.fsencode(path)
        for path in sorted(found)
        if not any(path != other and _is_below(path, other) for other in found)
    )


def _own_temporary(environment: Environment, root: Path) -> list[str]:
    """TMPDIR; in what is open anyway it needs no opening, and a command may have made it a link."""
    path = os.path.normpath(environment.get("TMPDIR") or _TEMPORARY[0])
    is_open = any(_is_below(path, top) for top in (*_TEMPORARY, str(root)))
    return [] if is_open else [path]


def readable(environment: Environment, wanted: Wanted) -> tuple[bytes, ...]:
    """Where programs lie that the system's directories do not hold: what `full` adds to them."""
    found = [real_path(path) for path in wanted.readable]
    for entry in (environment.get("PATH") or "").split(os.pathsep):
        path = real_path(entry) if entry.startswith("/") else ""
        if not os.path.isdir(path) or path.startswith(_SHOWN_ANYWAY):
            continue
        # What lies in the workspace a command may have written, to have more shown to the next one.
        is_inside = _is_below(os.path.normpath(entry), str(wanted.root))
        if is_inside and not _is_below(path, str(wanted.root)):
            continue
        # A Python environment is more than its bin: its libraries, and the Python it was made of.
        base = _python_of(os.path.dirname(path))
        if is_inside and base is not None and not _is_python(base):
            continue
        found += [path] if base is None else [os.path.dirname(path), base]
    shown = [path for path in found if not path.startswith(_SHOWN_ANYWAY) and path != "/"]
    return tuple(os.fsencode(path) for path in sorted(set(shown)))


def _python_of(environment: str) -> str | None:
    """The installation behind a virtual environment; None if it is none."""
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
    """Whether a Python's standard library lies there."""
    return any(Path(base).glob("lib*/py*/os.py"))


def _own_program(environment: Environment, root: Path) -> tuple[str, ...]:
    package = os.path.dirname(os.path.dirname(real_path(__file__)))
    if _is_below(package, str(root)):
        return ()  # the project is Substrate itself: its view protects it
    prefix = real_path(sys.prefix)
    # An environment made for us alone may be shut whole. One that the user works in may not
    # (they install into it), and neither may /usr.
    alone = sys.prefix != sys.base_prefix and not _is_below(prefix, str(root))
    in_use = environment.get("VIRTUAL_ENV")
    if alone and (in_use is None or real_path(in_use) != prefix):
        return (prefix, package) if not _is_below(package, prefix) else (prefix,)
    return (package,)


def _socket_paths(address: str) -> list[str]:
    """The paths in ``unix:path=/run/bus,guid=…;…`` or ``unix:///run/docker.sock``."""
    found = []
    for part in address.split(";"):
        rest = part.removeprefix("unix:")
        if rest == part:
            continue
        if rest.startswith("//"):
            found.append(rest[2:])
        found += [
            pair.removeprefix("path=") for pair in rest.split(",") if pair.startswith("path=")
        ]
    return [path for path in found if path.startswith("/")]


def _holds(path: str, root: Path) -> bool:
    """Whether making `path` read-only would shut the workspace, which lies in it."""
    return _is_below(str(root), path)


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
