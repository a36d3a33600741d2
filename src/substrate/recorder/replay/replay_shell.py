"""Run the commands of a replay in its private tree, and keep their output for comparison.

No other process uses the tree. If the system supports it, a world shows the tree at the path where
it was recorded. Otherwise the commands run at the tree's present path, and paths in their text and
their output are translated. In both cases the live tree is not touched.
"""

from __future__ import annotations

import os
import select
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from substrate.packs.tools import ConfinedTree, ShellCall, ShellDone, TreeError
from substrate.system import Environment, umask
from substrate.system.process import fork_workers, process
from substrate.trace import REPLAYED_VARIABLES
from substrate.world import Isolation

_CHUNK = 1 << 16
#: How long to wait for the last output after the command has ended.
_LAST_WORDS_S = 10.0
#: Exit statuses of a program that is not executable, or does not exist.
_NOT_STARTED = (126, 127)

DIRECT_REASON = (
    "the commands run in a private copy of the tree, but with no world around them: "
    "nothing keeps them from other files of the machine"
)


class Done(NamedTuple):
    """How one command ended, whatever ran it."""

    exit: int
    timed_out: bool
    problem: str = ""
    scopes: tuple[str, ...] = ()


class Streams(NamedTuple):
    stdin: int
    stdout: int
    stderr: int


class CommandToRun(NamedTuple):
    argv: tuple[str | bytes, ...]
    #: In the tree, at its present path on this machine.
    cwd: Path
    env: Mapping[str, str]
    timeout_s: float


class ScratchShell:
    """Runs commands in a tree without a world; `replay_world` adds one."""

    def __init__(
        self, scratch: Path, tree: ConfinedTree, variables: Mapping[str, str], why: str = ""
    ) -> None:
        self.tree = tree
        self._scratch = scratch
        self._variables = variables
        self._count = 0
        self.isolation = Isolation(
            "direct", "none", "open", f"{why}; {DIRECT_REASON}" if why else DIRECT_REASON
        )

    @property
    def mapped(self) -> tuple[tuple[bytes, bytes], ...]:
        """(present path, recorded path), if commands do not see the tree at its recorded path."""
        if not self.tree.recorded_root:
            return ()
        now, then = os.fsencode(self.tree.directory), os.fsencode(self.tree.recorded_root)
        return ((now, then),)

    def run(self, call: ShellCall) -> ShellDone:
        self._count += 1
        files = [self._scratch / f"{self._count}.{name}" for name in ("out", "err", "both")]
        for path in files:
            path.write_bytes(b"")
        try:
            cwd = self._directory(call)
        except TreeError as error:
            return ShellDone(127, False, files[0], files[1], files[2], f"its directory: {error}")
        command = CommandToRun(self._argv(call), cwd, self._environment(call), call.timeout_s)
        with _stdin(self._scratch, call.stdin) as stdin, _umask(call.umask):
            pump = _Pump(files, call.output_bytes)
            try:
                run = self.start_outside if call.outside else self.start
                done = run(command, Streams(stdin, pump.stdout, pump.stderr))
            finally:
                capped = pump.finish()
        problem = done.problem
        is_not_started = bool(problem) and done.exit in _NOT_STARTED and not capped
        if capped:
            problem = f"it printed more than {call.output_bytes} bytes"
        return ShellDone(
            done.exit,
            done.timed_out,
            files[0],
            files[1],
            files[2],
            problem,
            done.scopes,
            is_not_started,
        )

    def start(self, command: CommandToRun, streams: Streams) -> Done:
        """Run one command to its end; `WorldShell` overrides this."""
        return self.start_outside(command, streams)

    def start_outside(self, command: CommandToRun, streams: Streams) -> Done:
        finished = process.run_foreground(
            command.argv, cwd=command.cwd, env=command.env, timeout_s=command.timeout_s,
            kill_children=True, stdio=process.Stdio(*streams),
        )  # fmt: skip
        return Done(finished.exit_code, finished.timed_out, finished.error)

    # -- what to run ----------------------------------------------------------------------------

    def _directory(self, call: ShellCall) -> Path:
        import stat

        where = self.tree.locate(call.cwd or ".")
        real = self.tree.resolve(where)
        if self.tree.kind(where) != stat.S_IFDIR:
            raise TreeError(f"{call.cwd} is not in the replayed tree")
        return self.tree.directory / os.fsdecode(real) if real else self.tree.directory

    def _argv(self, call: ShellCall) -> tuple[str | bytes, ...]:
        if isinstance(call.command, str):
            return tuple(process.shell_argv(self._translated(call.command)))
        if call.outside:
            return call.command
        return tuple(self._translated(word) for word in call.command)

    def _translated(self, text: str) -> bytes:
        """The command with the recorded path of the tree replaced by the present one."""
        raw = text.encode("utf-8", "surrogateescape")
        for now, then in self.mapped:
            raw = raw.replace(then, now)
        return raw

    def _environment(self, call: ShellCall) -> dict[str, str]:
        env = dict(self._variables)
        if call.env is not None:
            here = self._variables.get("PATH", "")
            env = {**call.env, "PATH": joined_path(call.env.get("PATH", ""), here)}
        for name in ("PATH", "HOME"):
            env.setdefault(name, self._variables.get(name, "/"))
        return env


