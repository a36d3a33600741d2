"""One command, from its arguments to its entry in history. Start with `record_command`."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.recorder.command import attempt_variables as attempt_variables
    from substrate.recorder.command import captured_output as captured_output
    from substrate.recorder.command import denied_access as denied_access
    from substrate.recorder.command import outside_edits as outside_edits
    from substrate.recorder.command.check_change import check_of as check_of
    from substrate.recorder.command.check_change import require_overlay as require_overlay
    from substrate.recorder.command.command_request import CommandRequest as CommandRequest
    from substrate.recorder.command.command_request import Recording as Recording
    from substrate.recorder.command.nested_requests import Inside as Inside
    from substrate.recorder.command.nested_requests import NestedRequest as NestedRequest
    from substrate.recorder.command.nested_requests import Scene as Scene
    from substrate.recorder.command.nested_requests import UndoWish as UndoWish
    from substrate.recorder.command.nested_requests import carry_out as carry_out
    from substrate.recorder.command.nested_requests import wish_to_undo as wish_to_undo
    from substrate.recorder.command.not_arrived import APPLY_FAILED as APPLY_FAILED
    from substrate.recorder.command.not_arrived import HELD as HELD
    from substrate.recorder.command.not_arrived import own_version as own_version
    from substrate.recorder.command.pipeline import bring_in as bring_in
    from substrate.recorder.command.pipeline import record_command as record_command
    from substrate.recorder.command.rate_limit import Pace as Pace
    from substrate.recorder.command.world_choice import Asked as Asked
    from substrate.recorder.command.world_choice import overlay_for as overlay_for
    from substrate.recorder.command.world_choice import world_for as world_for

__getattr__ = lazy_names(
    __name__,
    {
        "check_change": "check_of, require_overlay",
        "command_request": "CommandRequest, Recording",
        "nested_requests": "Inside, NestedRequest, Scene, UndoWish, carry_out, wish_to_undo",
        "not_arrived": "APPLY_FAILED, HELD, own_version",
        "rate_limit": "Pace",
        "pipeline": "bring_in, record_command",
        "world_choice": "Asked, overlay_for, world_for",
    },
)
