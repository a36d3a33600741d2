"""The user's tree: find it, know what is left out, see what changed, and change it safely.

    workspace_location   which directory is the workspace, and which git repository it is in
    store_origin         whether its history was made here, or came with a clone or an archive
    known_projects       which workspaces this user has
    exclude              what history leaves out, and why (ignore_rules: gitignore patterns)
    scan                 what differs from the last scan; stat_cache: what the last scan saw
    paths                the present state of named paths
    apply                changing paths by a plan, each checked first
    watch                which paths may have changed, from inotify

Nothing here knows about object stores: bytes go to a `BlobWriter` and come from a `BlobReader`.
"""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.workspace import known_projects as known_projects
    from substrate.workspace.exclude import IGNORE_NAME as IGNORE_NAME
    from substrate.workspace.exclude import METADATA as METADATA
    from substrate.workspace.exclude import METADATA_FILES as METADATA_FILES
    from substrate.workspace.exclude import Exclusions as Exclusions
    from substrate.workspace.find_ctx_dir import CTX_NAME as CTX_NAME
    from substrate.workspace.find_ctx_dir import find_ctx as find_ctx
    from substrate.workspace.find_ctx_dir import refuse_another_users as refuse_another_users
    from substrate.workspace.find_ctx_dir import refuse_closed as refuse_closed
    from substrate.workspace.find_ctx_dir import refuse_links as refuse_links
    from substrate.workspace.find_ctx_dir import refuse_links_in as refuse_links_in
    from substrate.workspace.find_ctx_dir import require_ctx as require_ctx
    from substrate.workspace.root_descriptor import Anchor as Anchor
    from substrate.workspace.store_origin import is_foreign as is_foreign
    from substrate.workspace.store_origin import is_marked as is_marked
    from substrate.workspace.store_origin import leave_mark as leave_mark
    from substrate.workspace.workspace_location import STORE_NAME as STORE_NAME
    from substrate.workspace.workspace_location import Workspace as Workspace
    from substrate.workspace.workspace_location import find_repository as find_repository
    from substrate.workspace.workspace_location import find_workspace as find_workspace
    from substrate.workspace.workspace_location import first_line as first_line
    from substrate.workspace.workspace_location import hide_from_git as hide_from_git
    from substrate.workspace.workspace_location import is_paused as is_paused
    from substrate.workspace.workspace_location import make_private as make_private
    from substrate.workspace.workspace_location import pause as pause
    from substrate.workspace.workspace_location import protect_store as protect_store
    from substrate.workspace.workspace_location import resume as resume
    from substrate.workspace.workspace_location import unhide_from_git as unhide_from_git
    from substrate.workspace.workspace_location import why_not_opened as why_not_opened

__getattr__ = lazy_names(
    __name__,
    {
        "exclude": "Exclusions, IGNORE_NAME, METADATA, METADATA_FILES",
        "find_ctx_dir": (
            "CTX_NAME, find_ctx, refuse_another_users, refuse_closed, refuse_links, "
            "refuse_links_in, require_ctx"
        ),
        "root_descriptor": "Anchor",
        "store_origin": "is_foreign, is_marked, leave_mark",
        "workspace_location": (
            "STORE_NAME, Workspace, find_repository, find_workspace, first_line, "
            "hide_from_git, is_paused, make_private, pause, protect_store, resume, "
            "unhide_from_git, why_not_opened"
        ),
    },
)
