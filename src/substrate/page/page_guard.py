"""Checks that every request must pass, and the headers that every answer has."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, NamedTuple

from substrate.page.credential import Credential

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " form-action 'none'; base-uri 'none'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
#: The route that takes a token, before there is a secret.
EXCHANGE = "/page/exchange"


class Refusal(NamedTuple):
    status: int
    message: str


class PageGuard:
    """An ASGI application around another one. `hosts`: the values of `Host` that are ours."""

    def __init__(self, app: App, hosts: Collection[str], credential: Credential) -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._credential = credential

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        refusal = self.why_not(scope)
        if refusal is None:
            await self._app(scope, receive, with_headers)
        else:
            await _refuse(with_headers, refusal)

    def why_not(self, scope: Scope) -> Refusal | None:
        """Why a request is refused; None if it is served."""
        given: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            given.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        host = given.get("host", [])
        if len(host) != 1 or host[0] not in self._hosts:
            return Refusal(421, "the Host is not this page's")
        if {"content-length", "transfer-encoding"} <= set(given):
            return Refusal(400, "the request has two lengths")
        origin = given.get("origin", [])
        own = f"http://{host[0]}"
        if any(one != own for one in origin):
            return Refusal(403, "the Origin is not this page's")
        site = given.get("sec-fetch-site", [])
        path = scope["path"]
        is_data = path.startswith(("/v1/", "/page/"))
        if is_data and any(one != "same-origin" for one in site):
            return Refusal(403, "the request comes from another site")
        if scope["method"] not in ("GET", "HEAD"):
            kind = given.get("content-type", [""])[0].partition(";")[0].strip()
            if not origin or not site or given.get("x-substrate") != ["1"]:
                return Refusal(403, "only the page itself may post")
            if kind != "application/json":
                return Refusal(415, "the body is not JSON")
        known = given.get("authorization", [""])
        if is_data and path != EXCHANGE and not self._credential.is_valid(known[0]):
            return Refusal(401, "this needs the page's own link")
        return None


async def _refuse(send: Send, refusal: Refusal) -> None:
    hint = "run `substrate ui` again and open the new link"
    error = {"kind": "refused", "message": refusal.message, "hint": hint}
    body = json.dumps({"error": error}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
