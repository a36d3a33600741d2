"""Errors and bodies over HTTP, in the same shape for every route."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ExceptionHandler

from substrate.errors import (
    ConflictError,
    MissingDependencyError,
    NotFoundError,
    RefusedError,
    SubstrateError,
    UsageError,
)
from substrate.protocol import http_bodies

_BODY_S = 30.0
_STATUS: tuple[tuple[type[SubstrateError], int], ...] = (
    (UsageError, 400),
    (NotFoundError, 404),
    (RefusedError, 409),
    (ConflictError, 409),
    (MissingDependencyError, 501),
)
#: The kind of an error that only means "too much at once".
_BUSY = "busy"


def error_document(error: SubstrateError) -> dict[str, object]:
    return {"error": {"kind": error.kind, "message": error.message, "hint": error.hint}}


def status_of(error: SubstrateError) -> int:
    if error.kind == _BUSY:
        return 429
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def error_handlers(docs: str) -> Mapping[Any, ExceptionHandler]:
    """`docs`: the page that lists the routes."""

    async def http_error(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        kinds = {404: "not-found", 405: "usage", 408: "timeout", 413: "too-large"}
        document = {
            "kind": kinds.get(error.status_code, "usage"),
            "message": str(error.detail),
            "hint": f"{docs} lists the routes",
        }
        headers = {**(error.headers or {}), "connection": "close"}
        return JSONResponse({"error": document}, status_code=error.status_code, headers=headers)

    return {SubstrateError: _failed, HTTPException: http_error, Exception: _bug}


async def _failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, SubstrateError)
    status = status_of(error)
    headers = {"retry-after": "1"} if status == 429 else None
    return JSONResponse(error_document(error), status_code=status, headers=headers)


async def _bug(_: Request, error: Exception) -> Response:
    document = {
        "kind": "bug",
        "message": f"a bug in Substrate: {type(error).__name__}",
        "hint": "the server's log has more",
    }
    return JSONResponse({"error": document}, status_code=500)


async def read_document(request: Request) -> dict[str, object]:
    """The body, a JSON object within limits."""
    said = request.headers.get("content-length", "")
    if said.isdigit() and int(said) > http_bodies.MOST_BODY_BYTES:
        raise _too_large()
    body = b""
    try:
        async with asyncio.timeout(_BODY_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > http_bodies.MOST_BODY_BYTES:
                    raise _too_large()
    except TimeoutError:
        raise HTTPException(408, "the body does not come") from None
    except ClientDisconnect:
        raise HTTPException(400, "the body is not whole") from None
    return http_bodies.parse_json(body)


def _too_large() -> HTTPException:
    return HTTPException(413, f"the body is larger than {http_bodies.MOST_BODY_BYTES} bytes")
