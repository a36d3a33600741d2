"""From the words of ``--net`` to a network for one command."""

from __future__ import annotations

import sys

from substrate.errors import MissingDependencyError
from substrate.world.network import rules
from substrate.world.protocol import Network


def network_for(text: str) -> Network | None:
    """A network for one command; None where ``open`` cannot be watched on this system.

    Raises `UsageError` for words that are not understood, `MissingDependencyError` where
    something must be held and this system has no namespaces. Needs a world, or root: a process
    that may not set a filter is not watched, and `Network.notice` says so.
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
