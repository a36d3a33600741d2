"""Bring a world's change into the tree, or hold it for a decision."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.recorder.arrival import attempts as attempts
    from substrate.recorder.arrival import held_worlds as held_worlds
    from substrate.recorder.arrival.attempts import Attempt as Attempt
    from substrate.recorder.arrival.bring_in import Brought as Brought
    from substrate.recorder.arrival.bring_in import Request as Request
    from substrate.recorder.arrival.bring_in import arrival_of as arrival_of
    from substrate.recorder.arrival.bring_in import new_world as new_world
    from substrate.recorder.arrival.held_worlds import WorldDiff as WorldDiff
    from substrate.recorder.arrival.held_worlds import collect_detached as collect_detached
    from substrate.recorder.arrival.held_worlds import layer_of as layer_of
    from substrate.recorder.arrival.world_parts import PickedHunks as PickedHunks
    from substrate.recorder.arrival.world_parts import Selection as Selection

__getattr__ = lazy_names(
    __name__,
    {
        "attempts": "Attempt",
        "bring_in": "Brought, Request, arrival_of, new_world",
        "held_worlds": "WorldDiff, collect_detached, layer_of",
        "world_parts": "PickedHunks, Selection",
    },
)
