"""The daemon's watcher process: which paths of a workspace changed, and whether a tree is quiet."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.daemon.watcher.watcher_process import Watcher as Watcher

__getattr__ = lazy_names(
    __name__,
    {
        "watcher_process": "Watcher",
    },
)
