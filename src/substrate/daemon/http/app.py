"""What the agent answers over HTTP: the routes of docs/agent.md."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ExceptionHandler
from starlette.websockets import WebSocket

from substrate.agent import answers, execution, pty_stream
from substrate.agent.capabilities import capabilities
from substrate.agent.execution import Call, Execution, chunks
from substrate.agent.guard import Guard
from substrate.agent.limits import MOST_OUTPUT_BYTES, Limits
from substrate.errors import NotFoundError, SubstrateError, UsageError
from substrate.protocol import http
from substrate.system import environment
from substrate.trace.reader import TraceReader

_BODY_S = 30.0
_SPAN_ID = re.compile(r"spn_[0-9a-z]{1,64}")
#: As nginx has it: the client closed the connection; nobody will read this.
_CLIENT_GONE = 499


class Service:
    """The agent's HTTP side: where the door is, and what is running."""

    def __init__(self, door_path: Path) -> None:
        self.door_path = door_path
        self.limits = Limits()
        self.running: dict[str, Execution] = {}

    def app(self) -> Guard:
        routes: list[BaseRoute] = [
            Route("/v1/capabilities", self._capabilities, methods=["GET"]),
            Route("/v1/doctor", self._doctor, methods=["GET"]),
            Route("/v1/execute", self._execute, methods=["POST"]),
            Route("/v1/execute/stream", self._stream, methods=["POST"]),
            Route("/v1/execute/cancel", self._cancel, methods=["POST"]),
            Route("/v1/trace/{span_id}", self._trace, methods=["GET"]),
            WebSocketRoute("/v1/stream", self._pty),
        ]
        handlers: Mapping[Any, ExceptionHandler] = {
            SubstrateError: _failed,
            HTTPException: _http_error,
            Exception: _bug,
        }
        return Guard(Starlette(routes=routes, exception_handlers=handlers))

    async def _capabilities(self, _: Request) -> Response:
        return JSONResponse(await asyncio.to_thread(capabilities))

    async def _doctor(self, _: Request) -> Response:
        call = Call([b"doctor", b"--json"], "/", {})
        with self.limits.executing_one():
            async with execution.piped(self.door_path, call) as (running, out, err):
                said, complaint = await asyncio.gather(
                    _collect(out, running), _collect(err, running)
                )
                ended = await running.ended
        answer = answers.own_answer(ended, said[0], complaint[0])
        return Response(answer, media_type="application/json")

    async def _execute(self, request: Request) -> Response:
        call = Call.of(await _wanted(request))
        with self.limits.executing_one():
            async with execution.piped(self.door_path, call) as (running, out, err):
                with self._listed(running):
                    work = asyncio.gather(_collect(out, running), _collect(err, running))
                    if not await _done_before_disconnect(request, work):
                        return Response(status_code=_CLIENT_GONE)
                    (stdout, more_out), (stderr, more_err) = work.result()
                    ended = await running.ended
        answer = answers.answer(ended, stderr)
        answer["stdout_b64"] = base64.b64encode(stdout).decode("ascii")
        answer["stderr_b64"] = base64.b64encode(stderr).decode("ascii")
        if more_out or more_err:
            answer["output_truncated"] = True
        return JSONResponse(answer)

    async def _stream(self, request: Request) -> Response:
        call = Call.of(await _wanted(request))
        place = contextlib.ExitStack()
        place.enter_context(self.limits.executing_one())

        async def lines() -> AsyncIterator[bytes]:
            with place:
                async for frame in self._frames(call):
                    yield json.dumps(frame).encode("utf-8", "backslashreplace") + b"\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    async def _frames(self, call: Call) -> AsyncIterator[dict[str, object]]:
        try:
            async with execution.piped(self.door_path, call) as (running, out, err):
                with self._listed(running):
                    tail = b""
                    async for name, chunk in _merged(running, out, err):
                        if name == "start":
                            yield {"type": name, **answers.started(running.started.result())}
                            continue
                        if name == "stderr":
                            tail = (tail + chunk)[-65536:]
                        yield {"type": name, "data_b64": base64.b64encode(chunk).decode("ascii")}
                    ended = await running.ended
            yield {"type": "exit", "code": ended.status, **answers.answer(ended, tail)}
        except SubstrateError as error:
            yield {"type": "error", **answers.error_document(error)}

    async def _cancel(self, request: Request) -> Response:
        document = await _document(request)
        span_id = document.get("span_id")
        found = self.running.get(span_id) if isinstance(span_id, str) else None
        if found is None:
            raise NotFoundError("no such command is running", hint="span_id: from the start frame")
        found.send(pty_stream.signal_number(document.get("signal", "TERM")))
        return JSONResponse({"span_id": span_id, "cancelled": True})

    async def _trace(self, request: Request) -> Response:
        span_id = request.path_params["span_id"]
        if not _SPAN_ID.fullmatch(span_id):
            raise NotFoundError("no such span", hint="a span's id starts with spn_")
        reader = TraceReader(environment.current().trace_path)
        events = await asyncio.to_thread(reader.find, span_id)
        if not events:
            raise NotFoundError(f"no span {span_id}", hint="substrate trace lists them")
        return JSONResponse({"span_id": span_id, "events": events})

    async def _pty(self, websocket: WebSocket) -> None:
        await pty_stream.serve(websocket, self.door_path, self.limits, self._listed)

    @contextlib.contextmanager
    def _listed(self, running: Execution) -> Iterator[None]:
        """Where `cancel` finds it, as soon as it has an id."""
        names: list[str] = []

        def enter(started: asyncio.Future[Mapping[str, object]]) -> None:
            if not started.cancelled():
                names.append(str(started.result().get("span_id")))
                self.running[names[0]] = running

        running.started.add_done_callback(enter)
        try:
            yield
        finally:
            running.started.remove_done_callback(enter)
            for name in names:
                self.running.pop(name, None)


