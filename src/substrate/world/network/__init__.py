"""What a command may reach over the network, and what it did reach.

`rules` says what was asked for (``open``, ``off``, ``allow:…``); `command_network.CommandNetwork`
is what a world calls around fork and exec; `supervisor` looks at the calls that the kernel tells
us of; `resolver_relay` and `name_service` learn which name an address came from; `enclosure` is
the way out of a namespace without a network. docs/network.md tells the whole of it.
"""
