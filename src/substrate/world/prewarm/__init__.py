"""Worlds and views prepared before their command is known. They exist for speed only."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.world.prewarm import no_prewarm as no_prewarm
    from substrate.world.prewarm.prewarmed_world import Ask as Ask
    from substrate.world.prewarm.prewarmed_world import Made as Made
    from substrate.world.prewarm.prewarmed_world import News as News
    from substrate.world.prewarm.prewarmed_world import Warm as Warm
    from substrate.world.prewarm.prewarmed_world import WorldsAhead as WorldsAhead
    from substrate.world.prewarm.reused_view import Kept as Kept

__getattr__ = lazy_names(
    __name__,
    {
        "prewarmed_world": "Ask, Made, News, Warm, WorldsAhead",
        "reused_view": "Kept",
    },
)
