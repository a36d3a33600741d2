"""Which of a command's changes make other programs run code, seen in its layer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from substrate.model import RelPath
from substrate.recorder.arrival.code_execution_risks import runs_code
from substrate.recorder.session_context import Place
from substrate.recorder.user_git import UserGit
from substrate.system import Environment
from substrate.system.files import read_bytes_or_none
from substrate.workspace.apply import LayerEntry
from substrate.world import Layer


def code_paths(place: Place, layer: Layer, entries: Sequence[LayerEntry]) -> list[RelPath]:
    """The paths among `entries` that can make other programs run code."""
    if not entries:
        return []
    root = place.workspace.root

    def both(path: RelPath) -> tuple[bytes, bytes]:
        return _content(root, path), _content(layer.upper, path)

    home = os.fsencode(place.environment.home or "/")
    own = tuple(map(_read, _users_configs(place.environment)))
    return runs_code(entries, both, UserGit(place.workspace).links(home, own, both))


def _users_configs(environment: Environment) -> list[Path]:
    if environment.home is None:
        return []
    above = environment.get("XDG_CONFIG_HOME") or environment.home / ".config"
    return [environment.home / ".gitconfig", Path(above) / "git" / "config"]


def _content(root: Path, path: RelPath) -> bytes:
    return _read(root / os.fsdecode(path))


def _read(file: Path) -> bytes:
    try:
        return b"" if file.is_symlink() else read_bytes_or_none(file) or b""
    except OSError:
        return b""
