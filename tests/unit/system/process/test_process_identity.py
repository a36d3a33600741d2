from __future__ import annotations

import os
import subprocess
import sys

import pytest

from substrate.system.process.process_identity import boot_id, pid_alive, process_start_token


def test_boot_id_is_one_per_boot() -> None:
    assert boot_id() == boot_id()
    if sys.platform == "linux":
        assert len(boot_id()) == 36


def test_a_running_process_is_alive_and_an_ended_one_is_not() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert pid_alive(child.pid)
    finally:
        child.kill()
        child.wait()
    assert not pid_alive(child.pid)
    assert pid_alive(os.getpid())


@pytest.mark.parametrize("pid", [0, -1, 2**40])
def test_what_cannot_be_a_pid_is_not_alive(pid: int) -> None:
    assert not pid_alive(pid)


@pytest.mark.needs("linux")
def test_a_zombie_is_not_alive() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # ended, not yet reaped
    try:
        assert not pid_alive(pid)
    finally:
        os.waitpid(pid, 0)


@pytest.mark.needs("linux")
def test_start_tokens_differ_between_processes() -> None:
    mine = process_start_token(os.getpid())
    assert mine and mine == process_start_token(os.getpid())
    assert mine != process_start_token(1)
    assert process_start_token(2**22 + 1) == ""
