"""The process that speaks HTTP: uvicorn on the agent's socket, with its gaps closed.

uvicorn has no limit on how long the headers of a request may take, and knows nothing about who is
at the other end of a unix socket: both are looked after here, on each connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from substrate.agent import peer
from substrate.agent.app import Service
from substrate.agent.lifecycle import Home
from substrate.system import agent_place, clock

HEADER_S = 10.0
MOST_CONNECTIONS = 128
_MOST_HEADER_BYTES = 32 * 1024
_MOST_MESSAGE_BYTES = 1024 * 1024
#: A server that nobody needs ends; the zygote starts another for the next connection.
_IDLE_S = 120.0
_LOOK_S = 1.0


class GuardedProtocol(H11Protocol):
    """One connection: from whom, and not for ever without a request."""

    _too_slow: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        stranger = _stranger(transport.get_extra_info("socket"))
        super().connection_made(transport)
        if stranger == "another user" or len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
            return
        self.app_state = {**self.app_state, "stranger": stranger}
        self._expect_headers()

    def data_received(self, data: bytes) -> None:
        if self._is_between_requests():
            self._expect_headers()
        super().data_received(data)
        if not self._is_between_requests():
            self._stop_expecting()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_expecting()
        super().connection_lost(exc)

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._stop_expecting()
        super().handle_websocket_upgrade(event)

    def _is_between_requests(self) -> bool:
        # h11_impl declares it without None, which it is until the first request.
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _expect_headers(self) -> None:
        if self._too_slow is None:
            self._too_slow = self.loop.call_later(HEADER_S, self.transport.abort)

    def _stop_expecting(self) -> None:
        if self._too_slow is not None:
            self._too_slow.cancel()
            self._too_slow = None


_STANDING: list[peer.Standing] = []


def _stranger(connection: socket.socket) -> str:
    """What makes this peer one that we do not serve; empty if nothing does."""
    pid, uid, _ = agent_place.peer(connection)
    if uid != os.geteuid():
        return "another user"
    try:
        return peer.differs(_STANDING[0], peer.standing(pid))
    except OSError:
        return "no name"


def serve(listener: socket.socket, home: Home) -> None:
    """Serve until idle, told to stop, or left alone by the zygote."""
    logging.basicConfig(level=logging.WARNING)
    _STANDING[:] = [peer.standing(os.getpid())]
    service = Service(home.door_path)
    config = uvicorn.Config(
        service.app(), http=GuardedProtocol, ws="websockets-sansio", lifespan="off",
        log_config=None, access_log=False, server_header=False, date_header=False,
        proxy_headers=False, timeout_keep_alive=5, limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
        ws_max_size=_MOST_MESSAGE_BYTES, ws_max_queue=8, ws_per_message_deflate=False,
    )  # fmt: skip
    server = uvicorn.Server(config)
    asyncio.run(_serve(server, listener))


async def _serve(server: uvicorn.Server, listener: socket.socket) -> None:
    watch = asyncio.create_task(_watch(server, os.getppid()))
    try:
        await server.serve(sockets=[listener])
    finally:
        watch.cancel()


async def _watch(server: uvicorn.Server, zygote: int) -> None:
    used_ns = clock.monotonic_ns()
    while True:
        await asyncio.sleep(_LOOK_S)
        state = server.server_state
        if state.connections or state.tasks:
            used_ns = clock.monotonic_ns()
        # Without the zygote nothing can be run any more; what is running is finished first.
        if os.getppid() != zygote or clock.monotonic_ns() - used_ns > _IDLE_S * 1e9:
            server.should_exit = True
