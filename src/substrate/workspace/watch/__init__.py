"""inotify: which paths changed, and proof that none did."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.workspace.watch.inotify_quiet_proof import StillWatch as StillWatch
    from substrate.workspace.watch.inotify_watch import TreeWatch as TreeWatch

__getattr__ = lazy_names(
    __name__,
    {
        "inotify_quiet_proof": "StillWatch",
        "inotify_watch": "TreeWatch",
    },
)
