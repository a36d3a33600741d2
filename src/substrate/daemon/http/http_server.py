"""The process that speaks HTTP: uvicorn on the daemon's socket, with two missing checks added.

uvicorn has no time limit for the headers of a request, and does not check which process is at the
other end of a unix socket. Both are done here, for each connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from substrate.daemon.http.app import Service
from substrate.daemon.server import Home, caller_identity
from substrate.system import clock, daemon_paths

HEADER_S = 10.0
MOST_CONNECTIONS = 128
_MOST_HEADER_BYTES = 32 * 1024
_MOST_MESSAGE_BYTES = 1024 * 1024
#: An idle server ends; the fork server starts another for the next connection.
_IDLE_S = 120.0
_LOOK_S = 1.0


class GuardedProtocol(H11Protocol):
    """One connection: checks the peer, and limits how long a request's headers may take."""

    _too_slow: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        pid, uid, _ = daemon_paths.peer(transport.get_extra_info("socket"))
        super().connection_made(transport)
        if uid != os.geteuid() or len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
            return
        self.app_state = {**self.app_state, "stranger": _stranger(pid)}
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
        # h11_impl declares it without None, but it is None until the first request.
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _expect_headers(self) -> None:
        if self._too_slow is None:
            self._too_slow = self.loop.call_later(HEADER_S, self.transport.abort)

    def _stop_expecting(self) -> None:
        if self._too_slow is not None:
            self._too_slow.cancel()
            self._too_slow = None


_STANDING: list[caller_identity.Standing] = []


def _stranger(pid: int) -> str:
    """Why we do not serve this process; empty if we do."""
    try:
        return caller_identity.differs(_STANDING[0], caller_identity.standing(pid))
    except OSError:
        return "no name"


def serve(listener: socket.socket, home: Home) -> None:
    """Serve until idle, told to stop, or the fork server has ended."""
    logging.basicConfig(level=logging.WARNING)
    _STANDING[:] = [caller_identity.standing(os.getpid())]
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


async def _watch(server: uvicorn.Server, fork_server: int) -> None:
    used_ns = clock.monotonic_ns()
    while True:
        await asyncio.sleep(_LOOK_S)
        state = server.server_state
        if state.connections or state.tasks:
            used_ns = clock.monotonic_ns()
        # Without the fork server nothing can be run any more; running commands are finished first.
        if os.getppid() != fork_server or clock.monotonic_ns() - used_ns > _IDLE_S * 1e9:
            server.should_exit = True
