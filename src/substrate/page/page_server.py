"""The server of the page: uvicorn on loopback, for one workspace and one user."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

import substrate
from substrate.errors import RefusedError
from substrate.page.credential import Credential, LinkUsedTwiceError
from substrate.page.page_connection import PageConnection
from substrate.page.page_guard import EXCHANGE, PageGuard
from substrate.page.page_settings import PageSettings
from substrate.page.static_files import static_routes
from substrate.recorder import Place
from substrate.review import Review, call_verb, error_handlers, read_document

_ADDRESSES = ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1"))
_MOST_CONNECTIONS = 64
_MOST_HEADER_BYTES = 32 * 1024
_GRACE_S = 2
#: The process that carries a plan out must not take this one's session for its own.
_NOT_PASSED_ON = ("SUBSTRATE_SESSION_ID", "SUBSTRATE_PARENT_SPAN")


class PageServer:
    """Listens as soon as it is made; `serve` answers until the process is told to stop."""

    def __init__(self, place: Place, *, port: int = 0, read_only: bool = False) -> None:
        self._place = place._replace(cwd=place.workspace.root, session=None)
        self._read_only = read_only
        self._credential = Credential()
        self._settings = PageSettings(place.environment.substrate_home, place.workspace.root)
        self._server: uvicorn.Server | None = None
        self._used_twice: LinkUsedTwiceError | None = None
        self._sockets = _listening(port)
        self.port = int(self._sockets[0].getsockname()[1])

    def link(self) -> str:
        """A link that works once, for a minute."""
        return f"http://127.0.0.1:{self.port}/#{self._credential.new_token()}"

    def serve(self, ready: Callable[[], None]) -> None:
        """Answer until SIGINT or SIGTERM. `ready` is called once requests are accepted.

        Raises `LinkUsedTwiceError` if that has ended the page.
        """
        config = uvicorn.Config(
            self.app(), http=PageConnection, ws="none", lifespan="off", log_config=None,
            access_log=False, server_header=False, date_header=False, proxy_headers=False,
            timeout_keep_alive=5, limit_concurrency=_MOST_CONNECTIONS,
            timeout_graceful_shutdown=_GRACE_S, h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
        )  # fmt: skip
        self._server = uvicorn.Server(config)
        ready()
        try:
            asyncio.run(self._server.serve(sockets=self._sockets))
        except KeyboardInterrupt:
            pass  # uvicorn has shut down, and raises the signal again
        if self._used_twice is not None:
            raise self._used_twice

    def app(self) -> PageGuard:
        review = Review(lambda _: self._place, self._ask, self._is_stopping)
        routes: list[BaseRoute] = [
            *static_routes(),
            Route(EXCHANGE, self._exchange, methods=["POST"]),
            Route("/page/settings", self._get_settings, methods=["GET"]),
            Route("/page/settings", self._set_settings, methods=["POST"]),
            *review.routes(read_only=self._read_only),
        ]
        app = Starlette(routes=routes, exception_handlers=error_handlers("docs/page.md"))
        hosts = [f"127.0.0.1:{self.port}", f"[::1]:{self.port}"]
        return PageGuard(app, hosts, self._credential)

    def _is_stopping(self) -> bool:
        return self._server is not None and self._server.should_exit

    async def _exchange(self, request: Request) -> Response:
        token = (await read_document(request)).get("token")
        try:
            secret = self._credential.exchange(token if isinstance(token, str) else "")
        except LinkUsedTwiceError as error:
            self._used_twice = error
            if self._server is not None:
                self._server.should_exit = True
            raise
        return JSONResponse({"secret": secret})

    async def _get_settings(self, _: Request) -> Response:
        place = self._place
        return JSONResponse(
            {
                **self._settings.document(),
                "workspace": str(place.workspace.root),
                "project": place.workspace.root.name,
                "version": substrate.__version__,
                "read_only": self._read_only,
                "is_root": hasattr(os, "geteuid") and os.geteuid() == 0,
            }
        )

    async def _set_settings(self, request: Request) -> Response:
        wanted = await read_document(request)
        return JSONResponse(await asyncio.to_thread(self._settings.change, wanted))

    async def _ask(self, words: list[str], cwd: str) -> bytes:
        given = self._place.environment.variables
        kept = {name: value for name, value in given.items() if name not in _NOT_PASSED_ON}
        return await call_verb(words, cwd, kept)


def _listening(port: int) -> list[socket.socket]:
    """IPv4, and IPv6 on the same port where the machine has it."""
    found: list[socket.socket] = []
    for family, address in _ADDRESSES:
        try:
            listener = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address, found[0].getsockname()[1] if found else port))
            listener.listen(128)
            listener.setblocking(False)
        except OSError as error:
            listener.close()
            if family == socket.AF_INET:
                raise RefusedError(
                    f"cannot listen on 127.0.0.1:{port}: {error.strerror}",
                    hint="choose another port, or leave --port out: substrate ui",
                ) from error
            continue
        found.append(listener)
    return found
