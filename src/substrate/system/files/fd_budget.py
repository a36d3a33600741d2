"""How many files one part of the program may keep open."""

from __future__ import annotations


def share(most: int, part: int) -> int:
    """`most`, or the process's limit on open files divided by `part`, whichever is less."""
    try:
        import resource  # not on Windows
    except ImportError:
        return most
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed == resource.RLIM_INFINITY:
        return most
    return max(1, min(most, allowed // part))
