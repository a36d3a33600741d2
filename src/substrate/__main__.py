"""`python -m substrate` is the installed `substrate` program."""

from __future__ import annotations

import sys

from substrate.cli.startup import substrate

if __name__ == "__main__":
    sys.exit(substrate())
