"""From the value of ``--net`` to a network for one command."""

from __future__ import annotations

import sys

from substrate.errors import MissingDependencyError
from substrate.world.interface import Network
from substrate.world.network import rules


def network_for(text: str) -> Network | None:
    """A network for one command; None where ``open`` cannot be watched on this system.

    Raises `UsageError` for a value that is not understood, `MissingDependencyError` where rules
    must be enforced and this system has no namespaces. Needs a world, or root: a process that may
    not set a filter is not watched, and `Network.notice` says so.
    """
    policy = rules.parse(text)
    if sys.platform.startswith("linux"):
        from substrate.world.network.command_network import CommandNetwork

        return CommandNetwork(policy)
    if policy.encloses:
        raise MissingDependencyError(
            f"--net {policy.text} needs Linux's network namespaces",
            hint="use --net open here; scopes are not recorded on this system",
        )
    return None
