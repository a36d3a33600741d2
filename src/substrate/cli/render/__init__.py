"""Answers as text for people: entries, packs, drift, graphs, replays."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.cli.render.agent_render import connection_json as connection_json
    from substrate.cli.render.agent_render import plan_json as plan_json
    from substrate.cli.render.agent_render import removal_json as removal_json
    from substrate.cli.render.agent_render import show_connections as show_connections
    from substrate.cli.render.agent_render import show_plan as show_plan
    from substrate.cli.render.agent_render import show_removal as show_removal
    from substrate.cli.render.agent_render import surroundings_of as surroundings_of
    from substrate.cli.render.attempt_render import show_compared as show_compared
    from substrate.cli.render.attempt_render import show_picked as show_picked
    from substrate.cli.render.attempt_render import show_tried as show_tried
    from substrate.cli.render.drift_render import show_report as show_report
    from substrate.cli.render.entry_marks import marks_of as marks_of
    from substrate.cli.render.entry_marks import moved_refs as moved_refs
    from substrate.cli.render.entry_marks import ref_rows as ref_rows
    from substrate.cli.render.entry_render import command_line as command_line
    from substrate.cli.render.entry_render import entry_json as entry_json
    from substrate.cli.render.entry_render import hex_or_none as hex_or_none
    from substrate.cli.render.entry_render import is_in_workspace as is_in_workspace
    from substrate.cli.render.entry_render import node_json as node_json
    from substrate.cli.render.entry_render import paths_of as paths_of
    from substrate.cli.render.entry_render import place_of as place_of
    from substrate.cli.render.entry_render import size as size
    from substrate.cli.render.entry_render import unrecorded as unrecorded
    from substrate.cli.render.entry_render import when as when
    from substrate.cli.render.graph_render import delta_json as delta_json
    from substrate.cli.render.graph_render import impact_json as impact_json
    from substrate.cli.render.graph_render import progress_on as progress_on
    from substrate.cli.render.graph_render import show_delta as show_delta
    from substrate.cli.render.graph_render import show_impact as show_impact
    from substrate.cli.render.graph_render import symbol_json as symbol_json
    from substrate.cli.render.pack_render import content_heading as content_heading
    from substrate.cli.render.pack_render import preview as preview
    from substrate.cli.render.pack_render import secrets_json as secrets_json
    from substrate.cli.render.pack_render import show_pack as show_pack
    from substrate.cli.render.pack_render import show_step as show_step
    from substrate.cli.render.pack_render import tell_secrets as tell_secrets
    from substrate.cli.render.replay_render import progress_of as progress_of
    from substrate.cli.render.replay_render import replayed_json as replayed_json
    from substrate.cli.render.replay_render import scopes_of as scopes_of
    from substrate.cli.render.replay_render import show_replayed as show_replayed
    from substrate.cli.render.reversal_render import show_reversal as show_reversal
    from substrate.cli.render.target_render import show_target as show_target
    from substrate.cli.render.world_render import show_applied as show_applied
    from substrate.cli.render.world_render import show_discarded as show_discarded
    from substrate.cli.render.world_render import show_world_diff as show_world_diff
    from substrate.cli.render.world_render import world_diff_json as world_diff_json
    from substrate.cli.render.world_render import world_json as world_json

__getattr__ = lazy_names(
    __name__,
    {
        "agent_render": (
            "connection_json, plan_json, removal_json, show_connections, show_plan, show_removal, "
            "surroundings_of"
        ),
        "attempt_render": "show_compared, show_picked, show_tried",
        "drift_render": "show_report",
        "entry_marks": "marks_of, moved_refs, ref_rows",
        "entry_render": (
            "command_line, entry_json, hex_or_none, is_in_workspace, node_json, paths_of, "
            "place_of, size, unrecorded, when"
        ),
        "graph_render": (
            "delta_json, impact_json, progress_on, show_delta, show_impact, symbol_json"
        ),
        "pack_render": (
            "content_heading, preview, secrets_json, show_pack, show_step, tell_secrets"
        ),
        "replay_render": "progress_of, replayed_json, scopes_of, show_replayed",
        "reversal_render": "show_reversal",
        "target_render": "show_target",
        "world_render": (
            "show_applied, show_discarded, show_world_diff, world_diff_json, world_json"
        ),
    },
)
