"""Where the graph is, and its repository: the user's git, or Substrate's own history."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from substrate.errors import NotFoundError, RefusedError
from substrate.graph.index import Layout, read_marker
from substrate.graph.index import index_commit as index
from substrate.objects.git import Repository, plain_head
from substrate.system import environment
from substrate.workspace import (
    CTX_NAME,
    Workspace,
    find_workspace,
    make_private,
    refuse_another_users,
    refuse_closed,
    refuse_links,
    refuse_links_in,
    require_ctx,
)

Progress = Callable[[str, int, int], None]
_DIRECTORIES = ("manifests", "snapshots", "folded", "cache")


class Indexed(NamedTuple):
    commit: bytes
    directory: Path
    counts: dict[str, int]
    was_there: bool


class Graph:
    """The graph of one project, with one repository to index from."""

    def __init__(
        self, layout: Layout, workspace: Workspace, repository: Repository, progress: Progress
    ) -> None:
        self.layout = layout
        self.workspace = workspace
        self.repository = repository
        self._progress = progress

    def commits(self, revision: str | None, *, everything: bool = False) -> list[bytes]:
        """The commits to index; a range is returned oldest first."""
        if everything:
            return self.repository.rev_list(None)
        if revision is not None and ".." in revision:
            return self.repository.rev_list(revision)
        return [self.resolve(revision or "HEAD")]

    def resolve(self, revision: str) -> bytes:
        if revision == "HEAD":
            # Read HEAD directly if it is plain: starting git would take longer than the answer.
            head = plain_head(self.repository.git_dir)
            if head is not None and read_marker(self.layout.snapshot(head)) is not None:
                return head
        return self.repository.resolve_commit(revision)

    def index(self, commit: bytes) -> Indexed:
        """The commit's snapshot, created if necessary."""
        name = self.workspace.root.name
        marker, was_there = index.ensure(self.layout, self.repository, commit, name, self._progress)
        return Indexed(commit, self.layout.snapshot(commit), marker.counts, was_there)


def make_ctx(start: Path) -> tuple[Path, bool]:
    """Create ``.ctx`` at the workspace's root, private and ignored by git; whether it is new."""
    from substrate.packs.store import make_store  # graph queries do not need it

    workspace = find_workspace(start)
    if workspace.history_refused:
        raise RefusedError(
            f"no .ctx is made in {workspace.root}: {workspace.history_refused}",
            hint="work in a project directory of your own",
        )
    directory = workspace.root / CTX_NAME
    is_new = not directory.is_dir()
    make_private(workspace, directory)
    make_store(directory)
    _layout(directory).make()
    return directory, is_new


def _layout(ctx: Path) -> Layout:
    refuse_links(ctx, ("graph", *(f"graph/{name}" for name in _DIRECTORIES)))
    for name in ("", *_DIRECTORIES):
        refuse_links_in(ctx / "graph" / name)
    is_inside_world = "SUBSTRATE_WORLD_ID" in environment.current().variables
    return Layout(ctx / "graph", shares=not is_inside_world)


@contextmanager
def open_graph(
    start: Path, *, history: bool = False, progress: Progress = index.quiet
) -> Iterator[Graph]:
    """The graph at or above `start`, with the repository to query."""
    ctx = require_ctx(start)
    refuse_closed(ctx)
    refuse_another_users(ctx)
    workspace = find_workspace(ctx.parent)
    git_dir = _history_dir(workspace) if history else workspace.git_dir
    if git_dir is None:
        raise NotFoundError(
            f"{workspace.root} is not a git repository",
            hint="`git init` makes one; `ctx index --history` indexes what Substrate recorded",
        )
    with Repository(git_dir, workspace.root) as repository:
        yield Graph(_layout(ctx), workspace, repository, progress)


def _history_dir(workspace: Workspace) -> Path:
    git_dir = workspace.store / ".git"
    if not os.path.lexists(git_dir / "HEAD"):
        raise NotFoundError(
            f"no history in {workspace.root}",
            hint="run something first: substrate -c 'your command'",
        )
    return git_dir
