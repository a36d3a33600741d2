"""A command in a terminal, over a WebSocket.

    client   start{cmd,cwd,env,cols,rows}   stdin{data_b64}   resize{cols,rows}   signal{sig}
    server   stdout{data_b64}   exit{code,span_id,fs_diff}   error{message}

The other end of the pseudoterminal is the command's stdin, stdout, stderr and controlling
terminal: keys, window sizes and a hang-up reach the command through the kernel, as usual.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from substrate.daemon.http import http_command, responses
from substrate.daemon.http.http_command import Call, Execution
from substrate.daemon.http.http_limits import BusyError, Limits
from substrate.errors import SubstrateError, UsageError
from substrate.protocol import http_bodies
from substrate.system import environment

_CHUNK_BYTES = 16 * 1024
_START_S = 10.0
#: RFC 6455: the server is too busy.
_TRY_AGAIN_LATER = 1013
_LAST_WORDS_S = 0.2

Listed = Callable[[Execution], AbstractContextManager[None]]


async def serve(websocket: WebSocket, door_path: Path, limits: Limits, listed: Listed) -> None:
    """Serve one terminal until it ends."""
    try:
        with limits.waiting_one():
            await websocket.accept()
            async with asyncio.timeout(_START_S):
                first = await _message(websocket)
    except BusyError:  # before it is accepted: an HTTP answer, and the connection ends
        await websocket.close(_TRY_AGAIN_LATER)
        return
    except TimeoutError:
        await _say(websocket, {"type": "error", "message": "no start came", "hint": ""})
        await _end(websocket)
        return
    except SubstrateError as error:
        await _say(websocket, {"type": "error", "message": error.message, "hint": error.hint})
        await _end(websocket)
        return
    except WebSocketDisconnect:
        return
    await _started(websocket, first, door_path, limits, listed)


async def _started(
    websocket: WebSocket,
    first: dict[str, object],
    door_path: Path,
    limits: Limits,
    listed: Listed,
) -> None:
    try:
        if first.get("type") != "start":
            raise UsageError("the first message is start", hint='{"type": "start", "cmd": "bash"}')
        home = environment.current().home
        wanted = http_bodies.execute(first, str(home) if home else "/")
        with limits.executing_one():
            await _session(websocket, door_path, wanted, listed)
    except SubstrateError as error:
        await _say(websocket, {"type": "error", "message": error.message, "hint": error.hint})
    except WebSocketDisconnect:
        return
    await _end(websocket)


async def _end(websocket: WebSocket) -> None:
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):
        await websocket.close()


async def _session(
    websocket: WebSocket, door_path: Path, wanted: http_bodies.Execute, listed: Listed
) -> None:
    terminal = Terminal(wanted.cols, wanted.rows)
    try:
        call = Call.of(wanted)
        stdio = (terminal.follower,) * 3
        running = await http_command.start(door_path, call, stdio, terminal=True)
        terminal.close_follower()
        try:
            with listed(running):
                await _both_ways(websocket, terminal, running)
        finally:
            await running.close()
    finally:
        terminal.close()


async def _both_ways(websocket: WebSocket, terminal: Terminal, running: Execution) -> None:
    said = bytearray()

    async def show() -> None:
        async for chunk in terminal.output(running):
            said.extend(chunk)
            del said[:-65536]
            data = base64.b64encode(chunk).decode("ascii")
            await _say(websocket, {"type": "stdout", "data_b64": data})

    showing = asyncio.create_task(show())
    obeying = asyncio.create_task(_obey(websocket, terminal, running))
    try:
        await asyncio.wait({showing, obeying}, return_when=asyncio.FIRST_COMPLETED)
        if obeying.done() and not showing.done():
            obeying.result()  # raises the client's error, or that it has disconnected
        await showing
        ended = await running.ended
        answer = responses.answer(ended, said.decode("utf-8", "replace").replace("\r\n", "\n"))
        await _say(websocket, {"type": "exit", "code": ended.status, **answer})
    finally:
        for task in (showing, obeying):
            task.cancel()
        await asyncio.gather(showing, obeying, return_exceptions=True)


async def _obey(websocket: WebSocket, terminal: Terminal, running: Execution) -> None:
    while True:
        message = await _message(websocket)
        kind = message.get("type")
        if kind == "stdin":
            await terminal.type(_data(message))
        elif kind == "resize":
            wanted = http_bodies.size(message)
            terminal.resize(wanted.cols, wanted.rows)
        elif kind == "signal":
            running.send(signal_number(message.get("sig")))
        else:
            raise UsageError("an unknown message", hint="type: stdin, resize or signal")


async def _message(websocket: WebSocket) -> dict[str, object]:
    event = await websocket.receive()
    if event["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(event.get("code", 1000))
    said = event.get("text")
    return http_bodies.parse_json(said.encode() if said is not None else event.get("bytes") or b"")


async def _say(websocket: WebSocket, document: dict[str, object]) -> None:
    with contextlib.suppress(RuntimeError):  # the client has disconnected; `receive` reports it
        await websocket.send_text(json.dumps(document))


def _data(message: dict[str, object]) -> bytes:
    try:
        return base64.b64decode(str(message.get("data_b64", "")), validate=True)
    except (binascii.Error, ValueError):
        raise UsageError("data_b64: not base64", hint='{"data_b64": "bHMK"}') from None


def signal_number(name: object) -> int:
    """``INT``, ``SIGINT`` or 2; only signals that may be sent to a command."""
    allowed = {"INT", "TERM", "HUP", "QUIT", "USR1", "USR2"}
    if isinstance(name, int) and not isinstance(name, bool):
        name = signal.Signals(name).name if name in set(signal.Signals) else ""
    short = str(name).removeprefix("SIG")
    if short not in allowed:
        raise UsageError("sig: no such signal", hint=f"one of {', '.join(sorted(allowed))}")
    return int(getattr(signal, f"SIG{short}"))


class Terminal:
    """A pseudoterminal, read and written without ever blocking the server."""

    def __init__(self, cols: int, rows: int) -> None:
        self._leader, self.follower = os.openpty()
        os.set_blocking(self._leader, False)
        self.resize(cols, rows)

    def resize(self, cols: int, rows: int) -> None:
        import fcntl
        import struct
        import termios

        fcntl.ioctl(self._leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    async def output(self, running: Execution) -> AsyncIterator[bytes]:
        """The terminal's output, until the command has ended and nothing more comes."""
        while True:
            ended = running.ended.done()
            if not await self._readable(running):
                if ended:
                    return
                continue
            try:
                chunk = os.read(self._leader, _CHUNK_BYTES)
            except BlockingIOError:
                continue
            except OSError:  # EIO: no process has it open any more
                return
            if not chunk:
                return
            yield chunk

    async def _readable(self, running: Execution) -> bool:
        """Wait until there is something to read; after the command's end, only a short time."""
        reading = asyncio.ensure_future(self._ready(reading=True))
        awaited: set[asyncio.Future[Any]] = {reading}
        ended = running.ended.done()
        if not ended:
            awaited.add(running.ended)
        try:
            await asyncio.wait(
                awaited, timeout=_LAST_WORDS_S if ended else None,
                return_when=asyncio.FIRST_COMPLETED,
            )  # fmt: skip
            return reading.done()
        finally:
            # Also when this is cancelled: another file may soon get the same descriptor number.
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def type(self, data: bytes) -> None:
        """Write all of it; a command that does not read makes its client wait."""
        while data:
            await self._ready(reading=False)
            try:
                data = data[os.write(self._leader, data) :]
            except BlockingIOError:
                continue
            except OSError:
                return

    async def _ready(self, *, reading: bool) -> None:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        (loop.add_reader if reading else loop.add_writer)(self._leader, ready.set)
        try:
            await ready.wait()
        finally:
            (loop.remove_reader if reading else loop.remove_writer)(self._leader)

    def close_follower(self) -> None:
        if self.follower >= 0:
            os.close(self.follower)
            self.follower = -1

    def close(self) -> None:
        self.close_follower()
        os.close(self._leader)
