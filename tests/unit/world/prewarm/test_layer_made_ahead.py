"""A layer that is made before it is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from substrate.errors import WorkspaceError
from substrate.world.layer import layer_dirs


def test_none_is_made_ahead_where_the_store_has_gone(tmp_path: Path) -> None:
    """The workspace was moved away; a user that copies it back must not find a new store there."""
    worlds = tmp_path / ".substrate-git" / "worlds"
    with pytest.raises(WorkspaceError):
        layer_dirs.create(worlds, "ahead-1-x", tmp_path, "overlay", b"trusted.overlay.", ahead=True)
    assert list(tmp_path.iterdir()) == []
