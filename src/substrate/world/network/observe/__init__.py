"""Which destinations a command asked for, seen through its system calls."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.world.network.observe import name_service as name_service
    from substrate.world.network.observe import procfs as procfs
    from substrate.world.network.observe.address_names import Names as Names
    from substrate.world.network.observe.network_scopes import MOST_SCOPES as MOST_SCOPES
    from substrate.world.network.observe.network_scopes import ScopeLog as ScopeLog
    from substrate.world.network.observe.network_scopes import scope as scope
    from substrate.world.network.observe.supervisor import Supervisor as Supervisor

__getattr__ = lazy_names(
    __name__,
    {
        "address_names": "Names",
        "network_scopes": "MOST_SCOPES, ScopeLog, scope",
        "supervisor": "Supervisor",
    },
)
