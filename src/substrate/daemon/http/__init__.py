"""The daemon's HTTP and WebSocket server."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.daemon.http.http_server import serve as serve

__getattr__ = lazy_names(
    __name__,
    {
        "http_server": "serve",
    },
)
