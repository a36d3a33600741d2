"""Applying a plan to the user's tree without losing anything."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.workspace.apply import layer_is_noop as layer_is_noop
    from substrate.workspace.apply.apply import Applier as Applier
    from substrate.workspace.apply.apply import Report as Report
    from substrate.workspace.apply.apply import Staged as Staged
    from substrate.workspace.apply.apply_context import Item as Item
    from substrate.workspace.apply.apply_context import State as State
    from substrate.workspace.apply.layer_source import FILE_CAPABILITIES as FILE_CAPABILITIES
    from substrate.workspace.apply.layer_source import OVERLAY_MARKS as OVERLAY_MARKS
    from substrate.workspace.apply.layer_source import LayerDiff as LayerDiff
    from substrate.workspace.apply.layer_source import LayerEntry as LayerEntry
    from substrate.workspace.apply.layer_source import LayerSource as LayerSource
    from substrate.workspace.apply.layer_source import LeftOut as LeftOut
    from substrate.workspace.apply.layer_source import arriving_mode as arriving_mode
    from substrate.workspace.apply.plan import How as How
    from substrate.workspace.apply.plan import Op as Op
    from substrate.workspace.apply.plan import Plan as Plan
    from substrate.workspace.apply.plan import Times as Times
    from substrate.workspace.apply.trash import Trash as Trash
    from substrate.workspace.apply.trash import TrashEntry as TrashEntry
    from substrate.workspace.apply.trash_reasons import Kept as Kept
    from substrate.workspace.apply.trash_reasons import TrashReason as TrashReason

__getattr__ = lazy_names(
    __name__,
    {
        "apply": "Applier, Report, Staged",
        "apply_context": "Item, State",
        "layer_source": (
            "FILE_CAPABILITIES, LayerDiff, LayerEntry, LayerSource, LeftOut, "
            "OVERLAY_MARKS, arriving_mode"
        ),
        "plan": "How, Op, Plan, Times",
        "trash": "Trash, TrashEntry",
        "trash_reasons": "Kept, TrashReason",
    },
)
