"""One command for an HTTP client, sent through the door socket like any other caller's command.

The HTTP server's process holds the pipes and the connection; the command runs in a fork of the
fork server. So a fork never copies the HTTP server, and restarting it does not affect history.
When a client disconnects, the HTTP server closes the connection, and that ends the command.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import substrate
from substrate.daemon import notes_to_client
from substrate.errors import SubstrateError
from substrate.protocol import daemon_wire
from substrate.protocol.http_bodies import Execute
from substrate.system import daemon_paths, environment

_CHUNK_BYTES = 64 * 1024
#: After the command has ended, its background children may hold the pipes open for ever.
_LAST_WORDS_S = 0.2


class Call(NamedTuple):
    """Arguments for `substrate`, and the directory and environment to run it in."""

    argv: list[bytes]
    cwd: str
    #: On top of the daemon's own environment.
    env: Mapping[str, str]

    @classmethod
    def of(cls, wanted: Execute) -> Call:
        return cls(wanted.argv(), wanted.cwd, wanted.env)


class Ended(NamedTuple):
    """How it ended; `span` is None if Substrate failed before there was one."""

    status: int
    span: Mapping[str, object] | None


class Execution:
    """A command that was handed to the fork server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        #: The `command_start` record, once there is one.
        self.started: asyncio.Future[Mapping[str, object]] = (
            asyncio.get_running_loop().create_future()
        )
        #: Substrate's own messages, in order; None after the last.
        self.notes: asyncio.Queue[str | None] = asyncio.Queue()
        self.ended = asyncio.ensure_future(self._follow())

    async def started_or_ended(self) -> None:
        both: set[asyncio.Future[Any]] = {self.started, self.ended}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)

    def send(self, signum: int) -> None:
        """Signal all processes of the command, as a terminal would."""
        if not self.ended.done():
            self._writer.write(bytes((signum,)))

    async def close(self) -> None:
        """Close the connection; a command that is still running is ended and recorded."""
        self._writer.close()
        if not self.ended.done():
            self.ended.cancel()
        await asyncio.gather(self.ended, return_exceptions=True)

    async def _follow(self) -> Ended:
        span: Mapping[str, object] | None = None
        try:
            while True:
                kind, payload = await self._reply()
                if kind == daemon_wire.REPORT:
                    event = json.loads(payload)
                    if event.get("event_type") == notes_to_client.EVENT:
                        self.notes.put_nowait(str(event.get("text", "")))
                    elif event.get("event_type") == "command_complete":
                        span = event
                    elif not self.started.done():
                        self.started.set_result(event)
                elif kind == daemon_wire.DECLINED:
                    reason = payload.decode("ascii", "replace")
                    raise SubstrateError(
                        f"the daemon does not take the command: {reason}",
                        hint="try again: a daemon that was replaced is back in a moment",
                    )
                elif kind == daemon_wire.EXITED:
                    status = int(payload)  # below 0: minus the signal that ended the command
                    return Ended(status if status >= 0 else 128 - status, span)
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            raise SubstrateError(
                "the process that ran the command was lost",
                hint="`substrate log` shows what was recorded",
            ) from error
        finally:
            if not self.started.done():
                self.started.cancel()
            self.notes.put_nowait(None)

    async def all_notes(self) -> str:
        """What Substrate itself wrote, once the command has ended."""
        said = []
        while (text := await self.notes.get()) is not None:
            said.append(text)
        return "".join(said)

    async def _reply(self) -> tuple[bytes, bytes]:
        header = await self._reader.readexactly(5)
        size = int.from_bytes(header[1:], "big")
        if size > daemon_wire.MOST_REPLY_BYTES:
            raise ValueError("not a reply")
        return header[:1], await self._reader.readexactly(size)


async def start(
    door_path: Path, call: Call, stdio: tuple[int, int, int], *, terminal: bool = False
) -> Execution:
    """Hand over the command with these descriptors; the caller still has to close them."""
    connection = await asyncio.to_thread(_hand_over, door_path, call, stdio, terminal)
    reader, writer = await asyncio.open_connection(sock=connection, limit=_CHUNK_BYTES)
    return Execution(reader, writer)


def _hand_over(
    door_path: Path, call: Call, stdio: tuple[int, int, int], terminal: bool
) -> socket.socket:
    variables = {**environment.current().variables, **call.env}
    for name in ("SUBSTRATE_SESSION_ID", "SUBSTRATE_PARENT_SPAN"):
        if name not in call.env:
            variables.pop(name, None)
    request = daemon_wire.Request(
        b"run", call.argv,
        [os.fsencode(f"{name}={value}") for name, value in variables.items()],
        version=substrate.__version__.encode(),
        install=os.fsencode(os.path.dirname(substrate.__file__)),
        flags=b"rt" if terminal else b"r",
    )  # fmt: skip
    directory = os.open(call.cwd, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        connection = daemon_paths.connect(os.fsencode(door_path))
        try:
            daemon_wire.send_request(connection, request, (*stdio, directory))
            return socket.socket(fileno=connection.detach())
        except BaseException:
            connection.close()
            raise
    except OSError as error:
        raise SubstrateError(
            f"the command cannot be started: {error.strerror}", hint="try again in a moment"
        ) from error
    finally:
        os.close(directory)


@asynccontextmanager
async def piped(
    door_path: Path, call: Call
) -> AsyncIterator[tuple[Execution, asyncio.StreamReader, asyncio.StreamReader]]:
    """A command with its output in pipes, and empty input."""
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    out_reader, out_writer = os.pipe()
    err_reader, err_writer = os.pipe()
    out, out_transport = await _read_from(out_reader)
    err, err_transport = await _read_from(err_reader)
    try:
        try:
            execution = await start(door_path, call, (null, out_writer, err_writer))
        finally:
            for fd in (null, out_writer, err_writer):
                os.close(fd)
        try:
            yield execution, out, err
        finally:
            await execution.close()
    finally:
        out_transport.close()
        err_transport.close()


async def _read_from(fd: int) -> tuple[asyncio.StreamReader, asyncio.BaseTransport]:
    loop = asyncio.get_running_loop()
    # The limit makes a command wait if it prints faster than its client reads.
    reader = asyncio.StreamReader(limit=_CHUNK_BYTES, loop=loop)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader, loop=loop), os.fdopen(fd, "rb", buffering=0)
    )
    return reader, transport


async def chunks(reader: asyncio.StreamReader, execution: Execution) -> AsyncIterator[bytes]:
    """The output, until the pipe is closed, or the command has ended and nothing more comes."""
    while True:
        reading = asyncio.ensure_future(reader.read(_CHUNK_BYTES))
        both: set[asyncio.Future[Any]] = {reading, execution.ended}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                await asyncio.wait({reading}, timeout=_LAST_WORDS_S)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        if reading.cancelled():
            return
        chunk = reading.result()
        if not chunk:
            return
        yield chunk
