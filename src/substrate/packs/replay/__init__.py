"""Replay a pack's steps and compare the results."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.packs.replay.base_tree import BASE_NAME as BASE_NAME
    from substrate.packs.replay.base_tree import BaseTree as BaseTree
    from substrate.packs.replay.base_tree import TreeEntry as TreeEntry
    from substrate.packs.replay.base_tree import base_record as base_record
    from substrate.packs.replay.base_tree import from_text as from_text
    from substrate.packs.replay.base_tree import lay_out as lay_out
    from substrate.packs.replay.base_tree import place_of as place_of
    from substrate.packs.replay.base_tree import read_base as read_base
    from substrate.packs.replay.base_tree import to_name as to_name
    from substrate.packs.replay.replay_steps import MATCHED as MATCHED
    from substrate.packs.replay.replay_steps import Options as Options
    from substrate.packs.replay.replay_steps import OutputReport as OutputReport
    from substrate.packs.replay.replay_steps import StepReplay as StepReplay
    from substrate.packs.replay.replay_steps import StepReport as StepReport
    from substrate.packs.replay.replay_steps import compare_outputs as compare_outputs
    from substrate.packs.replay.replay_steps import fidelity as fidelity
    from substrate.packs.replay.replay_steps import first_divergence as first_divergence

__getattr__ = lazy_names(
    __name__,
    {
        "base_tree": (
            "BASE_NAME, BaseTree, TreeEntry, base_record, from_text, lay_out, place_of, "
            "read_base, to_name"
        ),
        "replay_steps": (
            "MATCHED, Options, OutputReport, StepReplay, StepReport, compare_outputs, "
            "fidelity, first_divergence"
        ),
    },
)
