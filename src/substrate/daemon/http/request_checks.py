"""Checks that every request must pass before any route sees it.

A browser cannot open a unix socket, but a proxy in front of one can, and any web page could use
that proxy. So a request must name this machine, and must not come from another site's page.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1", "substrate", ""})
_MOST_SWALLOWED = 1024 * 1024
_SWALLOW_S = 2.0


class Guard:
    """An ASGI application around another one."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = why_not(scope)
        if not refusal:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": refusal})
        else:
            await _swallow_body(receive)
            await _refuse(send, refusal)


def why_not(scope: Scope) -> str:
    """Why this request is not served; empty if it is."""
    if scope["type"] not in ("http", "websocket"):
        return ""
    stranger = scope.get("state", {}).get("stranger", "")
    if stranger:
        return f"the daemon does not serve a process with {stranger}"
    headers = scope["headers"]
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1 or not all(_is_local(b"//" + host) for host in hosts):
        return "the Host is not this machine"
    for name, value in headers:
        if name == b"origin" and (not _is_local(value) or not urlsplit(value).hostname):
            return "the Origin is not this machine"
    # With two ways to find the body's end, a proxy in between may choose the other one.
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in headers}:
        return "the request has two lengths"
    return ""


def _is_local(url: bytes) -> bool:
    try:
        return (urlsplit(url.decode("ascii")).hostname or "") in _LOCAL and b"@" not in url
    except ValueError:
        return False


async def _swallow_body(receive: Receive) -> None:
    """Read the body first, within limits: a client that is still sending does not read answers."""
    left = _MOST_SWALLOWED
    try:
        async with asyncio.timeout(_SWALLOW_S):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body", False):
                    return
    except TimeoutError:
        return


async def _refuse(send: Send, refusal: str) -> None:
    error = {"kind": "refused", "message": refusal, "hint": "talk to the socket directly"}
    body = json.dumps({"error": error}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
