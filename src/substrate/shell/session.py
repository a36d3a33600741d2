"""The whole session, from the first prompt to the last: bash on this terminal, and us beside it.

There is no pseudo-terminal in between: bash has the real terminal, so job control, editors, window
sizes and completion work as usual. Before a line runs, and after it has ended, bash waits for us;
in between we wait for bash.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from substrate.errors import RefusedError, SubstrateError
from substrate.history.arrival import COMMAND as BETWEEN
from substrate.recorder import Place
from substrate.recorder.command import CommandRequest, Recording, record_command
from substrate.shell import find_shell as programs
from substrate.shell import pipe_directory as directories
from substrate.shell import terminal
from substrate.shell.channel import Channel, Message
from substrate.shell.find_shell import ShellProgram
from substrate.shell.line_world import DirectLine, WorldLine
from substrate.shell.shell_broker import BetweenLines, Make, OfLine
from substrate.shell.shell_line import Turn
from substrate.shell.shell_world import ShellWorld
from substrate.system import Environment
from substrate.system.files import files
from substrate.system.process import process, spawn

NOT_KEPT = "(a line that the shell's history does not keep)"


class Surroundings(NamedTuple):
    """Where the shell starts, on whose behalf it records, and the functions that report."""

    cwd: Path
    environment: Environment
    session: str | None
    agent_id: str | None
    recorded: Callable[[Recording], None]
    failed: Callable[[SubstrateError], None]
    note: Callable[[str], None]
    #: Makes the object that answers calls from inside the shell.
    inside: Make
    #: ``--world`` and ``--no-world``.
    world: bool = False
    no_world: bool = False

    def place(self, cwd: Path) -> Place:
        return Place.at(cwd, self.environment, self.session, self.agent_id)


def run_shell(around: Surroundings) -> int:
    """Run the user's shell until it ends, and return its status."""
    path = programs.find(around.environment)
    place = around.place(around.cwd)
    if place.is_inside_world:
        raise RefusedError(
            "this is a world already: what is done here is recorded",
            hint="for a shell of its own: `bash`",
        )
    directory = directories.make(around.environment.substrate_home)
    try:
        with place.keeping() as home:
            return _run_in(home, path, directory, around)
    finally:
        directories.remove(directory)


def _run_in(home: Place, path: str, directory: Path, around: Surroundings) -> int:
    lines, why = _world(home, around, directories.room(directory))
    channel = Channel(directory)
    try:
        pid = os.getpid() if lines is None else None
        program = programs.prepare(path, directory, pid, around.environment)
        _greet(home, around, "" if lines is not None else why)
        return _Shell(program, channel, around, home, (lines, why)).run()
    finally:
        channel.close()
        if lines is not None:
            lines.close()
            for note in lines.notes:
                around.note(note)


def _greet(home: Place, around: Surroundings, no_world: str) -> None:
    """Say that this is a recorded shell: the prompt is the user's own and shows no difference."""
    if home.workspace.history_refused:  # said with the first line
        return
    where = f"on the real files ({no_world})" if no_world else "in a world"
    around.note(
        f"a shell {where}: each line is recorded;"
        " `substrate undo` takes the last back, `exit` leaves"
    )


def _world(home: Place, around: Surroundings, room: Path) -> tuple[ShellWorld | None, str]:
    """The world that the shell will run in, or why there is none."""
    required = around.world or around.environment.world == "enabled"
    if around.no_world or (around.environment.world == "disabled" and not around.world):
        return None, "asked for"
    if home.workspace.history_refused and not required:
        return None, f"no history is kept here ({home.workspace.history_refused})"
    from substrate.world.network import CommandNetwork, parse

    try:
        return ShellWorld(home, room, CommandNetwork(parse("open"))), ""
    except SubstrateError as error:
        if required:
            raise
        return None, error.message


class _Shell:
    def __init__(
        self, program: ShellProgram, channel: Channel, around: Surroundings, home: Place,
        world: tuple[ShellWorld | None, str],
    ) -> None:  # fmt: skip
        """`world`: the shell's world, or why there is none."""
        self._lines, self._why = lines, _ = world
        self._home = home
        self._configuration: list[bytes | None] = []
        self.channel = channel
        self._around = around
        self._between: BetweenLines | None = None
        self._status: int | None = None
        self._number = 0
        self._line = b""
        variables = {
            **around.environment.variables, "SUBSTRATE_SHELL": "1", **program.variables,
        }  # fmt: skip
        if lines is not None:
            variables.update(lines.variables)
        starting = spawn.Program(program.argv, around.cwd, variables, process.INHERITED)
        self._pid = _start(starting) if lines is None else 0
        if lines is not None:
            lines.start(starting)

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
            self._attempt(self._end_between)
            self._record_rest(Turn(self, None, self._ended), BETWEEN.encode())
        return self._ended()

    def next(self) -> Message | None:
        lines = self._lines
        return self.channel.next(
            self._is_over, lambda: {} if lines is None else lines.heard(terminal.stop_with)
        )

    def _record(self, begin: Message) -> Message | None:
        """Record one line as a command, from its start to the next prompt."""
        kept = begin.number != self._number
        line = begin.fields[1] if kept else NOT_KEPT.encode()
        again = kept and line == self._line
        self._number, self._line = begin.number - again, line
        self._attempt(self._end_between)
        turn = Turn(self, begin, self._ended)
        self._attempt(lambda: self._record_line(turn, line, Path(os.fsdecode(begin.fields[2]))))
        if not turn.has_run:
            turn.run()  # recording failed before the line ran: run it anyway
        self._tell()
        turn.close("again" if again else "ok")
        if self._lines is not None:
            self._lines.tidy()
        return turn.successor

    def _record_line(self, turn: Turn, line: bytes, cwd: Path) -> None:
        place, lines = self._around.place(cwd), self._lines
        if place.workspace.root == self._home.workspace.root:
            place = place._replace(kept=self._home.kept)
            self._heed_configuration()
        if lines is not None and place.kept is not None:
            lines.prepare()
            self._record_in_world(turn, line, place)
            return
        why = self._why or "this directory is not in the workspace that the shell was started in"
        world, request = DirectLine(turn, why), CommandRequest(cwd=cwd, shell=line)
        self._around.recorded(record_command(place, world, request))
        self._record_rest(turn, line)

    def _heed_configuration(self) -> None:
        """Reopen the history if a configuration file has changed since it was opened."""
        home = self._home
        paths = (home.workspace.store, home.environment.substrate_home)
        said = [files.read_bytes_or_none(path / "config.toml") for path in paths]
        if said != self._configuration and home.kept is not None:
            home.kept.close()
        self._configuration = said

    def _record_in_world(self, turn: Turn, line: bytes, place: Place) -> None:
        lines = self._lines
        assert lines is not None
        calls = OfLine(self._around.inside)
        request = CommandRequest(cwd=place.cwd, shell=line, inside=calls)
        try:
            world = WorldLine(turn, lines)
            self._around.recorded(record_command(place, world, lines.as_given(request)))
        finally:
            lines.after()
            if calls.scene is not None and not self._is_over():
                self._between = BetweenLines(self._around.inside, calls.scene)
                lines.answer_by(self._between.on_call)

    def _end_between(self) -> None:
        between, self._between = self._between, None
        if between is not None and self._lines is not None:
            self._lines.answer_by(None)
            self._lines.notes += between.finish()

    def _record_rest(self, turn: Turn, line: bytes) -> None:
        """Record what is in the view although no line of this workspace wrote it."""
        lines = self._lines
        if lines is not None and lines.is_touched():
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
