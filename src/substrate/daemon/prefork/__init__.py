"""The speed layer: what the daemon prepares before a call arrives. Start with `speed_layer`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.daemon.prefork import imports_preload as imports_preload
    from substrate.daemon.prefork import prefork_parent as prefork_parent
    from substrate.daemon.prefork import speed_layer as speed_layer
