"""Control groups of version 2, on a real mount of them; version 1 is met by the contract suite."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from substrate.world.interface import ResourceLimits
from substrate.world.process import limits
from substrate.world.process.limits import Limiter, Setting
from tests.mounts import mounted

pytestmark = pytest.mark.needs("cgroup2")

#: A file of each controller and a harmless value. Which controllers exist depends on those that
#: cgroup version 1 uses on this machine.
_HARMLESS = {
    "pids": ("pids.max", "1000"),
    "memory": ("memory.max", "1073741824"),
    "cpu": ("cpu.max", "100000 100000"),
    "hugetlb": ("hugetlb.2MB.max", "0"),
}


@pytest.fixture
def unified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The hierarchy, mounted; our own group in it is the test's alone."""
    top, ours = tmp_path / "cgroup", f"substrate-test-{os.getpid()}"
    top.mkdir()
    monkeypatch.setattr(limits, "_V2", str(top))
    monkeypatch.setattr(limits, "_OURS", ours)
    with mounted(top, "-t", "cgroup2", "none"):
        yield top
        if (top / ours).exists():
            (top / ours).rmdir()


def controllers(unified: Path) -> set[str]:
    return set((unified / "cgroup.controllers").read_text().split())


def test_it_is_found(unified: Path) -> None:
    found = limits.look()
    assert (found.works, found.detail) == (True, "version 2")


def test_a_group_is_set_admits_and_goes(unified: Path) -> None:
    """The files and their order: controllers handed down, the value, the process, the end."""
    known = [name for name in _HARMLESS if name in controllers(unified)]
    settings = [Setting(name, *_HARMLESS[name]) for name in known]
    before = (unified / "cgroup.subtree_control").read_text()
    limiter = Limiter(ResourceLimits(), "wld_test")
    group = Path(limits._make_v2(settings, "wld_test"))
    limiter._groups = [str(group)]
    try:
        for setting in settings:
            assert (group / setting.file).read_text().split() == setting.value.split()
        with subprocess.Popen(["sleep", "60"]) as sleeper:
            limiter.admit(sleeper.pid)
            assert (group / "cgroup.procs").read_text().split() == [str(sleeper.pid)]
            limiter.close()
            assert group.exists(), "it still has a process"
            sleeper.kill()
        limiter.close()
        assert not group.exists()
    finally:
        names = set((unified / "cgroup.subtree_control").read_text().split()) - set(before.split())
        for name in names:
            (group.parent / "cgroup.subtree_control").write_text(f"-{name}")
            (unified / "cgroup.subtree_control").write_text(f"-{name}")


def test_where_a_controller_is_missing_it_is_reported_and_resources_are_limited(
    unified: Path,
) -> None:
    limiter = Limiter(ResourceLimits(pids=50, memory_bytes=1 << 30, cpus=0.5), "wld_test")
    if {"pids", "memory", "cpu"} <= controllers(unified):
        assert limiter.reason == ""
        group = unified / limits._OURS / "wld_test"
        assert (group / "pids.max").read_text() == "51\n"
        assert (group / "memory.max").read_text() == f"{1 << 30}\n"
        assert (group / "cpu.max").read_text() == "50000 100000\n"
    else:
        assert "no control group" in limiter.reason
        assert "processor time is not limited" in limiter.reason
        assert dict(limiter.resources) == {"RLIMIT_NPROC": 50, "RLIMIT_AS": 1 << 30}
    limiter.close()
    assert not (unified / limits._OURS / "wld_test").exists()
