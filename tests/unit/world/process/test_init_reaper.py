"""What a world's first process hears of the others."""

from __future__ import annotations

import os
import signal
import time

import pytest

from substrate.system.process import fd_channel as channels
from substrate.world.process.init_reaper import Children

pytestmark = pytest.mark.needs("linux")


def _first_process() -> int:
    """Whether it has heard how its child ended, as an exit status."""
    _, theirs = other_end = channels.pair()
    children = Children(theirs)
    command = os.fork()
    if command == 0:
        os._exit(7)
    os.waitid(os.P_PID, command, os.WEXITED | os.WNOWAIT)
    children.rehearse()
    status = children.wait_for(command)
    del other_end
    return 0 if os.waitstatus_to_exitcode(status) == 7 else 1


def test_a_command_that_ended_during_the_rehearsal_is_reported() -> None:
    """The next call may come, and its command be over, before a world made ahead is done."""
    first = os.fork()
    if first == 0:
        answer = 2
        try:
            answer = _first_process()
        finally:
            os._exit(answer)
    for _ in range(2000):
        pid, status = os.waitpid(first, os.WNOHANG)
        if pid:
            break
        time.sleep(0.01)
    else:
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)
        pytest.fail("it waits for ever")
    assert os.waitstatus_to_exitcode(status) == 0
