"""Substrate: a flight recorder and time machine for what runs in a project.

`History` is the programming interface; it is loaded on first use, so that importing the
package costs nothing on the command line's hot path.
"""

from __future__ import annotations

# Not from `typing`, which would cost as much as the rest of the thin client.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from substrate.errors import SubstrateError as SubstrateError
    from substrate.history.maintenance import Report as CompactionReport
    from substrate.history.reversal import Outcome
    from substrate.recorder import History, MarkedCommit, RecordedCommand

__version__ = "0.1.0"
__all__ = [
    "CompactionReport",
    "History",
    "MarkedCommit",
    "Outcome",
    "RecordedCommand",
    "SubstrateError",
    "__version__",
]
#: Where each public name is defined, and what it is called there.
_PUBLIC = {
    "CompactionReport": ("substrate.history.maintenance.compact", "Report"),
    "History": ("substrate.recorder.api", "History"),
    "MarkedCommit": ("substrate.recorder.api", "MarkedCommit"),
    "Outcome": ("substrate.history.reversal.restore", "Outcome"),
    "RecordedCommand": ("substrate.recorder.api", "RecordedCommand"),
    "SubstrateError": ("substrate.errors", "SubstrateError"),
}


def __getattr__(name: str) -> object:
    if name in _PUBLIC:
        from importlib import import_module

        module, own = _PUBLIC[name]
        return getattr(import_module(module), own)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
