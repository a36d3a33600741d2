"""A command's change leaves its world: planned, journalled, applied, or held."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.history.arrival import arrival_journal as arrival_journal
    from substrate.history.arrival import discarded_worlds as discarded_worlds
    from substrate.history.arrival import held_world_rows as held_world_rows
    from substrate.history.arrival import orphan_worlds as orphan_worlds
    from substrate.history.arrival.arrival_journal import ARRIVE as ARRIVE
    from substrate.history.arrival.arrival_journal import mark_decided as mark_decided
    from substrate.history.arrival.arrival_plan import GIT_BACK as GIT_BACK
    from substrate.history.arrival.arrival_plan import GIT_CREATED as GIT_CREATED
    from substrate.history.arrival.arrival_plan import GIT_OBJECTS as GIT_OBJECTS
    from substrate.history.arrival.arrival_plan import IN_GIT as IN_GIT
    from substrate.history.arrival.bring_into_tree import Arrived as Arrived
    from substrate.history.arrival.bring_into_tree import Arriving as Arriving
    from substrate.history.arrival.bring_into_tree import arrive as arrive
    from substrate.history.arrival.bring_into_tree import foresee as foresee
    from substrate.history.arrival.external_edits import Suspects as Suspects
    from substrate.history.arrival.external_edits import compared as compared
    from substrate.history.arrival.external_edits import excluded_below as excluded_below
    from substrate.history.arrival.external_edits import record_met as record_met
    from substrate.history.arrival.external_edits import seen_by_command as seen_by_command
    from substrate.history.arrival.external_edits import written_by as written_by
    from substrate.history.arrival.held_world_rows import Held as Held
    from substrate.history.arrival.held_world_rows import Rest as Rest
    from substrate.history.arrival.orphan_worlds import COMMAND as COMMAND

__getattr__ = lazy_names(
    __name__,
    {
        "arrival_journal": "ARRIVE, mark_decided",
        "arrival_plan": "GIT_BACK, GIT_CREATED, GIT_OBJECTS, IN_GIT",
        "bring_into_tree": "Arrived, Arriving, arrive, foresee",
        "external_edits": "Suspects, compared, excluded_below, record_met, seen_by_command,"
        " written_by",
        "held_world_rows": "Held, Rest",
        "orphan_worlds": "COMMAND",
    },
)
