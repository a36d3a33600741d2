"""Git trees and commits as snapshots of a workspace, and merges of them."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.objects.snapshots import attrs as attrs
    from substrate.objects.snapshots import snapshot as snapshot
    from substrate.objects.snapshots import snapshot_directory as snapshot_directory
    from substrate.objects.snapshots.attrs import EntryAttrs as EntryAttrs
    from substrate.objects.snapshots.commits import Commit as Commit
    from substrate.objects.snapshots.commits import parse_commit as parse_commit
    from substrate.objects.snapshots.commits import serialize_commit as serialize_commit
    from substrate.objects.snapshots.commits import signature as signature
    from substrate.objects.snapshots.merge import Blobs as Blobs
    from substrate.objects.snapshots.merge import Collision as Collision
    from substrate.objects.snapshots.merge import Merged as Merged
    from substrate.objects.snapshots.merge import Take as Take
    from substrate.objects.snapshots.merge import is_document as is_document
    from substrate.objects.snapshots.merge import merge_node as merge_node
    from substrate.objects.snapshots.snapshot_directory import Directory as Directory
    from substrate.objects.snapshots.snapshot_directory import Reader as Reader
    from substrate.objects.snapshots.snapshot_directory import ReadyDirectory as ReadyDirectory
    from substrate.objects.snapshots.snapshot_directory import Snapshot as Snapshot
    from substrate.objects.snapshots.trees import EMPTY_TREE as EMPTY_TREE
    from substrate.objects.snapshots.trees import MODE_DIR as MODE_DIR
    from substrate.objects.snapshots.trees import MODE_EXEC as MODE_EXEC
    from substrate.objects.snapshots.trees import MODE_FILE as MODE_FILE
    from substrate.objects.snapshots.trees import MODE_LINK as MODE_LINK
    from substrate.objects.snapshots.trees import MODE_TEXT as MODE_TEXT
    from substrate.objects.snapshots.trees import Tree as Tree
    from substrate.objects.snapshots.trees import any_forbidden as any_forbidden
    from substrate.objects.snapshots.trees import is_forbidden_name as is_forbidden_name
    from substrate.objects.snapshots.trees import parse_tree as parse_tree
    from substrate.objects.snapshots.trees import serialize_tree as serialize_tree

__getattr__ = lazy_names(
    __name__,
    {
        "attrs": "EntryAttrs",
        "commits": "Commit, parse_commit, serialize_commit, signature",
        "merge": "Blobs, Collision, Merged, Take, is_document, merge_node",
        "snapshot_directory": "Directory, Reader, ReadyDirectory, Snapshot",
        "trees": (
            "EMPTY_TREE, MODE_DIR, MODE_EXEC, MODE_FILE, MODE_LINK, MODE_TEXT, Tree, "
            "any_forbidden, is_forbidden_name, parse_tree, serialize_tree"
        ),
    },
)
