"""The git program and the user's repositories, with every option pinned."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.objects.git.git_command import BINARY as BINARY
    from substrate.objects.git.git_command import Git as Git
    from substrate.objects.git.git_command import UserGit as UserGit
    from substrate.objects.git.git_command import git_version as git_version
    from substrate.objects.git.repository import Repository as Repository
    from substrate.objects.git.repository import TreeChange as TreeChange
    from substrate.objects.git.repository import TreeEntry as TreeEntry
    from substrate.objects.git.repository import plain_head as plain_head
    from substrate.objects.git.worktree_git import PATCH as PATCH
    from substrate.objects.git.worktree_git import RawChange as RawChange
    from substrate.objects.git.worktree_git import WorktreeGit as WorktreeGit

__getattr__ = lazy_names(
    __name__,
    {
        "git_command": "BINARY, Git, UserGit, git_version",
        "repository": "Repository, TreeChange, TreeEntry, plain_head",
        "worktree_git": "PATCH, RawChange, WorktreeGit",
    },
)
