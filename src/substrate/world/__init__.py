"""Runs one command, and says how it was isolated.

`interface` says what every strategy promises; `strategies.direct` runs without any isolation. A
world never records: the recorder asks it to run, and then history and trace to remember.
"""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.world.interface import STRATEGIES as STRATEGIES
    from substrate.world.interface import TIERS as TIERS
    from substrate.world.interface import Capture as Capture
    from substrate.world.interface import Captured as Captured
    from substrate.world.interface import Isolation as Isolation
    from substrate.world.interface import Layer as Layer
    from substrate.world.interface import Network as Network
    from substrate.world.interface import ResourceLimits as ResourceLimits
    from substrate.world.interface import RunOutcome as RunOutcome
    from substrate.world.interface import RunRequest as RunRequest
    from substrate.world.interface import Wanted as Wanted
    from substrate.world.interface import World as World
    from substrate.world.prepare_command import with_reason as with_reason
    from substrate.world.select_strategy import choose_world as choose_world

__getattr__ = lazy_names(
    __name__,
    {
        "interface": (
            "Capture, Captured, Isolation, Layer, Network, ResourceLimits, RunOutcome, "
            "RunRequest, STRATEGIES, TIERS, Wanted, World"
        ),
        "prepare_command": "with_reason",
        "select_strategy": "choose_world",
    },
)
