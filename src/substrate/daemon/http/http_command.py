"""One command for an HTTP client: through the door, like any other caller's.

The server's process holds the pipes and the connection; the command runs in a fork of the
zygote, so a fork never copies the server, and a restart of the server is no matter for history.
Closing the connection ends the command: that is how a client that went away is dealt with.
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
from substrate.errors import SubstrateError
from substrate.protocol import door
from substrate.protocol.http import Execute
from substrate.system import agent_place, environment

_CHUNK_BYTES = 64 * 1024
#: After the command is done, its background children may hold the pipes open for ever.
_LAST_WORDS_S = 0.2


class Call(NamedTuple):
    """Words for `substrate`, and where and with what to say them."""

    argv: list[bytes]
    cwd: str
    #: On top of the agent's own environment.
    env: Mapping[str, str]

    @classmethod
    def of(cls, wanted: Execute) -> Call:
        return cls(wanted.argv(), wanted.cwd, wanted.env)


class Ended(NamedTuple):
    """How it went; `span` is None if Substrate failed before there was one."""

    status: int
    span: Mapping[str, object] | None


class Execution:
    """A command that was handed over."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        #: The `command_start` record, once there is one.
        self.started: asyncio.Future[Mapping[str, object]] = (
            asyncio.get_running_loop().create_future()
        )
        self.ended = asyncio.ensure_future(self._follow())

    async def started_or_ended(self) -> None:
        both: set[asyncio.Future[Any]] = {self.started, self.ended}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)

    def send(self, signum: int) -> None:
        """Signal the command, as a terminal would: all of it."""
        if not self.ended.done():
            self._writer.write(bytes((signum,)))

    async def close(self) -> None:
        """Let go; a command that still runs is ended and recorded."""
        self._writer.close()
        if not self.ended.done():
            self.ended.cancel()
        await asyncio.gather(self.ended, return_exceptions=True)

    async def _follow(self) -> Ended:
        span: Mapping[str, object] | None = None
        try:
            while True:
                kind, payload = await self._reply()
                if kind == door.REPORT:
                    event = json.loads(payload)
                    if event.get("event_type") == "command_complete":
                        span = event
                    elif not self.started.done():
                        self.started.set_result(event)
                elif kind == door.DECLINED:
                    reason = payload.decode("ascii", "replace")
                    raise SubstrateError(
                        f"the agent does not take the command: {reason}",
                        hint="try again: an agent that was replaced is back in a moment",
                    )
                elif kind == door.EXITED:
                    return Ended(int(payload), span)
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            raise SubstrateError(
                "the process that ran the command was lost",
                hint="`substrate log` shows what was recorded",
            ) from error
        finally:
            if not self.started.done():
                self.started.cancel()

    async def _reply(self) -> tuple[bytes, bytes]:
        header = await self._reader.readexactly(5)
        size = int.from_bytes(header[1:], "big")
        if size > door.MOST_REPLY_BYTES:
            raise ValueError("not a reply")
        return header[:1], await self._reader.readexactly(size)


async def start(
    door_path: Path, call: Call, stdio: tuple[int, int, int], *, terminal: bool = False
) -> Execution:
    """Hand it over with these descriptors, which stay the caller's to close."""
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
    request = door.Request(
        b"run", call.argv,
        [os.fsencode(f"{name}={value}") for name, value in variables.items()],
        version=substrate.__version__.encode(),
        install=os.fsencode(os.path.dirname(substrate.__file__)),
        flags=b"rt" if terminal else b"r",
    )  # fmt: skip
    directory = os.open(call.cwd, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        connection = agent_place.connect(os.fsencode(door_path))
        try:
            door.send_request(connection, request, (*stdio, directory))
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
    """A command with its output in pipes, and nothing to read."""
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
    # The limit makes a command wait that prints faster than its client reads.
    reader = asyncio.StreamReader(limit=_CHUNK_BYTES, loop=loop)
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader, loop=loop), os.fdopen(fd, "rb", buffering=0)
    )
    return reader, transport


async def chunks(reader: asyncio.StreamReader, execution: Execution) -> AsyncIterator[bytes]:
    """What comes, until the pipe is closed, or the command is done and nothing more comes."""
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
