"""fork and exec by hand, on POSIX systems.

For three reasons: the program must start with the signal mask and the dispositions we were started
with, not with those we use while waiting for it; a failed exec must be distinguished from a program
that fails; and importing `subprocess` costs more than the fork.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from substrate.errors import SubstrateError
from substrate.system import environment, umask
from substrate.system.process import signals
from substrate.system.process.process import EXIT_NOT_FOUND, PathArg, Stdio, become, fork_child
from substrate.system.terminal import standard_streams

if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal


class Program(NamedTuple):
    """The program to execute; `None` means unchanged."""

    argv: tuple[bytes, ...]
    cwd: PathArg | None
    env: Mapping[str, str] | None
    stdio: Stdio


def start(
    program: Program, mask: Iterable[int], prepare: Callable[[], None] = lambda: None
) -> tuple[int, OSError | None]:
    """Fork and exec; the child's pid, or the reason why exec failed (the child is reaped).

    `prepare` is called between the fork and the exec. If it raises, nothing runs.
    """
    told, tell = os.pipe()  # close-on-exec: end of file means that exec worked
    wait, go = os.pipe()
    try:
        pid = fork_child(lambda: _exec(program, mask, tell, (wait, go)))
    except OSError as error:
        for fd in (tell, told, wait, go):
            os.close(fd)
        raise SubstrateError(f"no process could be started: {error.strerror}") from error
    os.close(tell)
    os.close(wait)
    try:
        _let_go_on(pid, go, prepare)
        failure = _read_all(told)
    finally:
        os.close(told)
    if not failure:
        return pid, None
    os.waitpid(pid, 0)
    number = int(failure)
    # OSError picks its own subclass from the error number.
    return pid, OSError(number, os.strerror(number))


def _let_go_on(pid: int, go: int, prepare: Callable[[], None]) -> None:
    is_prepared = False
    try:
        prepare()
        is_prepared = True
        with suppress(BrokenPipeError):  # the child was killed: the later wait reports it
            os.write(go, b"1")
    finally:
        os.close(go)
        if not is_prepared:
            os.waitpid(pid, 0)


def _exec(program: Program, mask: Iterable[int], tell: int, gate: tuple[int, int]) -> NoReturn:
    """In the child: wait at the gate, then exec the program, or report why not and exit."""
    number = errno.EINVAL  # for an argument that exec cannot take, such as one with a NUL
    try:
        wait, go = gate
        os.close(go)
        if not os.read(wait, 1):
            os._exit(EXIT_NOT_FOUND)
        move_stdio(program.stdio)
        if program.cwd is not None:
            os.chdir(program.cwd)
        env = _environment(program.env)
        restore_signals(mask)
        umask.give()
        standard_streams.close_absent(program.stdio)
        exec_first(program.argv, env)
    except OSError as error:
        number = error.errno or errno.EINVAL
    finally:  # in every case: never return into a second copy of our caller
        with suppress(OSError):
            os.write(tell, b"%d" % number)
        os._exit(EXIT_NOT_FOUND)


def restore_signals(mask: Iterable[int]) -> None:
    """Give the program the dispositions and the mask we were started with."""
    restore_dispositions()
    restore_mask(mask)


def restore_mask(mask: Iterable[int]) -> None:
    """Not with `signal`, which creates an enum member for each of sixty blocked signals."""
    _signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def restore_dispositions() -> None:
    """Restore the dispositions from before Python and we changed them."""
    # Python ignores these two for itself, and exec would pass that on.
    for signum in signals.PYTHONS_OWN:
        signal.signal(signum, signal.SIG_DFL)
    # exec removes handlers; but none may run between here and the exec.
    for signum in signals.WAITED_FOR:
        if signal.getsignal(signum) not in (signal.SIG_IGN, signal.SIG_DFL):
            signal.signal(signum, signal.SIG_DFL)
    signals.ignore(signals.caller.ignored or ())


def _environment(env: Mapping[str, str] | None) -> Mapping[bytes, bytes]:
    source = environment.current().variables if env is None else env
    return {os.fsencode(name): os.fsencode(value) for name, value in source.items()}


def exec_first(argv: tuple[bytes, ...], env: Mapping[bytes, bytes]) -> NoReturn:
    """exec the first match on PATH, like execvp(3).

    A file without execute permission does not end the search, and a script without ``#!`` runs in
    sh.
    """
    refused: OSError | None = None
    for path in _candidates(argv[0], env):
        try:
            become(path, argv, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            refused = refused or error
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            become(b"/bin/sh", (b"sh", path, *argv[1:]), env)
    raise refused or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def _candidates(name: bytes, env: Mapping[bytes, bytes]) -> list[bytes]:
    if b"/" in name:
        return [name]
    if not name:
        return []
    search = env.get(b"PATH", os.fsencode(os.defpath))
    return [os.path.join(directory or b".", name) for directory in search.split(b":")]


def move_stdio(stdio: Stdio) -> None:
    """Make the wanted descriptors 0, 1 and 2."""
    # Copy them above 2 first: one of the wanted descriptors may itself be 0, 1 or 2.
    copies = [None if fd is None else _above_stdio(fd) for fd in stdio]
    for target, fd in enumerate(copies):
        if fd is not None:
            os.dup2(fd, target, inheritable=True)


def _above_stdio(fd: int) -> int:
    low = []
    copy = os.dup(fd)
    while copy <= 2:
        low.append(copy)
        copy = os.dup(fd)
    for spare in low:
        os.close(spare)
    return copy


def _read_all(fd: int) -> bytes:
    out = b""
    while chunk := os.read(fd, 64):
        out += chunk
    return out
