"""Sockets of services that run programs outside the world: container engines, buses, terminals.

The lists are data. `tests/security/test_host_services.py` listens at each of these places.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

from substrate.system import Environment
from substrate.system.files import read_bytes_or_none

#: The machine's own.
SYSTEM = (
    *("/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock"),
    *("/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/buildkit/buildkitd.sock"),
    *("/run/k3s/containerd/containerd.sock", "/run/cri-dockerd.sock", "/run/nri/nri.sock"),
    *("/run/dbus/system_bus_socket", "/run/systemd/private", "/run/snapd.socket"),
    *("/run/libvirt/libvirt-sock", "/run/libvirt/virtqemud-sock", "/run/libvirt/virtlxcd-sock"),
    *("/var/lib/lxd/unix.socket", "/var/lib/incus/unix.socket", "/run/incus/unix.socket"),
    *("/var/snap/lxd/common/lxd/unix.socket", "/run/guest-services/docker.sock"),
)
#: Below the user's runtime directory: ``XDG_RUNTIME_DIR``, and ``/run/user/UID`` without it.
RUNTIME = (
    *("bus", "docker.sock", "podman/podman.sock", "systemd/private", "at-spi"),
    *("containerd/containerd.sock", "containerd-rootless", "buildkit/buildkitd.sock"),
    *("buildkit-default/buildkitd.sock", "crio/crio.sock", "libvirt/libvirt-sock"),
    *("libvirt/virtqemud-sock", "emacs", "zellij"),
)
#: Below the user's home; ``*`` is any name.
HOME = (
    *(".docker/*/docker.sock", ".docker/docker.sock", ".docker/*/docker-cli.sock"),
    *(".colima/*/docker.sock", ".colima/docker.sock", ".colima/*/containerd.sock"),
    *(".config/colima/*/docker.sock", ".lima/*/sock/docker.sock", ".lima/*/sock/podman.sock"),
    *(".rd/docker.sock", ".orbstack/run/docker.sock", ".podman/podman.sock"),
    *(".local/share/containers/podman/machine/podman.sock",),
    *(".local/share/containers/podman/machine/*/podman.sock", ".minikube/*/docker.sock"),
)
#: Variables that hold an address: ``unix:///run/docker.sock``, ``unix:path=/run/bus;…``, a path.
ADDRESSES = (
    *("DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "DBUS_STARTER_ADDRESS"),
    *("AT_SPI_BUS_ADDRESS", "DOCKER_HOST", "CONTAINER_HOST", "BUILDKIT_HOST"),
    *("CONTAINERD_ADDRESS", "CONTAINER_RUNTIME_ENDPOINT", "KITTY_LISTEN_ON"),
)
#: Terminals and editors that accept commands: what they type or run, runs outside.
_SESSION_SERVICES = ("tmux-{uid}", "screens/S-{name}", "emacs{uid}", "zellij-{uid}")
_SESSION_SOCKETS = (
    *("NVIM", "NVIM_LISTEN_ADDRESS", "WEZTERM_UNIX_SOCKET", "SWAYSOCK", "I3SOCK"),
    *("VSCODE_IPC_HOOK_CLI", "VSCODE_GIT_IPC_HANDLE", "ZELLIJ_SOCKET_DIR"),
)
_TEMPORARY = ("/tmp", "/var/tmp", "/dev/shm")
#: Below the user's home: files that name an engine's socket, as podman keeps its connections.
CONNECTIONS = (".config/containers/podman-connections.json", ".config/containers/containers.conf")
_SOCKET_NAMED = re.compile(r"""["']unix://(/[^"'\\]+)["']""")
_MOST_NAMING_BYTES = 65536
#: What a bus's clients understand as "there is none".
DISABLED = "disabled:"


def paths(environment: Environment) -> list[str]:
    """Where such services may listen; most of these paths do not exist."""
    found = [*SYSTEM]
    for directory in _runtime_directories(environment):
        found += [os.path.join(directory, name) for name in RUNTIME]
    if environment.home is not None:
        found += _in_home(str(environment.home))
    found += _docker_contexts(environment.get("DOCKER_CONFIG") or "")
    found += _session_services(environment)
    for name in ADDRESSES:
        found += socket_paths(environment.get(name) or "")
    return found


def abstract_names(environment: Environment) -> tuple[bytes, ...]:
    """Abstract sockets that the variables name. No mount hides these: they have no path."""
    found: list[str] = []
    for variable in ADDRESSES:
        for part in (environment.get(variable) or "").split(";"):
            pairs = part.removeprefix("unix:").split(",") if part.startswith("unix:") else []
            found += [p.removeprefix("abstract=") for p in pairs if p.startswith("abstract=")]
    return tuple(sorted({os.fsencode(unquote(name, errors="surrogateescape")) for name in found}))


def without_abstract(variables: dict[str, str]) -> dict[str, str]:
    """The environment for a command that must not reach them."""
    named = [name for name in ADDRESSES if "abstract=" in variables.get(name, "")]
    return {**variables, **dict.fromkeys(named, DISABLED)}


def socket_paths(address: str) -> list[str]:
    """The paths in ``unix:path=/run/bus,guid=…;…``, ``unix:///run/docker.sock`` or ``/run/x``."""
    found = [address] if address.startswith("/") else []
    for part in address.split(";"):
        rest = part.removeprefix("unix:")
        if rest == part:
            continue
        if rest.startswith("/"):
            found.append("/" + rest.lstrip("/"))
        pairs = [pair.removeprefix("path=") for pair in rest.split(",") if pair[:5] == "path="]
        found += [unquote(pair, errors="surrogateescape") for pair in pairs]
    return [path for path in found if path.startswith("/")]


