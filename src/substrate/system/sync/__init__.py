"""Locks between processes, and the time that a store has seen pass."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.system.sync import liveness_locks as liveness_locks
    from substrate.system.sync import store_age as store_age
    from substrate.system.sync.locks import FileLock as FileLock
    from substrate.system.sync.store_age import DAY_NS as DAY_NS
    from substrate.system.sync.store_age import OwnDays as OwnDays
    from substrate.system.sync.store_age import seen_now as seen_now

__getattr__ = lazy_names(
    __name__,
    {
        "locks": "FileLock",
        "store_age": "DAY_NS, OwnDays, seen_now",
    },
)
