"""Limits on what a command and everything it starts may use together.

By the command's own control group where we may make one (version 2, else 1: usually as root).
Otherwise by resource limits, which count for each process or user, and that is reported.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import NamedTuple

from substrate.world.capabilities import Finding
from substrate.world.interface import ResourceLimits

_V2 = "/sys/fs/cgroup"
_OURS = "substrate"
_PERIOD_US = 100_000


class Setting(NamedTuple):
    """One file of a control group; `needed` is false where only some kernels have it."""

    controller: str
    file: str
    value: str
    needed: bool = True


class Limiter:
    """The limits of one command: `admit` its first process, `close` when all have ended."""

    def __init__(self, limits: ResourceLimits, name: str) -> None:
        self._limits = limits
        self._groups: list[str] = []
        #: Which limits could not be enforced as asked; empty if all are.
        self.reason = ""
        #: For the command's own process, where there are no control groups.
        self.resources: tuple[tuple[str, int], ...] = ()
        if limits == ResourceLimits():
            return
        try:
            self._groups = _make_groups(limits, name)
        except OSError as error:
            self.resources = _resources(limits)
            self.reason = _shortfall(limits, error.strerror or str(error))

    def admit(self, pid: int) -> None:
        for group in self._groups:
            _write(os.path.join(group, "cgroup.procs"), str(pid))

    def close(self) -> None:
        """Remove the groups; one that still has processes stays until a later command's end."""
        for group in self._groups:
            for name in (group, *_neighbours(group)):
                with suppress(OSError):
                    os.rmdir(name)


def look() -> Finding:
    """Which version of control groups there is, and whether we may make one."""
    version = _version()
    if version is None:
        why = "no control groups are mounted; limits count for each process"
        return Finding("cgroups", False, why, "mount -t cgroup2 none /sys/fs/cgroup")
    parent = _V2 if version == 2 else os.path.join(_V2, "pids")
    if not os.access(parent, os.W_OK):
        why = f"cgroup v{version}, not delegated to you; limits count for each process"
        return Finding("cgroups", False, why, "run as root, or in a delegated scope")
    return Finding("cgroups", True, detail=f"version {version}")


def apply_resources(resources: tuple[tuple[str, int], ...]) -> None:
    """In the command's process, before exec."""
    if not resources:
        return
    import resource

    for name, value in resources:
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))


def _version() -> int | None:
    if os.path.exists(os.path.join(_V2, "cgroup.controllers")):
        return 2
    return 1 if os.path.isdir(os.path.join(_V2, "pids")) else None


def _make_groups(limits: ResourceLimits, name: str) -> list[str]:
    version = _version()
    if version is None:
        raise FileNotFoundError(2, "no control groups are mounted")
    settings = _settings(limits, version)
    if version == 2:
        return [_make_v2(settings, name)]
    made = []
    for controller in sorted({setting.controller for setting in settings}):
        group = os.path.join(_V2, controller, _OURS, name)
        os.makedirs(group, 0o755, exist_ok=True)
        made.append(group)
        _set(group, [setting for setting in settings if setting.controller == controller])
    return made


def _make_v2(settings: list[Setting], name: str) -> str:
    wanted = " ".join(sorted({f"+{setting.controller}" for setting in settings}))
    parent = os.path.join(_V2, _OURS)
    os.makedirs(parent, 0o755, exist_ok=True)
    for directory in (_V2, parent):
        _write(os.path.join(directory, "cgroup.subtree_control"), wanted)
    group = os.path.join(parent, name)
    os.makedirs(group, 0o755, exist_ok=True)
    _set(group, settings)
    return group


def _settings(limits: ResourceLimits, version: int) -> list[Setting]:
    found = []
    if limits.pids is not None:
        # The world's own first process counts, too.
        found.append(Setting("pids", "pids.max", str(limits.pids + 1)))
    if limits.memory_bytes is not None:
        size = str(limits.memory_bytes)
        if version == 2:
            found.append(Setting("memory", "memory.max", size))
            found.append(Setting("memory", "memory.swap.max", "0", needed=False))
        else:
            found.append(Setting("memory", "memory.limit_in_bytes", size))
            found.append(Setting("memory", "memory.memsw.limit_in_bytes", size, needed=False))
    if limits.cpus is not None:
        quota = max(1000, int(limits.cpus * _PERIOD_US))
        if version == 2:
            found.append(Setting("cpu", "cpu.max", f"{quota} {_PERIOD_US}"))
        else:
            found.append(Setting("cpu", "cpu.cfs_period_us", str(_PERIOD_US)))
            found.append(Setting("cpu", "cpu.cfs_quota_us", str(quota)))
    return found


def _set(group: str, settings: list[Setting]) -> None:
    for setting in settings:
        try:
            _write(os.path.join(group, setting.file), setting.value)
        except OSError:
            if setting.needed:
                raise


def _resources(limits: ResourceLimits) -> tuple[tuple[str, int], ...]:
    found = []
    if limits.pids is not None:
        found.append(("RLIMIT_NPROC", limits.pids))
    if limits.memory_bytes is not None:
        found.append(("RLIMIT_AS", limits.memory_bytes))
    return tuple(found)


def _shortfall(limits: ResourceLimits, why: str) -> str:
    parts = []
    if limits.pids is not None:
        parts.append("processes are counted with the user's others")
    if limits.memory_bytes is not None:
        parts.append("memory is limited for each process")
    if limits.cpus is not None:
        parts.append("processor time is not limited")
    return f"no control group ({why}): {', '.join(parts)}"


def _neighbours(group: str) -> list[str]:
    """Groups of commands whose processes ended later: rmdir removes only empty groups."""
    parent = os.path.dirname(group)
    try:
        return [os.path.join(parent, name) for name in os.listdir(parent) if name[:4] == "wld_"]
    except OSError:
        return []


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode("ascii"))
    finally:
        os.close(fd)
