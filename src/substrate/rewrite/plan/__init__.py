"""What a rewrite will do, decided before anything changes."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.rewrite.plan.diff_states import Survey as Survey
    from substrate.rewrite.plan.diff_states import assumed_unchanged as assumed_unchanged
    from substrate.rewrite.plan.diff_states import entry_flags as entry_flags
    from substrate.rewrite.plan.diff_states import look as look
    from substrate.rewrite.plan.directory_plan import Planner as Planner
    from substrate.rewrite.plan.directory_plan import Wish as Wish
    from substrate.rewrite.plan.directory_plan import plan_of as plan_of
    from substrate.rewrite.plan.eol_filters import Conversion as Conversion
    from substrate.rewrite.plan.plan_rewrite import Decider as Decider
    from substrate.rewrite.plan.plan_rewrite import Decision as Decision
    from substrate.rewrite.plan.plan_rewrite import Files as Files
    from substrate.rewrite.plan.plan_rewrite import is_as_recorded as is_as_recorded

__getattr__ = lazy_names(
    __name__,
    {
        "diff_states": "Survey, assumed_unchanged, entry_flags, look",
        "directory_plan": "Planner, Wish, plan_of",
        "eol_filters": "Conversion",
        "plan_rewrite": "Decider, Decision, Files, is_as_recorded",
    },
)
