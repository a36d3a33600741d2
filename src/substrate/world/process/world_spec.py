"""How a world is made: everything that decides it, so that another can be made like it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from substrate.world.interface import Layer, Network
from substrate.world.layer import layer_dirs
from substrate.world.process.sandbox import Sandbox


class Recipe(NamedTuple):
    """Everything that decides how a world is made. Plain values: it passes between processes."""

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
    #: Where it may wait while it belongs to no command: `parked_layers.place`.
    elsewhere: bytes = b""
    #: Abstract sockets that lead out of the world: see `host_services`.
    abstract: tuple[bytes, ...] = ()
    #: Whether refused writes are recorded.
    explains_denials: bool = False

    def sandbox(
        self, layer: Layer, mount_view: Callable[[], None], network: Network | None
    ) -> Sandbox:
        if network is not None:
            network.refuse_abstract(self.abstract)
            if self.explains_denials:
                network.watch_writes()
        return Sandbox(
            root=self.root,
            mount_view=mount_view,
            tier=self.tier,
            read_only=self.read_only,
            masked=self.masked,
            writable=self.writable,
            readable=self.readable,
            private=self.private,
            scratch=os.fsencode(layer_dirs.scratch(layer)) if self.tier == "full" else b"",
            network=network,
            door=self.door,
            shuts_abstract=bool(self.abstract),
        )
