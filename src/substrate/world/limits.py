"""Limits on what a command and everything it starts may use together."""

from __future__ import annotations

import os

from substrate.world.probe import Finding


def look() -> Finding:
    """Which kind of cgroups there is, and whether we may make one."""
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        return Finding("cgroups", True, detail="v2")
    if os.path.isdir("/sys/fs/cgroup/pids"):
        return Finding("cgroups", True, detail="v1")
    return Finding(
        "cgroups",
        False,
        "no cgroup file system is mounted; limits use rlimits",
        "mount -t cgroup2 none /sys/fs/cgroup",
    )