def _runtime_directories(environment: Environment) -> list[str]:
    named = environment.get("XDG_RUNTIME_DIR") or ""
    # As root without confinement, a command could talk to every user's services.
    everyone = map(str, Path("/run/user").glob("*"))
    users = everyone if os.geteuid() == 0 else [f"/run/user/{os.geteuid()}"]
    return [path for path in dict.fromkeys((named, *users)) if path.startswith("/")]


def _in_home(home: str) -> list[str]:
    found: list[str] = []
    for pattern in HOME:
        above, star, _ = pattern.partition("/*")
        if not star:
            found.append(os.path.join(home, pattern))
        elif os.path.isdir(os.path.join(home, above)):
            found += map(str, Path(home).glob(pattern))
    found += _docker_contexts(os.path.join(home, ".docker"))
    return found + _named_in(Path(home, name) for name in CONNECTIONS)


def _docker_contexts(settings: str) -> list[str]:
    """The sockets that ``docker context`` knows; `settings` is ``~/.docker`` or DOCKER_CONFIG."""
    directory = os.path.join(settings, "contexts/meta")
    if not settings.startswith("/") or not os.path.isdir(directory):
        return []
    return _named_in(Path(directory).glob("*/meta.json"))


def _named_in(files: Iterable[Path]) -> list[str]:
    found: list[str] = []
    for path in files:
        with suppress(OSError):
            said = read_bytes_or_none(path, _MOST_NAMING_BYTES) or b""
            found += _SOCKET_NAMED.findall(os.fsdecode(said))
    return found


def _session_services(environment: Environment) -> list[str]:
    """Where tmux, screen, and editors that can be remote-controlled listen for this user."""
    name = environment.get("USER") or environment.get("LOGNAME") or _own_name()
    tops = {*_TEMPORARY, environment.get("TMUX_TMPDIR") or "", environment.get("TMPDIR") or ""}
    found = [f"/run/screen/S-{name}", environment.get("SCREENDIR") or ""]
    for top in tops:
        found += [
            os.path.join(top, one.format(uid=os.geteuid(), name=name)) for one in _SESSION_SERVICES
        ]
    # TMUX=/tmp/tmux-0/default,4711,0
    found.append((environment.get("TMUX") or "").partition(",")[0])
    found += [environment.get(variable) or "" for variable in _SESSION_SOCKETS]
    return [path for path in found if path.startswith("/")]


def _own_name() -> str:
    import pwd  # not on Windows

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return "root"
