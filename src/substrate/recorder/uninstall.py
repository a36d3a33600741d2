"""Removing Substrate: what it left in repositories, and, if wanted, what it has recorded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from substrate.errors import RefusedError, SubstrateError
from substrate.history.record import record_entry
from substrate.recorder.projects import Project, all_projects
from substrate.recorder.session_context import Place
from substrate.rewrite.execute import open_working_copy
from substrate.rewrite.snapshots import Policy, all_kept
from substrate.rewrite.snapshots import prune as pruning
from substrate.system import Environment
from substrate.system.files import files
from substrate.workspace import find_workspace, unhide_from_git

#: Stays in `$SUBSTRATE_HOME`: sessions of agents that still run start their commands through it.
_STAYS = "bin"


class Leftovers(NamedTuple):
    """What is still there after the programs are gone."""

    #: Repositories whose `info/exclude` names our directories.
    excludes: tuple[Path, ...]
    histories: tuple[Project, ...]
    #: Working copies with snapshots of rewrites, and how many.
    snapshots: tuple[tuple[Path, int], ...]
    #: Settings, trace, outputs and crash reports.
    home: tuple[Path, ...]


def leftovers(environment: Environment) -> Leftovers:
    """Look at every known project; changes nothing."""
    projects = tuple(one for one in all_projects(environment) if one.exists)
    # Another user may have made a directory at the path of a removed project.
    roots = [one.root for one in projects if not one.problem and _is_own(one.root)]
    commons = [found for root in roots if (found := find_workspace(root).git_common_dir)]
    kept = [(root, _count(root)) for root in roots]
    home = environment.substrate_home
    inside = sorted(home.iterdir()) if home.is_dir() else []
    return Leftovers(
        tuple(one for one in dict.fromkeys(commons) if unhide_from_git(one, dry_run=True)),
        tuple(one for one in projects if _is_own(one.root)),
        tuple((root, count) for root, count in kept if count),
        tuple(path for path in inside if path.name != _STAYS),
    )


def purge(environment: Environment, found: Leftovers) -> list[str]:
    """Remove all histories, snapshots and settings, for good. Returns what could not be removed.

    Call `check_purge` first.
    """
    left = []
    for root, _ in found.snapshots:
        try:
            pruning.prune(open_working_copy(root), Policy(min_age_ns=0), dry_run=False)
        except SubstrateError as error:
            left.append(f"{root}: {error.message}")
    for path in [*(one.store for one in found.histories), *found.home]:
        try:
            files.remove_tree(path)
        except OSError as error:
            left.append(f"{path}: {error.strerror}")
    # Last: without these lines git lists a history that is still there as untracked.
    for common in [] if left else found.excludes:
        unhide_from_git(common)
    return left


def _count(root: Path) -> int:
    from substrate.objects.store import ObjectStore

    try:
        copy = open_working_copy(root)
        return len(all_kept(copy, ObjectStore(copy.common_dir), []))
    except (SubstrateError, OSError):  # no repository, or a damaged one: it has none to count
        return 0


def _is_own(root: Path) -> bool:
    paths = (root, root / ".git")
    return os.name != "posix" or all(
        path.lstat().st_uid == os.geteuid() for path in paths if os.path.lexists(path)
    )


def check_purge(environment: Environment, found: Leftovers) -> None:
    """Raise `RefusedError` if a purge would take work that is not kept anywhere else."""
    home = environment.substrate_home
    if environment.home is not None and _is_within(environment.home, home):
        raise RefusedError(
            f"{home} is not a directory of Substrate alone: nothing was removed",
            hint="remove what Substrate wrote there by hand; `--dry-run` lists it",
        )
    for project in found.histories:
        _refuse_running(environment, project)


def _is_within(path: Path, directory: Path) -> bool:
    path, directory = path.absolute(), directory.absolute()
    return path == directory or directory in path.parents


def _refuse_running(environment: Environment, project: Project) -> None:
    if project.problem:
        return
    with Place.at(project.root, environment).history_as_it_is() as store:
        running = [
            one for one in store.ledger.intents()
            if one.kind == record_entry.RUNNING and store.is_alive(one)
        ]  # fmt: skip
    if running:
        raise RefusedError(
            f"a command is still running in {project.root}: nothing was removed",
            hint="wait for it, or end it, and try again",
        )
