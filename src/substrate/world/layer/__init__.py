"""What a command left in its layer, and the layer's directories."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.world.layer import layer_dirs as layer_dirs
    from substrate.world.layer.changes import Base as Base
    from substrate.world.layer.changes import read_layer as read_layer
    from substrate.world.layer.layer_untouched import is_untouched as is_untouched
    from substrate.world.layer.layer_untouched import says_nothing as says_nothing
    from substrate.world.layer.upper import Upper as Upper

__getattr__ = lazy_names(
    __name__,
    {
        "changes": "Base, read_layer",
        "layer_untouched": "is_untouched, says_nothing",
        "upper": "Upper",
    },
)
