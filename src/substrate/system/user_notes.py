"""Notes to the user besides a call's answer: one sentence at a time.

A layer that finishes an interrupted operation has no output of its own. The calling program sets
`to`; otherwise the sentences are dropped.
"""

from __future__ import annotations

from collections.abc import Callable

to: Callable[[str], None] | None = None


def tell(sentence: str) -> None:
    if to is not None:
        to(sentence)
