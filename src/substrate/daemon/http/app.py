"""What the daemon answers over HTTP: the routes of docs/daemon.md."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

import substrate
from substrate.daemon.http import http_command, pty_stream, responses
from substrate.daemon.http.http_command import Call, Execution, chunks
from substrate.daemon.http.http_limits import MOST_OUTPUT_BYTES, Limits
from substrate.daemon.http.request_checks import Guard
from substrate.errors import NotFoundError, SubstrateError, UsageError
from substrate.protocol import http_bodies
from substrate.recorder import Place
from substrate.review import Review, error_document, error_handlers, read_document
from substrate.system import environment
from substrate.trace import TraceReader
from substrate.workspace import find_workspace
from substrate.world import STRATEGIES, TIERS
from substrate.world.capabilities import finding

#: What a client may ask this daemon for.
FEATURES = ("execute", "stream", "cancel", "pty", "trace", "doctor", "fs_diff", "review")
_SPAN_ID = re.compile(r"spn_[0-9a-z]{1,64}")
#: As in nginx: the client closed the connection, so this status is never read.
_CLIENT_GONE = 499


class Service:
    """The daemon's HTTP side: the path of the door socket, and the commands that are running."""

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
        review = Review(_reviewed, self._ask_verb)
        handlers = error_handlers("docs/daemon.md")
        return Guard(Starlette(routes=[*routes, *review.routes()], exception_handlers=handlers))

    async def _capabilities(self, request: Request) -> Response:
        directory = _directory(request)
        answer = await asyncio.to_thread(capabilities)
        return JSONResponse(await self._with_interrupted(answer, directory))

    async def _doctor(self, request: Request) -> Response:
        answer = await self._asked([b"doctor", b"--json"], _directory(request) or "/")
        return Response(answer, media_type="application/json")

    async def _asked(self, words: list[bytes], directory: str) -> bytes:
        """The command line's answer with `--json`."""
        with self.limits.executing_one():
            async with http_command.piped(self.door_path, Call(words, directory, {})) as running_on:
                running, out, err = running_on
                said, _ = await asyncio.gather(_collect(out, running), _collect(err, running))
                ended = await running.ended
                return responses.own_answer(ended, said[0], await running.all_notes())

    async def _ask_verb(self, words: list[str], directory: str) -> bytes:
        return await self._asked([b"--json", *map(os.fsencode, words)], directory)

    async def _execute(self, request: Request) -> Response:
        call = Call.of(await _wanted(request))
        with self.limits.executing_one():
            async with http_command.piped(self.door_path, call) as (running, out, err):
                with self._listed(running):
                    work = asyncio.gather(_collect(out, running), _collect(err, running))
                    if not await _done_before_disconnect(request, work):
                        return Response(status_code=_CLIENT_GONE)
                    (stdout, more_out), (stderr, more_err) = work.result()
                    ended = await running.ended
                    notes = await running.all_notes()
        answer = responses.answer(ended, notes)
        answer["stdout_b64"] = base64.b64encode(stdout).decode("ascii")
        answer["stderr_b64"] = base64.b64encode(stderr).decode("ascii")
        if notes:
            answer["notes"] = notes
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
            async with http_command.piped(self.door_path, call) as (running, out, err):
                with self._listed(running):
                    notes = ""
                    async for name, chunk in _merged(running, out, err):
                        if name == "start":
                            yield {"type": name, **responses.started(running.started.result())}
                        elif name == "note":
                            notes += chunk.decode()
                            yield {"type": name, "text": chunk.decode()}
                        else:
                            data = base64.b64encode(chunk).decode("ascii")
                            yield {"type": name, "data_b64": data}
                    ended = await running.ended
            yield {"type": "exit", "code": ended.status, **responses.answer(ended, notes)}
        except SubstrateError as error:
            yield {"type": "error", **error_document(error)}

    async def _cancel(self, request: Request) -> Response:
        document = await read_document(request)
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
        answer: dict[str, object] = {"span_id": span_id, "events": events}
        workspace = str(events[0].get("workspace", ""))
        return JSONResponse(await self._with_interrupted(answer, workspace))

    async def _with_interrupted(
        self, answer: dict[str, object], workspace: str
    ) -> dict[str, object]:
        """`answer`, plus what a kill interrupted in the workspace, as `stats --json` reports it."""
        found = await self._interrupted(workspace) if workspace else None
        return {**answer, "interrupted": found} if found else answer

    async def _interrupted(self, workspace: str) -> object:
        try:  # ask only if there may be something: asking starts a process
            found = await asyncio.to_thread(find_workspace, Path(workspace))
            if not os.path.getsize(found.root / ".substrate-git" / "lock"):
                return None
            said = await self._asked([b"stats", b"--json"], workspace)
            return json.loads(said).get("interrupted")
        except (OSError, ValueError, SubstrateError):
            return None

    async def _pty(self, websocket: WebSocket) -> None:
        await pty_stream.serve(websocket, self.door_path, self.limits, self._listed)

    @contextlib.contextmanager
    def _listed(self, running: Execution) -> Iterator[None]:
        """Put it where `cancel` finds it, as soon as it has an id."""
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


def _directory(request: Request) -> str:
    """The directory that names the request's workspace; empty if the request names none."""
    wanted = request.query_params.get("cwd", "")
    if wanted and not (wanted.startswith("/") and os.path.isdir(wanted)):
        raise UsageError("cwd: not a directory", hint="cwd takes an absolute path")
    return wanted


def _reviewed(request: Request) -> Place:
    directory = _directory(request)
    if not directory:
        raise UsageError("cwd is needed", hint="cwd names a directory of the workspace")
    return Place.at(Path(directory), environment.current())


async def _wanted(request: Request) -> http_bodies.Execute:
    home = environment.current().home
    wanted = http_bodies.execute(await read_document(request), str(home) if home else "/")
    if wanted.pty:
        raise UsageError("pty: a terminal needs a stream", hint="WebSocket /v1/stream")
    return wanted


async def _collect(reader: asyncio.StreamReader, running: Execution) -> tuple[bytes, bool]:
    """The output up to the maximum, and whether there was more."""
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
    """Both streams and Substrate's notes as they come, after the start; at most one chunk waits at
    a time."""
    queue: asyncio.Queue[tuple[str, bytes] | None] = asyncio.Queue(1)

    async def copy(name: str, reader: asyncio.StreamReader) -> None:
        async for chunk in chunks(reader, running):
            await queue.put((name, chunk))
        await queue.put(None)

    async def notes() -> None:
        while (text := await running.notes.get()) is not None:
            await queue.put(("note", text.encode("utf-8", "backslashreplace")))
        await queue.put(None)

    await running.started_or_ended()
    if running.started.done() and not running.started.cancelled():
        yield "start", b""
    copying = (copy("stdout", out), copy("stderr", err), notes())
    copies = [asyncio.create_task(one) for one in copying]
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


def capabilities() -> dict[str, object]:
    """What this daemon can do, and which strategies work on this machine."""
    return {
        "version": substrate.__version__,
        "api": ["v1"],
        "features": list(FEATURES),
        "tiers": list(TIERS),
        "strategies": [{"strategy": name, **_works(name)} for name in STRATEGIES],
    }


def _works(strategy: str) -> dict[str, object]:
    found = finding(strategy)
    works = found.works or strategy == "direct"
    return {"works": works, "why": "" if works else found.why, "fix": "" if works else found.fix}
