"""Starting processes; no other module does. Other programs run captured, for our own use, or in the
foreground, for the user. Our own children start with `fork_child` or a function after it.

`subprocess` is imported on first use: it costs as much start-up time as the rest of a small
command, and running a user's command on a POSIX system does not need it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, NamedTuple, NoReturn

from substrate.errors import MissingDependencyError, SubstrateError, WorkspaceError
from substrate.system import clock, environment

if TYPE_CHECKING:
    import subprocess

Arg = str | bytes
PathArg = str | bytes | os.PathLike[str]
Environ = Mapping[str, str] | Mapping[bytes, bytes]

#: Exit status of timeout(1) after it ended the command.
EXIT_TIMED_OUT = 124
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127
#: Time between TERM and KILL.
KILL_GRACE_S = 5.0
#: Buffer size of a conversation: with a smaller one, long answers take many more read calls.
_CONVERSATION_BYTES = 128 << 10


class Completed(NamedTuple):
    """A captured run. `returncode` is negative if a signal killed the program."""

    returncode: int
    stdout: bytes
    stderr: bytes


class Conversation(NamedTuple):
    """A program that answers questions: close both ends, then wait."""

    stdin: IO[bytes]
    stdout: IO[bytes]
    wait: Callable[[], int]


class Stdio(NamedTuple):
    """Descriptors for a foreground command; `None` means our own."""

    stdin: int | None = None
    stdout: int | None = None
    stderr: int | None = None


INHERITED = Stdio()


class Finished(NamedTuple):
    """How a foreground command ended, in the terms of a shell."""

    #: The command's exit status; 128+n if signal n killed it; 124, 126, 127 as above.
    exit_code: int
    #: The signal that killed it, if one did.
    signal: int | None
    timed_out: bool
    duration_ns: int
    #: Why it could not be started, for stderr: ``foo: command not found``. Empty if it was started.
    error: str = ""
    #: How many processes that it left running were ended (`kill_children`).
    killed_children: int = 0


def run(
    argv: Sequence[Arg],
    *,
    cwd: PathArg | None = None,
    env: Mapping[str, str] | None = None,
    input: bytes | None = None,  # noqa: A002 (the name subprocess gave it)
    check: bool = False,
    timeout_s: float | None = None,
) -> Completed:
    """Run a program to its end and capture its output; stdin is `input`, or empty.

    Raises `MissingDependencyError` if there is no such program, `WorkspaceError` if there is no
    such directory, `SubstrateError` on a timeout (the program is killed) and, with `check`, on any
    exit status but 0.
    """
    import subprocess

    try:
        done = subprocess.run(
            argv,
            cwd=cwd,
            env=env,
            input=b"" if input is None else input,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise SubstrateError(
            f"{_name(argv)} did not finish within {timeout_s:g} s",
            hint="it was ended; try again when the machine is less busy",
        ) from error
    except OSError as error:
        raise _not_started(argv, cwd, error) from error
    completed = Completed(done.returncode, done.stdout, done.stderr)
    if check and completed.returncode != 0:
        raise _failed(argv, completed)
    return completed


def converse(
    argv: Sequence[Arg], *, cwd: PathArg | None = None, env: Mapping[str, str] | None = None
) -> Conversation:
    """Start a program that reads requests on stdin and answers on stdout; stderr is dropped.

    Raises like `run` if it cannot be started.
    """
    import subprocess

    pipe = subprocess.PIPE
    try:
        child = subprocess.Popen(
            argv, cwd=cwd, env=env, bufsize=_CONVERSATION_BYTES,
            stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError as error:
        raise _not_started(argv, cwd, error) from error
    assert child.stdin is not None
    assert child.stdout is not None
    if os.name == "posix":
        from substrate.system.process.fork_workers import widen

        widen(child.stdout.fileno())  # it can go on while we do something else
    return Conversation(child.stdin, child.stdout, child.wait)


def run_foreground(
    argv: Sequence[Arg],
    *,
    cwd: PathArg | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    grace_s: float = KILL_GRACE_S,
    kill_children: bool = False,
    stdio: Stdio = INHERITED,
    prepare: Callable[[], None] = lambda: None,
) -> Finished:
    """Run a program in our place: our terminal, our descriptors, our signals.

    The program stays in our process group, so the terminal's Ctrl-C, Ctrl-\\ and Ctrl-Z reach it
    directly and once; a signal sent to us alone is passed on to it. None of these signals ends us
    while it runs, so that the caller can record what happened.

    A missing program is not an error here but exit status 127, as in a shell, and 126 if it cannot
    be executed; `Finished.error` holds the message. `WorkspaceError` if `cwd` is not a directory.
    After `timeout_s` the program and everything it started get TERM, and KILL `grace_s` later.
    `kill_children` also ends the processes it left running, as far as the system can find them.
    `prepare` is called before the program begins, after the last fork: if it raises, nothing runs.
    """
    if not argv:
        raise ValueError("no program to run")
    if cwd is not None and not os.path.isdir(cwd):
        raise _no_directory(cwd)
    if sys.platform == "win32":
        return _foreground_windows(argv, cwd, env, timeout_s, stdio)
    from substrate.system.process import spawn
    from substrate.system.terminal import foreground

    return foreground.run(
        spawn.Program(tuple(os.fsencode(arg) for arg in argv), cwd, env, stdio),
        foreground.Limits(timeout_s, grace_s, kill_children),
        prepare,
    )


def fork_child(work: Callable[[], object]) -> int:
    """Do `work` in a forked child, and return the child's pid; `OSError` if the system refuses.

    The child never returns into a second copy of the caller's code: it ends after `work`, with
    status 0, or 1 if `work` raised.
    """
    pid = os.fork()
    return pid if pid else _work_and_end(work)


def fork_on_terminal(work: Callable[[], object]) -> tuple[int, int]:
    """Like `fork_child`, with a new terminal as the child's stdin, stdout and stderr.

    Returns the pid, and a descriptor of the terminal's other end.
    """
    import pty

    pid, master = pty.fork()
    return (pid, master) if pid else _work_and_end(work)


def _work_and_end(work: Callable[[], object]) -> NoReturn:
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)


def spawn_script(script: str, fd: int, number: int, *, quiet: Iterable[int]) -> int:
    """Run a file of ours in a new interpreter, without an environment; returns the pid.

    Its argument is `number`, under which it finds our descriptor `fd`. `quiet`: which of its
    standard streams are /dev/null. For a process with threads, which cannot fork safely.
    """
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", script, str(number)],
        {},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, fd, number),  # first: `fd` may be one of the standard streams
            *((os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in quiet),
        ],
        setpgroup=0,  # the terminal's keys are for the command
    )


def become(path: Arg, argv: Sequence[Arg], env: Environ) -> NoReturn:
    """Replace this process by a program; `OSError` if that is not possible."""
    os.execve(path, tuple(argv), env)


def shell_argv(command: Arg) -> list[Arg]:
    """The argv that runs `command` as ``-c`` does, whatever the user's ``$SHELL`` is."""
    if sys.platform == "win32":
        return [environment.current().get("COMSPEC") or "cmd.exe", "/d", "/s", "/c", command]
    shell = "/bin/bash" if os.access("/bin/bash", os.X_OK) else "/bin/sh"
    return [shell, "-c", command]


