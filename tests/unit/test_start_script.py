"""`scripts/lib/start.py`, which starts pytest for `scripts/test`: signals, user, environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.as_user import NOBODY

pytestmark = pytest.mark.needs("linux")

START = Path(__file__).resolve().parents[2] / "scripts" / "lib" / "start.py"
_LOOK = ["bash", "-c", "grep -E 'Sig(Ign|Blk)|^[UG]id|^Groups' /proc/self/status; env"]


def _ignore() -> None:
    """As `command &` in a script, `nohup` and supervisors do."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])


def look(*words: str) -> dict[str, str]:
    said = subprocess.run(
        [sys.executable, "-I", "-S", START, *words, *_LOOK], capture_output=True, text=True,
        check=True, preexec_fn=_ignore, env={**os.environ, "CI": "1", "SUBSTRATE_HOME": "/x"},
    ).stdout  # fmt: skip
    return dict(line.replace(":\t", "=", 1).split("=", 1) for line in said.splitlines())


def test_signals_that_the_caller_ignores_are_at_their_defaults() -> None:
    found = look()
    assert (int(found["SigIgn"], 16), int(found["SigBlk"], 16)) == (0, 0)
    assert found["SUBSTRATE_HOME"] == "/x"


@pytest.mark.needs("other-user")
def test_another_user_gets_nothing_of_roots() -> None:
    found = look("--as", f"{NOBODY}:{NOBODY}:/nowhere")
    assert found["Uid"].split() == found["Gid"].split() == [str(NOBODY)] * 4
    assert found["Groups"].strip() == ""
    assert (found["HOME"], found["CI"]) == ("/nowhere", "1")
    assert "SUBSTRATE_HOME" not in found
    assert int(found["SigIgn"], 16) == 0
