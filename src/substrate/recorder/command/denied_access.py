"""What a command was denied, for a line on stderr: its own error rarely names the cause."""

from __future__ import annotations

from substrate.model import display
from substrate.trace.redact import redact
from substrate.world import RunOutcome

_SHOWN = 8


def notes_of(outcome: RunOutcome) -> list[str]:
    """One line for connections and one for writes; empty if nothing was denied."""
    notes = []
    if outcome.net_denied:
        names = _listed([redact(scope) for scope in outcome.net_denied])
        mode = outcome.isolation.network
        notes.append(f"refused by --net {mode}: {names} (--net allow:HOST:PORT allows one)")
    if outcome.fs_denied:
        names = _listed([f"{display(path)} ({call})" for path, call in outcome.fs_denied])
        tier = outcome.isolation.tier
        notes.append(f"writes refused by --isolate {tier}: {names} (--writable DIR allows them)")
    return notes


def _listed(names: list[str]) -> str:
    different = list(dict.fromkeys(names))
    more = len(different) - _SHOWN
    shown = ", ".join(different[:_SHOWN])
    return f"{shown} and {more} more" if more > 0 else shown
