"""A world that stays while the view at the workspace's path changes: for the interactive shell."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.world.standing.standing_world import open_standing_world as open_standing_world

__getattr__ = lazy_names(
    __name__,
    {
        "standing_world": "open_standing_world",
    },
)
