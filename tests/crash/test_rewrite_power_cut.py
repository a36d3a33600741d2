"""The power fails right after a rewrite: files, index, HEAD and snapshot are there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.crash import rewrite_site
from tests.crash.oracle import Cli
from tests.crash.test_power_cut import Disk, disk
from tests.crash.test_rewrite_kill import REWRITE, prepare

__all__ = ["disk"]
pytestmark = [pytest.mark.needs("linux", "loop-devices"), pytest.mark.timeout(0)]


def test_an_acknowledged_rewrite_survives(disk: Disk, private_environment: Path) -> None:
    for number in range(3):
        cli = Cli(disk.mount_point / f"project{number}", private_environment)
        cli.workspace.mkdir()
        prepare(cli, "rewrite")
        subprocess.run(["sync", "-f", str(cli.workspace)], check=True)
        before = rewrite_site.state(cli.workspace)
        cli.ok(*REWRITE)
        after = rewrite_site.state(cli.workspace)
        disk.cut_power()
        assert rewrite_site.state(cli.workspace) == after
        assert rewrite_site.lost_contents(cli.workspace, before.tree) == []
        assert rewrite_site.git(cli.workspace, "fsck", "--strict", "--no-dangling") == b""
        cli.ok("recover", "list")
