"""Where the installed program begins: the rest is imported with care for an early Ctrl-C.

Python turns an interrupt into an exception at once, and in the middle of an import nobody is
there to catch it: the user would see a traceback. Until `main` can catch it, the system's own
way holds: the process just ends.
"""

from __future__ import annotations

import signal


def substrate() -> int:
    """Run one call of `substrate` and return its exit status."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not where it is ignored, as below nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from substrate.cli import main

    signal.signal(signal.SIGINT, before)
    return main.substrate()
