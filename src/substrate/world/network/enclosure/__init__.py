"""The way out of a network namespace that has none: relays and a resolver."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.world.network.enclosure.enclosure import Enclosure as Enclosure
    from substrate.world.network.enclosure.enclosure import make_sockets as make_sockets
    from substrate.world.network.enclosure.event_loop import READ as READ
    from substrate.world.network.enclosure.event_loop import EventLoop as EventLoop
    from substrate.world.network.enclosure.resolver_relay import DNS_PORT as DNS_PORT
    from substrate.world.network.enclosure.resolver_relay import ResolverRelay as ResolverRelay

__getattr__ = lazy_names(
    __name__,
    {
        "enclosure": "Enclosure, make_sockets",
        "event_loop": "EventLoop, READ",
        "resolver_relay": "DNS_PORT, ResolverRelay",
    },
)
