"""The files that a browser loads: read once, served by exact names only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

DIRECTORY = Path(__file__).parent / "static"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
}
_FIRST = "index.html"


def static_routes() -> list[BaseRoute]:
    out: list[BaseRoute] = []
    for path in sorted(DIRECTORY.rglob("*")):
        kind = _TYPES.get(path.suffix)
        if kind is not None and path.is_file():
            name = path.relative_to(DIRECTORY).as_posix()
            route = "/" if name == _FIRST else f"/{name}"
            out.append(Route(route, _answering(path.read_bytes(), kind), methods=["GET"]))
    return out


def _answering(data: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(_: Request) -> Response:
        return Response(data, headers={"content-type": kind})

    return answer