def joined_path(recorded: str, here: str) -> str:
    """The PATH to replay with: the recorded one, and what only the present one has.

    recorded  /a:/b       here  /new:/a:/b   ->  /new:/a:/b   the user put a tool before the others
    recorded  /mine:/a    here  /a:/c        ->  /mine:/a:/c  the recorded order wins
    """
    then = [part for part in recorded.split(os.pathsep) if part]
    now = [part for part in here.split(os.pathsep) if part]
    rest = iter(now)
    if all(part in rest for part in then):
        return os.pathsep.join(now)
    return os.pathsep.join([*then, *(part for part in now if part not in then)])


def known_variables(environment: Environment, given: Mapping[str, str]) -> dict[str, str]:
    """The variables of our environment that affect commands, never a secret, and `given`."""
    variables = environment.variables
    known = {name: variables[name] for name in REPLAYED_VARIABLES if name in variables}
    return known | dict(given)


# -- streams --------------------------------------------------------------------------------------


class _Pump:
    """Writes a command's output to files, in the order of arrival, up to a cap.

    A child process does it: a thread in this process would make it unsafe to fork a world.
    """

    def __init__(self, files: list[Path], cap: int) -> None:
        self._files = files
        self._cap = cap
        self._child: fork_workers.Forked | None = None
        if not fork_workers.can_fork():
            self.stdout, self.stderr = (os.open(path, os.O_WRONLY) for path in files[:2])
            return
        out_reader, self.stdout = os.pipe()
        err_reader, self.stderr = os.pipe()
        readers = (out_reader, err_reader)
        self._child = fork_workers.fork(lambda: self._work(readers))
        for reader in readers:
            os.close(reader)

    def finish(self) -> bool:
        """Wait for the rest of the output. Returns whether it exceeded the cap."""
        for fd in (self.stdout, self.stderr):
            os.close(fd)
        if self._child is None:
            out, err = (path.read_bytes() for path in self._files[:2])
            self._files[2].write_bytes(out + err)
            return len(out) + len(err) > self._cap
        return self._child.answer_within(_LAST_WORDS_S) is True

    def _work(self, readers: tuple[int, int]) -> bool:
        for fd in (self.stdout, self.stderr):
            os.close(fd)
        writers = [os.open(path, os.O_WRONLY) for path in self._files]
        open_ends = {reader: writers[n] for n, reader in enumerate(readers)}
        total = 0
        while open_ends:
            ready, _, _ = select.select(list(open_ends), [], [])
            for reader in ready:
                data = os.read(reader, _CHUNK)
                if not data:
                    del open_ends[reader]
                    continue
                total += len(data)
                if total > self._cap:
                    return True  # the command's next write fails on a closed pipe
                _write(open_ends[reader], data)
                _write(writers[2], data)
        return False


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


@contextmanager
def _stdin(scratch: Path, data: bytes) -> Iterator[int]:
    if not data:
        fd = os.open(os.devnull, os.O_RDONLY)
    else:
        path = scratch / "stdin"
        path.write_bytes(data)
        fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        with suppress(OSError):
            os.close(fd)


@contextmanager
def _umask(wanted: int | None) -> Iterator[None]:
    if wanted is None:
        yield
        return
    before = umask.current()
    umask.take(wanted)
    try:
        yield
    finally:
        umask.take(before)
