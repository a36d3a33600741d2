"""What one process tells of the world that it needed, so that the next one's is made ahead."""

from __future__ import annotations

import marshal
from typing import NamedTuple

from substrate.world.kept import Kept
from substrate.world.recipe import Recipe


class News(NamedTuple):
    """What a process can tell of the world that it needed, for the next one."""

    #: The workspace; empty if it needed none.
    root: bytes = b""
    #: How it was made, if one like it can be made ahead.
    recipe: Recipe | None = None
    was_ahead: bool = False
    #: Its view had been used before.
    was_warm: bool = False
    #: It took its time and changed nothing: the next one may gain by a used view.
    walked: bool = False
    #: Its own view, of which the mount goes beside.
    kept: Kept | None = None

    def encode(self) -> bytes:
        recipe = None if self.recipe is None else tuple(self.recipe)
        kept = None if self.kept is None else tuple(self.kept)
        words = (self.root, recipe, self.was_ahead, self.was_warm, self.walked, kept)
        return marshal.dumps(words)  # type: ignore[arg-type]

    @classmethod
    def decode(cls, data: bytes) -> News:
        """Of our own `encode` only."""
        root, recipe, was_ahead, was_warm, walked, kept = marshal.loads(data)
        return cls(
            root, None if recipe is None else Recipe(*recipe), was_ahead, was_warm, walked,
            None if kept is None else Kept(*kept),
        )  # fmt: skip
