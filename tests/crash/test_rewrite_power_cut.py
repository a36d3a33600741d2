"""The power fails right after a rewrite: files, index, HEAD and snapshot are there."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.crash import harness, rewrite_site
from tests.crash.oracle import Cli
from tests.crash.test_power_cut import Disk, disk
from tests.crash.test_rewrite_kill import JOURNAL, REWRITE, fault, prepare

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


@pytest.mark.needs("strace")
@pytest.mark.parametrize("named", ["rewrite", "restore"])
def test_the_power_fails_in_the_middle(
    named: str, disk: Disk, request: pytest.FixtureRequest
) -> None:
    """Between the journal's first write and its last: old or new, and nothing lost."""
    made = fault(named, disk.mount_point / "site")
    found = rewrite_site.points(made, JOURNAL, "intent.json")
    every = 1 if request.config.getoption("--long") else max(1, len(found) // 5)
    ended: Counter[str] = Counter()
    for point in found[::every]:
        cli = rewrite_site.copy(made, "struck")
        subprocess.run(["sync", "-f", str(cli.workspace)], check=True)
        site = harness.Site(cli, harness.Before(made.directory, {}, {}, ()))
        harness.struck(site, made.words, point, "signal=KILL")
        disk.cut_power()
        begun = rewrite_site.announced(cli)
        try:
            state = rewrite_site.verdict(made, cli)
        except AssertionError as error:
            raise AssertionError(f"{named}, power cut at {point}: {error}") from error
        ended["recovered" if begun else state] += 1
    print(f"\n{named}: the power failed {ended.total()} times, {dict(ended)}")
    assert ended["recovered"]
