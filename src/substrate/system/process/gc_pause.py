"""Pausing Python's cyclic garbage collector while many lasting values are created."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the collector inside.

    With several tuples for each of thousands of files it would examine them again and again (a
    third of the whole time).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
