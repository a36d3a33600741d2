"""The first moments of the program, before it can catch anything."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

#: Stops in the middle of importing `main`, and says so.
_SLOW_IMPORT = """
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "substrate.cli.main":
            print("importing", flush=True)
            time.sleep(60)
sys.meta_path.insert(0, Slow())
sys.argv = [sys.argv[1], "--version"]
from substrate.cli import startup as entry
sys.exit(getattr(entry, sys.argv[0])())
"""


@pytest.mark.needs("posix")
@pytest.mark.parametrize("program", ["substrate", "ctx"])
def test_an_interrupt_while_it_is_loading_leaves_no_traceback(program: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _SLOW_IMPORT, program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"importing\n"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (-signal.SIGINT, b"")


@pytest.mark.parametrize("program", ["substrate", "ctx"])
def test_afterwards_interrupts_are_caught_as_ever(program: str) -> None:
    # A call that fails: one that goes well ends the process there and then.
    code = (
        f"import signal, sys; sys.argv = [{program!r}, 'no-such-verb']\n"
        f"from substrate.cli.startup import {program}; assert {program}() != 0\n"
        "sys.exit(signal.getsignal(signal.SIGINT) is not signal.default_int_handler)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
