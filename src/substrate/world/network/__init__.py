"""What a command may reach over the network, and what it did reach.

`rules` says what was asked for (``open``, ``off``, ``allow:…``); `command_network.CommandNetwork`
is what a world calls around fork and exec; `supervisor` looks at the calls that the kernel reports
to us; `resolver_relay` and `name_service` learn which name an address came from; `enclosure` is
the way out of a namespace without a network. docs/network.md explains it all.
"""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.world.network import rules as rules
    from substrate.world.network.choose_network import network_for as network_for
    from substrate.world.network.command_network import CommandNetwork as CommandNetwork
    from substrate.world.network.rules import parse as parse

__getattr__ = lazy_names(
    __name__,
    {
        "choose_network": "network_for",
        "command_network": "CommandNetwork",
        "rules": "parse",
    },
)
