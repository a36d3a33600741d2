"""A keeper of memory: who becomes another program leaves it behind, and nothing else."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.agents import until

pytestmark = pytest.mark.needs("linux")


def _become_with_keeper(words: list[str], tell: int) -> None:
    """In a fork: start a keeper, tell its pid, and become a program."""
    from substrate.system.linux import memory

    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        os.write(tell, b"%d\n" % memory.start_keeper())
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
        os.execv("/bin/sh", ["sh", "-c", *words])
    finally:
        os._exit(99)


def test_a_keeper_keeps_the_memory_and_is_nobodys_child_but_our_parents() -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _become_with_keeper(["kill -STOP $$; ps -o pid= --ppid $$ | wc -l; exit 7"], write)
    os.close(write)
    with os.fdopen(read) as said:
        keeper = int(said.readline())
    assert keeper > 0
    try:
        # Until it is the program, which stops at once.
        os.waitpid(pid, os.WUNTRACED)
        words = Path(f"/proc/{keeper}/cmdline").read_bytes()
        assert words == Path(f"/proc/{os.getpid()}/cmdline").read_bytes()
        assert Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sh\0")
        assert _children(pid) == []
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(keeper, number)
        time.sleep(0.05)
        assert os.waitpid(keeper, os.WNOHANG) == (0, 0)
    finally:
        os.kill(keeper, signal.SIGKILL)
        os.kill(pid, signal.SIGCONT)
    assert os.waitstatus_to_exitcode(os.waitpid(keeper, 0)[1]) == -signal.SIGKILL
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_who_has_a_keeper_can_still_fail_to_become_a_program() -> None:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        from substrate.system.linux import memory

        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        os.write(write, b"%d\n" % memory.start_keeper())
        kept = [bytearray(4096) for _ in range(1000)]
        try:
            os.execv("/nowhere", ["nowhere"])
        except FileNotFoundError:
            os._exit(len(kept) // 100)
    os.close(write)
    with os.fdopen(read) as said:
        keeper = int(said.readline())
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 10
    os.kill(keeper, signal.SIGKILL)
    os.waitpid(keeper, 0)
    until(lambda: not Path(f"/proc/{keeper}").exists())


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
