"""All projects of this user: what their histories take, and what waits in them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from substrate.errors import SubstrateError
from substrate.history.arrival import held_world_rows
from substrate.history.maintenance import disk_bytes
from substrate.recorder.session_context import Place
from substrate.system import Environment
from substrate.workspace import known_projects

_LEDGER = Path("index", "history.db")


class Project(NamedTuple):
    root: Path
    store: Path
    #: Whether there is a history. A project without one was moved or removed.
    exists: bool
    size_bytes: int = 0
    #: When its history was last written to.
    last_used_ns: int = 0
    held_worlds: int = 0
    #: Why its history cannot be read; usually empty.
    problem: str = ""


def all_projects(environment: Environment) -> list[Project]:
    """Every project in which this user has recorded a command, the one used last first."""
    home = environment.substrate_home
    found = [_project(environment, root) for root in known_projects.known(home)]
    return sorted(found, key=lambda one: (-one.last_used_ns, one.root))


def prune_projects(environment: Environment, *, dry_run: bool) -> list[Project]:
    """Forget the projects that are gone; returns them. No history is removed."""
    gone = [one for one in all_projects(environment) if not one.exists]
    if not dry_run:
        for one in gone:
            known_projects.forget(environment.substrate_home, one.root)
    return gone


def _project(environment: Environment, root: Path) -> Project:
    if not root.is_dir():
        return Project(root, root / ".substrate-git", exists=False)
    place = Place.at(root, environment)
    store = place.workspace.store
    ledgers = [store / _LEDGER, store / f"{_LEDGER}-wal"]
    times = [os.stat(path).st_mtime_ns for path in ledgers if path.exists()]
    # A directory above may have become the workspace since: then this one has no history.
    if not times or place.workspace.root != root:
        return Project(root, store, exists=False)
    project = Project(root, store, True, disk_bytes(store), max(times))
    try:
        with place.history_as_it_is() as opened:
            return project._replace(held_worlds=len(held_world_rows.all_held(opened)))
    except SubstrateError as error:
        return project._replace(problem=error.message)
