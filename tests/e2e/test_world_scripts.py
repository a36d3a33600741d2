"""The scripts around worlds: what a machine lacks, and the validation playbook."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
pytestmark = pytest.mark.needs("linux")


def run(*argv: str, path: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv,
        capture_output=True,
        text=True,
        env={**os.environ, **({"PATH": path} if path else {})},
        timeout=280,
        check=False,
    )


@pytest.mark.needs("netns")
@pytest.mark.needs("overlay")
def test_a_machine_that_can_have_worlds_gets_that_answer() -> None:
    done = run("bash", str(SCRIPTS / "check-container-prereqs"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "worlds are possible here" in done.stdout
    assert "ok       network namespaces" in done.stdout
    assert done.stderr == ""


def test_what_is_missing_is_named_with_its_fix(tmp_path: Path) -> None:
    """A machine without git, whose `unshare` is refused."""
    for name in ("bash", "uname", "id", "sed", "grep", "cat", "stat", "mktemp", "rm", "mkdir"):
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    refused = tmp_path / "unshare"
    refused.write_text("#!/bin/sh\nexit 1\n")
    refused.chmod(0o755)
    done = run("bash", str(SCRIPTS / "check-container-prereqs"), "--quiet", path=str(tmp_path))
    assert done.returncode == 1
    assert "missing  git\n         fix: install git" in done.stdout
    assert "missing  Python 3.11" in done.stdout
    assert "namespaces" in done.stdout
    assert "no world is possible here yet" in done.stdout
    assert "ok " not in done.stdout


@pytest.mark.parametrize("name", ["podman/build.sh", "podman/run.sh", "validate-world"])
def test_scripts_are_sound_and_may_be_run(name: str) -> None:
    script = SCRIPTS / name
    assert os.access(script, os.X_OK)
    assert run("bash", "-n", str(script)).returncode == 0


@pytest.mark.needs("netns")
@pytest.mark.needs("overlay")
@pytest.mark.needs("curl")
def test_the_playbook() -> None:
    program = Path(sys.executable).with_name("substrate")
    done = run("bash", str(SCRIPTS / "validate-world"), "--program", str(program))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
    assert done.stdout.count("ok  ") >= 17
