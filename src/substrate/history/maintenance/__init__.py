"""Retention, compaction, checks, repair and crash recovery."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.history.maintenance import compact as compact
    from substrate.history.maintenance import crash_recovery as crash_recovery
    from substrate.history.maintenance import disk_cap as disk_cap
    from substrate.history.maintenance import forget as forget
    from substrate.history.maintenance import metrics as metrics
    from substrate.history.maintenance import repair as repair
    from substrate.history.maintenance.compact import Report as Report
    from substrate.history.maintenance.crash_recovery import after_boot as after_boot
    from substrate.history.maintenance.crash_recovery import settle as settle
    from substrate.history.maintenance.crash_recovery import sweep as sweep
    from substrate.history.maintenance.disk_cap import CapState as CapState
    from substrate.history.maintenance.forget import Survey as Survey
    from substrate.history.maintenance.fsck import Problem as Problem
    from substrate.history.maintenance.lost_disk import is_torn as is_torn
    from substrate.history.maintenance.metrics import disk_bytes as disk_bytes
    from substrate.history.maintenance.repair import Repaired as Repaired
    from substrate.history.maintenance.retention import Decision as Decision
    from substrate.history.maintenance.retention import Range as Range

__getattr__ = lazy_names(
    __name__,
    {
        "compact": "Report",
        "crash_recovery": "after_boot, settle, sweep",
        "disk_cap": "CapState",
        "forget": "Survey",
        "fsck": "Problem",
        "lost_disk": "is_torn",
        "metrics": "disk_bytes",
        "repair": "Repaired",
        "retention": "Decision, Range",
    },
)
