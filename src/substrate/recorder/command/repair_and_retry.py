"""Repair a damaged history and retry the work that found the damage."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from substrate.errors import DamagedStoreError
from substrate.recorder.session_context import Place

Value = TypeVar("Value")
#: A part of the history that is missing or of the wrong kind is damage, too.
_DAMAGE = (DamagedStoreError, FileNotFoundError, NotADirectoryError, IsADirectoryError)


def mending(place: Place, work: Callable[[], Value]) -> tuple[Value, list[str]]:
    """The result of `work`, retried after a repair if the history was damaged, and messages.

    Damage must not stop every later command. The damaged history is kept in the quarantine.
    """
    try:
        return work(), []
    except _DAMAGE as error:
        from substrate.recorder.maintenance import mend  # rarely needed

        mended = mend(place, error)
    return work(), mended