async def _wanted(request: Request) -> http.Execute:
    home = environment.current().home
    wanted = http.execute(await _document(request), str(home) if home else "/")
    if wanted.pty:
        raise UsageError("pty: a terminal needs a stream", hint="WebSocket /v1/stream")
    return wanted


async def _document(request: Request) -> dict[str, object]:
    said = request.headers.get("content-length", "")
    if said.isdigit() and int(said) > http.MOST_BODY_BYTES:
        raise _too_large()
    body = b""
    try:
        async with asyncio.timeout(_BODY_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > http.MOST_BODY_BYTES:
                    raise _too_large()
    except TimeoutError:
        raise HTTPException(408, "the body does not come") from None
    except ClientDisconnect:
        raise HTTPException(400, "the body is not whole") from None
    return http.parse_json(body)


def _too_large() -> HTTPException:
    return HTTPException(413, f"the body is larger than {http.MOST_BODY_BYTES} bytes")


async def _collect(reader: asyncio.StreamReader, running: Execution) -> tuple[bytes, bool]:
    """The output up to the cap, and whether there was more."""
    kept: list[bytes] = []
    room = MOST_OUTPUT_BYTES
    more = False
    async for chunk in chunks(reader, running):
        if room:
            kept.append(chunk[:room])
        more = more or len(chunk) > room
        room -= min(room, len(chunk))
    return b"".join(kept), more


async def _merged(
    running: Execution, out: asyncio.StreamReader, err: asyncio.StreamReader
) -> AsyncIterator[tuple[str, bytes]]:
    """Both streams as they come, behind the start; one chunk waits at a time."""
    queue: asyncio.Queue[tuple[str, bytes] | None] = asyncio.Queue(1)

    async def copy(name: str, reader: asyncio.StreamReader) -> None:
        async for chunk in chunks(reader, running):
            await queue.put((name, chunk))
        await queue.put(None)

    await running.started_or_ended()
    if running.started.done() and not running.started.cancelled():
        yield "start", b""
    copies = [asyncio.create_task(copy("stdout", out)), asyncio.create_task(copy("stderr", err))]
    try:
        left = len(copies)
        while left:
            found = await queue.get()
            if found is None:
                left -= 1
            else:
                yield found
    finally:
        for task in copies:
            task.cancel()
        await asyncio.gather(*copies, return_exceptions=True)


async def _done_before_disconnect(request: Request, work: asyncio.Future[Any]) -> bool:
    gone = asyncio.create_task(_gone(request))
    try:
        both: set[asyncio.Future[Any]] = {work, gone}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            return False
        return True
    finally:
        gone.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, SubstrateError)
    status = answers.status_of(error)
    headers = {"retry-after": "1"} if status == 429 else None
    return JSONResponse(answers.error_document(error), status_code=status, headers=headers)


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kinds = {404: "not-found", 405: "usage", 408: "timeout", 413: "too-large"}
    document = {
        "kind": kinds.get(error.status_code, "usage"),
        "message": str(error.detail),
        "hint": "docs/agent.md lists the routes",
    }
    headers = {**(error.headers or {}), "connection": "close"}
    return JSONResponse({"error": document}, status_code=error.status_code, headers=headers)


async def _bug(_: Request, error: Exception) -> Response:
    document = {
        "kind": "bug",
        "message": f"a bug in Substrate: {type(error).__name__}",
        "hint": "the agent's log has more",
    }
    return JSONResponse({"error": document}, status_code=500)
