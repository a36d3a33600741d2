"""From the first prompt to the last: bash on this very terminal, and we beside it.

No terminal of our own stands between: bash has the real one, so job control, editors, window
sizes and completion are what they always are. Before a line runs, and when it is done, bash
waits for us; in between we wait for bash.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from substrate.errors import MissingDependencyError, RefusedError, SubstrateError
from substrate.history.unclaimed import COMMAND as BETWEEN
from substrate.recorder.inside import Inside
from substrate.recorder.place import Place
from substrate.recorder.record_command import CommandRequest, Recording, record_command
from substrate.shell import directory as directories
from substrate.shell import terminal
from substrate.shell.channel import Channel, Message
from substrate.shell.hooks import bash_rc
from substrate.shell.line_world import DirectLine, WorldLine
from substrate.shell.lines import Lines
from substrate.shell.turn import Turn
from substrate.system import process, spawn
from substrate.system.environment import Environment

NOT_KEPT = "(a line that the shell's history does not keep)"


class Surroundings(NamedTuple):
    """Where the shell starts, who acts in it, and whom to tell what."""

    cwd: Path
    environment: Environment
    session: str | None
    agent_id: str | None
    recorded: Callable[[Recording], None]
    failed: Callable[[SubstrateError], None]
    note: Callable[[str], None]
    #: ``--world`` and ``--no-world``.
    world: bool = False
    no_world: bool = False
    #: Who answers the calls of `substrate` in one line.
    inside: Callable[[], Inside | None] = lambda: None

    def place(self, cwd: Path) -> Place:
        return Place.at(cwd, self.environment, self.session, self.agent_id)


def run_shell(around: Surroundings) -> int:
    """Run bash until it ends, and return its status."""
    bash = shutil.which("bash")
    if bash is None:
        raise MissingDependencyError("the shell needs bash 4.4 or later", hint="install bash")
    if around.place(around.cwd).is_inside_world:
        raise RefusedError(
            "this is a world already: what is done here is recorded",
            hint="for a shell of its own: `bash`",
        )
    directory = directories.make(around.environment.substrate_home)
    try:
        lines, why = _world(around, directory)
        try:
            return _run(bash, directory, around, lines, why)
        finally:
            if lines is not None:
                lines.close()
                for note in lines.notes:
                    around.note(note)
    finally:
        directories.remove(directory)


def _run(bash: str, directory: Path, around: Surroundings, lines: Lines | None, why: str) -> int:
    channel = Channel(directory)
    try:
        rc = bash_rc(directory, os.getpid() if lines is None else None)
        (directory / "rc").write_text(rc, "utf-8")
        return _Shell(bash, directory, channel, around, lines, why).run()
    finally:
        channel.close()


def _world(around: Surroundings, directory: Path) -> tuple[Lines | None, str]:
    """The world that the shell shall live in; or why there is none."""
    place = around.place(around.cwd)
    required = around.world or around.environment.world == "enabled"
    if around.no_world or (around.environment.world == "disabled" and not around.world):
        return None, "asked for"
    if place.workspace.history_refused and not required:
        return None, f"no history is kept here ({place.workspace.history_refused})"
    from substrate.world.network.command_network import CommandNetwork
    from substrate.world.network.rules import parse

    try:
        return Lines(place, directories.room(directory), CommandNetwork(parse("open"))), ""
    except SubstrateError as error:
        if required:
            raise
        return None, error.message


class _Shell:
    def __init__(
        self, bash: str, directory: Path, channel: Channel, around: Surroundings,
        lines: Lines | None, why: str,
    ) -> None:  # fmt: skip
        self.channel = channel
        self._around = around
        self._lines = lines
        self._why = why
        self._status: int | None = None
        self._number = 0
        self._line = b""
        variables = {**around.environment.variables, "SUBSTRATE_SHELL": "1"}
        if lines is not None:
            variables["SUBSTRATE_WORLD_ID"] = lines.world_id
            if lines.door_path:
                variables["SUBSTRATE_BROKER"] = lines.door_path
        program = spawn.Program(
            (os.fsencode(bash), b"--rcfile", os.fsencode(directory / "rc"), b"-i"),
            around.cwd, variables, process.INHERITED,
        )  # fmt: skip
        self._pid = _start(program) if lines is None else 0
        if lines is not None:
            lines.start(program)

    def run(self) -> int:
        with terminal.LeftToTheShell(self._lines.shell_pid if self._lines else self._pid):
            message = self.next()
            while message is not None:
                if message.kind == "begin":
                    message = self._record(message) or self.next()
                    continue
                if message.kind == "end":
                    self._number = message.number
                self._tell()
                self.channel.answer(message, "ok")
                message = self.next()
            self._record_rest(Turn(self, None, self._ended), BETWEEN.encode())
        return self._ended()

    def next(self) -> Message | None:
        heard = {} if self._lines is None else self._lines.heard(terminal.stop_with)
        return self.channel.next(self._is_over, heard)

    def _record(self, begin: Message) -> Message | None:
        """One line, whole: recorded as a command, from its start to the next prompt."""
        kept = begin.number != self._number
        line = begin.fields[1] if kept else NOT_KEPT.encode()
        again = kept and line == self._line
        self._number, self._line = begin.number - again, line
        turn = Turn(self, begin, self._ended)
        self._attempt(lambda: self._record_line(turn, line, Path(os.fsdecode(begin.fields[2]))))
        if not turn.has_run:
            turn.run()  # the line runs all the same
        self._tell()
        turn.close("again" if again else "ok")
        return turn.successor

    def _record_line(self, turn: Turn, line: bytes, cwd: Path) -> None:
        place, lines = self._around.place(cwd), self._lines
        if lines is not None and place.workspace.root == lines.place.workspace.root:
            lines.prepare()
            self._record_in_world(turn, line, place)
            return
        why = self._why or "this directory is not in the workspace that the shell was started in"
        world, request = DirectLine(turn, why), CommandRequest(cwd=cwd, shell=line)
        self._around.recorded(record_command(place, world, request))
        self._record_rest(turn, line)

    def _record_in_world(self, turn: Turn, line: bytes, place: Place) -> None:
        lines = self._lines
        assert lines is not None
        touched = lines.touched()
        made_from = None if touched is None else (touched.base, touched.since_ns)
        request = CommandRequest(
            cwd=place.cwd, shell=line, made_from=made_from, inside=self._around.inside()
        )
        try:
            self._around.recorded(record_command(place, WorldLine(turn, lines), request))
        finally:
            lines.after()

    def _record_rest(self, turn: Turn, line: bytes) -> None:
        """What is in the view although no line of this workspace has put it there."""
        lines = self._lines
        if lines is not None and lines.touched() is not None:
            self._attempt(lambda: self._record_in_world(turn, line, lines.place))

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        except SubstrateError as error:
            self._around.failed(error)
        except OSError as error:
            self._around.failed(SubstrateError(str(error)))

    def _tell(self) -> None:
        if self._lines is None:
            return
        notes, self._lines.notes = self._lines.notes, []
        for note in notes:
            self._around.note(note)

    # ------------------------------------------------------------------ its end

    def _is_over(self) -> bool:
        if self._status is not None:
            return True
        if self._lines is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._status = status if pid else None
            return pid > 0
        self._lines.collect()
        if self._lines.ended is not None:
            self._status = self._lines.ended[0]
            if os.WIFSIGNALED(self._status):
                self._lines.hang_up()
        return self._status is not None

    def _ended(self) -> int:
        assert self._status is not None
        code = os.waitstatus_to_exitcode(self._status)
        return 128 - code if code < 0 else code


def _start(program: spawn.Program) -> int:
    pid, error = spawn.start(program, signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    if error is not None:
        name = os.fsdecode(program.argv[0])
        raise SubstrateError(f"{name} cannot be started: {error.strerror}", hint="install bash")
    return pid
