"""How a world is made: all that the making of one is told, to be told again for the next."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from substrate.world import layers
from substrate.world.protocol import Layer, Network
from substrate.world.sandbox import Sandbox


class Recipe(NamedTuple):
    """All that decides how a world is made. Plain values: it is passed between processes."""

    #: Where the layer goes.
    worlds: bytes
    root: bytes
    tier: str
    read_only: tuple[bytes, ...]
    masked: tuple[bytes, ...]
    writable: tuple[bytes, ...]
    readable: tuple[bytes, ...]
    private: tuple[bytes, ...]
    #: The directory of its door.
    door: bytes = b""
    #: Where it may wait while it is nobody's: `aside.place`.
    elsewhere: bytes = b""

    def sandbox(
        self, layer: Layer, mount_view: Callable[[], None], network: Network | None
    ) -> Sandbox:
        return Sandbox(
            root=self.root,
            mount_view=mount_view,
            tier=self.tier,
            read_only=self.read_only,
            masked=self.masked,
            writable=self.writable,
            readable=self.readable,
            private=self.private,
            scratch=os.fsencode(layers.scratch(layer)) if self.tier == "full" else b"",
            network=network,
            door=self.door,
        )
