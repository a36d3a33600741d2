"""Every snapshot and trash entry in one list: what `recover` shows and restores."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.recorder.recover import trash_views as trash_views
    from substrate.recorder.recover.found_snapshot import Found as Found
    from substrate.recorder.recover.recoveries import Snapshots as Snapshots
    from substrate.recorder.recover.recoveries import opened as opened

__getattr__ = lazy_names(
    __name__,
    {
        "found_snapshot": "Found",
        "recoveries": "Snapshots, opened",
    },
)
