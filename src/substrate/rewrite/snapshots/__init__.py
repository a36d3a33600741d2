"""Snapshots of a working copy: capture, list, search, restore, prune."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.rewrite.snapshots import capture_snapshot as capture_snapshot
    from substrate.rewrite.snapshots import prune as prune
    from substrate.rewrite.snapshots import restore_snapshot as restore_snapshot
    from substrate.rewrite.snapshots.artifacts import recovery_command as recovery_command
    from substrate.rewrite.snapshots.artifacts import write_artifacts as write_artifacts
    from substrate.rewrite.snapshots.capture_snapshot import Captured as Captured
    from substrate.rewrite.snapshots.capture_snapshot import make_durable as make_durable
    from substrate.rewrite.snapshots.list_snapshots import Kept as Kept
    from substrate.rewrite.snapshots.list_snapshots import all_kept as all_kept
    from substrate.rewrite.snapshots.prune import REV_LIST as REV_LIST
    from substrate.rewrite.snapshots.prune import Elsewhere as Elsewhere
    from substrate.rewrite.snapshots.prune import Policy as Policy
    from substrate.rewrite.snapshots.prune import Tombstone as Tombstone
    from substrate.rewrite.snapshots.prune import tombstone as tombstone
    from substrate.rewrite.snapshots.restore_snapshot import BroughtBack as BroughtBack
    from substrate.rewrite.snapshots.restore_snapshot import RestoreChoice as RestoreChoice
    from substrate.rewrite.snapshots.snapshot_metadata import Meta as Meta
    from substrate.rewrite.snapshots.snapshot_search import Match as Match
    from substrate.rewrite.snapshots.snapshot_search import Pattern as Pattern
    from substrate.rewrite.snapshots.snapshot_search import hits_in as hits_in
    from substrate.rewrite.snapshots.snapshot_search import pattern as pattern
    from substrate.rewrite.snapshots.snapshot_search import search as search
    from substrate.rewrite.snapshots.tree_files import files_of as files_of
    from substrate.rewrite.snapshots.tree_files import write_out as write_out

__getattr__ = lazy_names(
    __name__,
    {
        "artifacts": "recovery_command, write_artifacts",
        "capture_snapshot": "Captured, make_durable",
        "list_snapshots": "Kept, all_kept",
        "prune": "Elsewhere, Policy, REV_LIST, Tombstone, tombstone",
        "restore_snapshot": "BroughtBack, RestoreChoice",
        "snapshot_metadata": "Meta",
        "snapshot_search": "Match, Pattern, hits_in, pattern, search",
        "tree_files": "files_of, write_out",
    },
)
