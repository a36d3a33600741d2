"""What a strategy asks about worlds made ahead, and the plain answers: there are none.

The daemon's speed layer puts `WorldsAhead` (`prewarmed_world.py`) in their place.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from substrate.world.interface import Layer
from substrate.world.layer import layer_dirs

if TYPE_CHECKING:  # the plain path needs nothing of the speed layer
    from substrate.world.prewarm.prewarmed_world import Made
    from substrate.world.process import Ended, Recipe


class PlainWorlds:
    """Each world is made for its command, and removed after it."""

    def take(self, recipe: Recipe, world_id: str) -> Made | None:
        """The world made ahead, as `world_id`, if `recipe` would give the same now."""
        return None

    def forget(self, root: bytes, then: Recipe | None = None) -> None:
        """The world that is needed now is not made ahead; the next one may be, like `then`."""

    def over(self, layer: Layer, ended: Ended) -> None:
        """The command in `layer` has ended, and its change is not applied yet."""

    def discard(self, layer: Layer, elsewhere: Path) -> None:
        """The world is no longer needed; `elsewhere` may hold it until it is removed."""
        layer_dirs.remove(layer)


class Current:
    """Which of the two this process uses."""

    __slots__ = ("worlds",)

    def __init__(self) -> None:
        self.worlds = PlainWorlds()


current = Current()