def stdin_kind(fd: int = 0) -> str:
    """The kind of stdin: terminal, pipe, socket, null, file, closed or other."""
    import stat

    from substrate.system.terminal import standard_streams

    try:
        found = os.fstat(fd)
    except OSError:
        return "closed"
    if fd in standard_streams.absent:
        return "closed"
    if os.isatty(fd):
        return "terminal"
    if stat.S_ISCHR(found.st_mode):
        with open(os.devnull, "rb") as null:
            return "null" if os.path.samestat(found, os.fstat(null.fileno())) else "other"
    kinds = ((stat.S_ISREG, "file"), (stat.S_ISFIFO, "pipe"), (stat.S_ISSOCK, "socket"))
    return next((name for test, name in kinds if test(found.st_mode)), "other")


def _foreground_windows(
    argv: Sequence[Arg],
    cwd: PathArg | None,
    env: Mapping[str, str] | None,
    timeout_s: float | None,
    stdio: Stdio,
) -> Finished:
    import signal
    import subprocess

    started = clock.monotonic_ns()
    # The console sends Ctrl-C to every process attached to it; our process must survive it.
    previous = signal.signal(signal.SIGINT, lambda *_: None)
    timed_out = False
    try:
        try:
            child = subprocess.Popen(
                argv, cwd=cwd, env=env, stdin=stdio.stdin, stdout=stdio.stdout, stderr=stdio.stderr
            )
        except OSError as error:
            code = EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_NOT_EXECUTABLE
            return Finished(code, None, False, 0, start_error(os.fsencode(argv[0]), error))
        try:
            code = child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            timed_out, code = True, EXIT_TIMED_OUT
            _end_tree_windows(child)
    finally:
        signal.signal(signal.SIGINT, previous)
    return Finished(code & 0xFFFFFFFF, None, timed_out, clock.monotonic_ns() - started)


def _end_tree_windows(child: subprocess.Popen[bytes]) -> None:
    run(["taskkill", "/T", "/F", "/PID", str(child.pid)])
    child.kill()
    child.wait()


def start_error(program: bytes, error: OSError) -> str:
    """The message for a program that did not start, worded as in a shell."""
    name = program.decode("utf-8", "backslashreplace")
    if isinstance(error, FileNotFoundError) and b"/" not in program:
        return f"{name}: command not found"
    return f"{name}: {error.strerror or error}"


def _name(argv: Sequence[Arg]) -> str:
    return os.fsdecode(argv[0])


def _no_directory(cwd: PathArg) -> WorkspaceError:
    return WorkspaceError(
        f"{os.fsdecode(cwd)} is not a directory", hint="name a directory that is there"
    )


def _not_started(argv: Sequence[Arg], cwd: PathArg | None, error: OSError) -> SubstrateError:
    name = _name(argv)
    if cwd is not None and not os.path.isdir(cwd):
        return _no_directory(cwd)
    if isinstance(error, FileNotFoundError):
        return MissingDependencyError(
            f"{name} was not found", hint=f"install {name}, or put it on PATH"
        )
    if isinstance(error, PermissionError):
        return MissingDependencyError(
            f"{name} cannot be executed: {error.strerror}", hint=f"check the permissions of {name}"
        )
    return SubstrateError(f"{name} could not be started: {error.strerror or error}")


def _failed(argv: Sequence[Arg], completed: Completed) -> SubstrateError:
    lines = completed.stderr.decode("utf-8", "replace").strip().splitlines()
    said = f": {lines[-1]}" if lines else ""
    if completed.returncode < 0:
        return SubstrateError(f"{_name(argv)} was killed by signal {-completed.returncode}{said}")
    return SubstrateError(f"{_name(argv)} exited with status {completed.returncode}{said}")
