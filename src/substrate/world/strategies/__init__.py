"""The ways to run a command: overlay, fuse-overlayfs, copy-diff, direct."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.world.strategies import fuse_marks as fuse_marks
    from substrate.world.strategies import overlay as overlay
    from substrate.world.strategies.copy_world import CopyWorld as CopyWorld
    from substrate.world.strategies.direct import DirectWorld as DirectWorld
    from substrate.world.strategies.fuse_overlay import FuseOverlayWorld as FuseOverlayWorld
    from substrate.world.strategies.layer_strategy import LayeredWorld as LayeredWorld
    from substrate.world.strategies.overlay import FLAGS as FLAGS
    from substrate.world.strategies.overlay import TRUSTED as TRUSTED
    from substrate.world.strategies.overlay import OverlayWorld as OverlayWorld
    from substrate.world.strategies.overlay import mount_overlay as mount_overlay
    from substrate.world.strategies.private_tree import ScratchWorld as ScratchWorld

__getattr__ = lazy_names(
    __name__,
    {
        "copy_world": "CopyWorld",
        "direct": "DirectWorld",
        "fuse_overlay": "FuseOverlayWorld",
        "layer_strategy": "LayeredWorld",
        "overlay": "FLAGS, OverlayWorld, TRUSTED, mount_overlay",
        "private_tree": "ScratchWorld",
    },
)
