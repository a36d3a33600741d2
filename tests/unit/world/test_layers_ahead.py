"""A layer that nobody has asked for yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from substrate.errors import WorkspaceError
from substrate.world import layers


def test_none_is_made_ahead_where_the_store_has_gone(tmp_path: Path) -> None:
    """The workspace was moved away, and who copies it back must not find a new store there."""
    worlds = tmp_path / ".substrate-git" / "worlds"
    with pytest.raises(WorkspaceError):
        layers.create(worlds, "ahead-1-x", tmp_path, "overlay", b"trusted.overlay.", ahead=True)
    assert list(tmp_path.iterdir()) == []
