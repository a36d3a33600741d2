"""How two packs differ."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.packs.drift.compare_packs import compare as compare
    from substrate.packs.drift.content_diff import ContentDiff as ContentDiff
    from substrate.packs.drift.content_diff import Line as Line
    from substrate.packs.drift.drift_types import Drift as Drift
    from substrate.packs.drift.drift_types import DriftReport as DriftReport

__getattr__ = lazy_names(
    __name__,
    {
        "compare_packs": "compare",
        "content_diff": "ContentDiff, Line",
        "drift_types": "Drift, DriftReport",
    },
)
