"""Substrate: a flight recorder and time machine for what runs in a project.

`History` is the programming interface; it is loaded on first use, so that importing the
package costs nothing on the command line's hot path.
"""

from __future__ import annotations

# Not from `typing`, which would cost as much as the rest of the thin client.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from substrate.recorder.api import History as History

__version__ = "0.1.0"
__all__ = ["History", "__version__"]


def __getattr__(name: str) -> object:
    if name == "History":
        from importlib import import_module

        return import_module("substrate.recorder.api").History
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
