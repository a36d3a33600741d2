"""Answers one call from inside a world, in its own process."""

from __future__ import annotations

import _socket
import io
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn, TextIO

from substrate.broker import nested_commands
from substrate.broker.nested_commands import Begun, State
from substrate.errors import EXIT_REFUSED, SubstrateError
from substrate.protocol import broker_wire
from substrate.recorder.command import Scene, UndoWish
from substrate.system.process import Channel, ClosedError

__all__ = ["Answer", "Begun", "Call", "State", "close_all", "handle"]

#: The time limit for receiving the question.
_HEARING_S = 3
#: The reader inside may be a pager, so the limit is long.
_LONGEST_S = 600
_LONGEST_CPU_S = 120
#: A limit of our own, because the command's limits do not apply to this process.
_MOST_MEMORY = 1 << 30
#: More of them would push older ones out of what is kept.
MOST_UNDOS = 50
MOST_CHECKPOINTS = 20

close_all = nested_commands.close_all


class Call(NamedTuple):
    """A call as the command line sees it."""

    words: list[str]
    #: Below the workspace's root; the directory may exist only inside the world.
    cwd: Path
    stdout: TextIO
    stderr: TextIO
    no_color: bool
    columns: int
    scene: Scene
    #: Commands for which an undo is already requested.
    already: tuple[str, ...]
    may_undo: bool
    may_mark: bool


class Answered(NamedTuple):
    status: int
    #: The undo to do when the command has ended.
    undo: UndoWish | None = None
    #: Whether a checkpoint was made.
    marked: bool = False


#: Carries out a call's words.
Answer = Callable[[Call], Answered]


def handle(
    connection: _socket.socket, tell: Channel, scene: Scene, state: State, answer: Answer
) -> NoReturn:
    """Called right after the fork."""
    try:
        signal.alarm(_HEARING_S)
        question = broker_wire.receive_question(connection)
        _limit()
        broker_wire.send_frame(connection, broker_wire.HEARD)
        if question.kind == broker_wire.ASK:
            status = _ask(connection, question, tell, scene, state, answer)
        else:
            status = _note(connection, question, tell, scene, state)
        broker_wire.send_frame(connection, broker_wire.EXITED, b"%d" % status)
    except (OSError, EOFError, ValueError, ClosedError):
        pass  # the caller is gone, or sent something else than a question
    finally:
        os._exit(0)


def _ask(
    connection: _socket.socket,
    question: broker_wire.Question,
    tell: Channel,
    scene: Scene,
    state: State,
    answer: Answer,
) -> int:
    stdout = _stream(connection, broker_wire.OUT, b"o" in question.flags)
    stderr = _stream(connection, broker_wire.ERR, b"e" in question.flags)
    call = Call(
        [os.fsdecode(word) for word in question.words], _directory(scene, question.cwd),
        stdout, stderr, b"n" in question.flags, question.columns, scene,
        tuple(wish.command_id for wish in state.undos),
        len(state.undos) < MOST_UNDOS, state.checkpoints < MOST_CHECKPOINTS,
    )  # fmt: skip
    status, undo, marked = answer(call)
    if undo is not None:
        tell.send("undo", tuple(undo))
    if marked:
        tell.send("checkpoint")
    for stream in (stdout, stderr):
        with suppress(BrokenPipeError):
            stream.flush()
    return status


def _limit() -> None:
    import resource

    signal.alarm(_LONGEST_S)
    resource.setrlimit(resource.RLIMIT_CPU, (_LONGEST_CPU_S, _LONGEST_CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    if most == resource.RLIM_INFINITY or most > _MOST_MEMORY:
        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY, _MOST_MEMORY))


def _note(
    connection: _socket.socket,
    question: broker_wire.Question,
    tell: Channel,
    scene: Scene,
    state: State,
) -> int:
    """Record that a command inside begins, or has ended."""
    try:
        if question.kind == broker_wire.BEGIN:
            begun = nested_commands.begin(
                scene, state, question.words, _directory(scene, question.cwd)
            )
            tell.send("begun", tuple(begun))
            ids = f"{begun.span_id} {scene.session_id}"
            broker_wire.send_frame(connection, broker_wire.IDS, ids.encode())
        else:
            tell.send("ended", nested_commands.end(scene, state, question.words))
    except SubstrateError as error:
        said = f"{error.message}\n{error.hint}"
        broker_wire.send_frame(connection, broker_wire.ERR, said.encode("utf-8", "replace"))
        return EXIT_REFUSED
    return 0


def _directory(scene: Scene, cwd: bytes) -> Path:
    """The caller's directory, by name only; the root if it is outside the workspace."""
    here = os.path.normpath(cwd)
    root = os.fsencode(scene.place.workspace.root)
    is_below = here == root or here.startswith(root.rstrip(b"/") + b"/")
    return Path(os.fsdecode(here if is_below else root))


class _Frames(io.RawIOBase):
    """A stream whose bytes go to the caller, which writes them to its own stream."""

    def __init__(self, connection: _socket.socket, kind: bytes, is_terminal: bool) -> None:
        self._connection = connection
        self._kind = kind
        self._is_terminal = is_terminal

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, data: object) -> int:
        raw = bytes(memoryview(data))  # type: ignore[arg-type]
        broker_wire.send_frame(self._connection, self._kind, raw)
        return len(raw)


def _stream(connection: _socket.socket, kind: bytes, is_terminal: bool) -> TextIO:
    raw = io.BufferedWriter(_Frames(connection, kind, is_terminal), broker_wire.MOST_FRAME_BYTES)
    return io.TextIOWrapper(raw, "utf-8", "backslashreplace")
