"""`substrate doctor`: what works here, and what would make the rest work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.capabilities import present


def doctor(cwd: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "substrate", "doctor", *words],
        cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, **env},
    )  # fmt: skip


def test_every_tier_and_every_finding_is_there(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--json")
    answer = json.loads(done.stdout)
    tiers = {row["tier"]: row for row in answer["tiers"]}
    assert list(tiers) == ["none", "workspace", "guarded", "full"]
    found = {row["name"]: row for row in answer["findings"]}
    assert set(found) >= {
        "overlay", "fuse-overlayfs", "copy-diff", "kernel", "user-namespaces", "cgroups",
        "landlock", "seccomp", "nft", "git",
    }  # fmt: skip
    assert done.returncode == (0 if tiers["workspace"]["works"] else 1)
    for row in found.values():
        assert row["works"] or row["why"]


@pytest.mark.needs("world-overlay")
def test_it_says_yes_where_worlds_work(tmp_path: Path) -> None:
    done = doctor(tmp_path)
    assert done.returncode == 0
    assert "workspace  yes  overlay" in done.stdout
    assert present("world-overlay")


def test_a_gap_has_a_command_that_closes_it(tmp_path: Path) -> None:
    """With nothing on PATH git is missing, and the answer names its package."""
    done = doctor(tmp_path, "--json", PATH=str(tmp_path))
    git = next(row for row in json.loads(done.stdout)["findings"] if row["name"] == "git")
    assert (git["works"], git["fix"]) == (False, "apt-get install git")
    nft = next(row for row in json.loads(done.stdout)["findings"] if row["name"] == "nft")
    assert (nft["works"], nft["fix"]) == (False, ""), "nothing needs it: that is no gap"
