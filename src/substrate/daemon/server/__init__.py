"""The daemon's first process: accepts calls, forks a runner for each, gives way to new code."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.daemon.server import caller_identity as caller_identity
    from substrate.daemon.server import idle_work as idle_work
    from substrate.daemon.server.fork_server import ForkServer as ForkServer
    from substrate.daemon.server.fork_server import Settings as Settings
    from substrate.daemon.server.idle_work import Result as Result
    from substrate.daemon.server.lifecycle import Home as Home
    from substrate.daemon.server.lifecycle import ask as ask
    from substrate.daemon.server.lifecycle import socket_of as socket_of

__getattr__ = lazy_names(
    __name__,
    {
        "fork_server": "Settings, ForkServer",
        "idle_work": "Result",
        "lifecycle": "Home, ask, socket_of",
    },
)
