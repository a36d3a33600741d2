"""From the first prompt to the last: bash on this very terminal, and we beside it.

No terminal of our own stands between: bash has the real one, so job control, editors, window
sizes and completion are what they always are. Before a line runs, and when it is done, bash
waits for us; in between we wait for bash.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from substrate.errors import MissingDependencyError, SubstrateError
from substrate.recorder.place import Place
from substrate.recorder.record_command import CommandRequest, Recording, record_command
from substrate.shell.channel import Channel, Message
from substrate.shell.hooks import bash_rc
from substrate.shell.line_world import LineWorld
from substrate.system import process, spawn
from substrate.system.environment import Environment

NOT_KEPT = "(a line that the shell's history does not keep)"

#: The terminal's keys are bash's, and its jobs'.
_NOT_OURS = ("SIGINT", "SIGQUIT", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGHUP", "SIGTERM")


class Surroundings:
    """Where the shell starts, who acts in it, and whom to tell what."""

    def __init__(
        self, cwd: Path, environment: Environment, session: str | None, agent_id: str | None,
        recorded: Callable[[Recording], None], failed: Callable[[SubstrateError], None],
    ) -> None:  # fmt: skip
        self.cwd = cwd
        self.environment = environment
        self.session = session
        self.agent_id = agent_id
        self.recorded = recorded
        self.failed = failed


def run_shell(surroundings: Surroundings) -> int:
    """Run bash until it ends, and return its status."""
    bash = shutil.which("bash")
    if bash is None:
        raise MissingDependencyError("the shell needs bash 4.4 or later", hint="install bash")
    directory = Path(tempfile.mkdtemp(prefix="substrate-shell-"))
    channel = Channel(directory)
    try:
        (directory / "rc").write_text(bash_rc(directory, os.getpid()), "utf-8")
        shell = _Shell(bash, directory, channel, surroundings)
        return shell.run()
    finally:
        channel.close()
        shutil.rmtree(directory, ignore_errors=True)


class _Shell:
    def __init__(
        self, bash: str, directory: Path, channel: Channel, surroundings: Surroundings
    ) -> None:
        self._channel = channel
        self._around = surroundings
        self._status: int | None = None
        self._number = 0
        self._line = b""
        self._pid = _start(bash, directory, surroundings)

    def run(self) -> int:
        before = {name: _ignore(name) for name in _NOT_OURS}
        try:
            while (message := self._next()) is not None:
                if message.kind == "begin":
                    self._record(message)
                else:
                    self._number = message.number
                    self._channel.answer(message, "ok")
            assert self._status is not None
            return self._status
        finally:
            _take_terminal_back()
            for name, handler in before.items():
                signal.signal(getattr(signal, name), handler)

    def _record(self, begin: Message) -> None:
        """One line, whole: recorded as a command, from its start to the next prompt."""
        kept = begin.number != self._number
        line = begin.rest[0] if kept else NOT_KEPT.encode()
        again = kept and line == self._line
        self._number, self._line = begin.number - again, line
        came: list[Message] = []

        def until_prompt() -> int:
            self._channel.answer(begin, "go")
            message = self._next()
            if message is None:
                return self._status or 0
            came.append(message)
            return int(message.rest[0]) if message.kind == "end" else 0

        around = self._around
        try:
            cwd = Path(os.fsdecode(begin.rest[1]))
            place = Place.at(cwd, around.environment, around.session, around.agent_id)
            request = CommandRequest(cwd=cwd, shell=line)
            around.recorded(record_command(place, LineWorld(until_prompt), request))
        except (SubstrateError, OSError) as error:
            around.failed(
                error if isinstance(error, SubstrateError) else SubstrateError(str(error))
            )
            if not came:
                until_prompt()  # the line runs all the same
        if not came:
            return
        if came[0].kind == "begin":  # the end was never said: somebody changed PROMPT_COMMAND
            self._record(came[0])
        else:
            self._channel.answer(came[0], "again" if again else "ok")

    def _next(self) -> Message | None:
        return self._channel.next(self._is_over)

    def _is_over(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self._status = 128 - code if code < 0 else code
        return self._status is not None


def _start(bash: str, directory: Path, around: Surroundings) -> int:
    variables = {**around.environment.variables, "SUBSTRATE_SHELL": "1"}
    program = spawn.Program(
        (os.fsencode(bash), b"--rcfile", os.fsencode(directory / "rc"), b"-i"),
        around.cwd, variables, process.INHERITED,
    )  # fmt: skip
    pid, error = spawn.start(program, signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    if error is not None:
        raise SubstrateError(f"{bash} cannot be started: {error.strerror}", hint="install bash")
    return pid


def _ignore(name: str) -> signal._HANDLER:
    return signal.signal(getattr(signal, name), signal.SIG_IGN)


def _take_terminal_back() -> None:
    """A bash that was killed did not give it back."""
    try:
        os.tcsetpgrp(0, os.getpgrp())
    except OSError:
        pass
