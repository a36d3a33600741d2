"""What this machine can do, found by trying, and which tiers it can therefore enforce."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.world.capabilities import machine_probe as machine_probe
    from substrate.world.capabilities.machine_probe import Finding as Finding
    from substrate.world.capabilities.machine_probe import finding as finding
    from substrate.world.capabilities.machine_probe import probe as probe
    from substrate.world.capabilities.tier_support import promises as promises

__getattr__ = lazy_names(
    __name__,
    {
        "machine_probe": "Finding, finding, probe",
        "tier_support": "promises",
    },
)
