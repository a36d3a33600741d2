"""A command that writes down every signal it gets; TERM, or a line ``exit N`` on stdin, ends it.

Usage: signal_reporter.py LOG

Python runs a handler once for signals that come together; LOG.raw gets a byte for every one.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType

log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

raw = os.open(sys.argv[1] + ".raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o600)
signal.set_wakeup_fd(raw)


def report(signum: int, _frame: FrameType | None) -> None:
    os.write(log, f"{signal.Signals(signum).name}\n".encode())
    if signum == signal.SIGTERM:
        sys.exit(7)


for name in ("SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGCONT"):
    signal.signal(getattr(signal, name), report)
os.write(log, f"pid {os.getpid()}\n".encode())
try:
    for line in sys.stdin:
        if line.startswith("stop"):
            os.kill(os.getpid(), signal.SIGSTOP)
        if line.startswith("exit"):
            sys.exit(int(line.split()[1]))
except OSError:  # the terminal went away
    pass
while True:
    time.sleep(0.05)
