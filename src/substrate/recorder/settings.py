"""The settings of a place: where each comes from, and how one is changed."""

from __future__ import annotations

from pathlib import Path

from substrate.errors import NotFoundError
from substrate.history.store import SourcedSetting, check_trusted, setting_files
from substrate.recorder.session_context import Place


def settings_of(place: Place) -> list[SourcedSetting]:
    """Every setting that applies here."""
    return setting_files.sourced(_users(place), _projects(place))


def write_setting(place: Place, name: str, value: str, *, project: bool) -> Path:
    """Set one for all projects of the user, or for this one. Returns the file."""
    file = _projects(place) if project else _users(place)
    if project and not place.workspace.store.is_dir():
        raise NotFoundError(
            f"no history in {place.workspace.root}",
            hint="leave out --project to set it for all your projects",
        )
    if project:
        check_trusted(place.workspace)  # a link, or another user's directory
    setting_files.write_setting(file, name, value, is_users=not project)
    return file


def _users(place: Place) -> Path:
    return place.environment.substrate_home / "config.toml"


def _projects(place: Place) -> Path:
    return place.workspace.store / "config.toml"
