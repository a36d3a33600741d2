"""Start an agent beside this call, at most one, and never wait for it.

The call that finds no agent runs its command in its own process; the agent is for the calls
that follow. Ten first calls at once: the one that gets the lock starts it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from substrate.system import agent_place

#: After an agent that did not come up, and between two warnings.
_PAUSE_S = 60.0

_WARNING = b"substrate: warn: shell world-agent exec failed, running direct\n"

#: The agent serves many: of the variables of the call that happened to start it, it keeps these.
_KEPT = (
    *(b"HOME", b"PATH", b"USER", b"LOGNAME", b"SHELL", b"LANG", b"LANGUAGE", b"TZ", b"TMPDIR"),
    *(b"SUBSTRATE_HOME", b"SUBSTRATE_SOCKET", b"SUBSTRATE_TRACE", b"SUBSTRATE_AGENT_IDLE_S"),
    b"SUBSTRATE_AGENT_IDLE_WORK_S",
    *(b"PYTHONPATH", b"PYTHONHOME", b"LD_LIBRARY_PATH"),
)


def start(socket: bytes, *, replace: bool = False) -> None:
    """Start an agent for `socket` unless somebody just did; failing is no error."""
    try:
        directory = _own_directory(socket)
        if directory is None or _is_confined():
            return
        if _is_recent(directory + b"/start", _PAUSE_S if not replace else 5.0):
            return
        lock = _lock(directory + b"/start.lock")
    except OSError:
        return
    if lock is None:
        return
    try:
        # Asked again under the lock, which the winner holds until it has left its mark.
        if not _is_recent(directory + b"/start", _PAUSE_S if not replace else 5.0):
            _touch(directory + b"/start")
            _spawn(directory, replace)
    except OSError:
        pass
    finally:
        os.close(lock)


def say_fallback(socket: bytes, argv: Sequence[bytes]) -> None:
    """Warn, now and then, that the command runs in this process; not where a world is required:
    there it runs in one, or not at all."""
    if agent_place.variables().get(b"SUBSTRATE_WORLD", b"").lower() == b"enabled":
        return
    options = argv[: argv.index(b"--")] if b"--" in argv else argv
    if any(word in (b"--world", b"--hold") or word.startswith(b"--isolate") for word in options):
        return
    try:
        directory = _own_directory(socket)
        if directory is not None and not _is_recent(directory + b"/warned", _PAUSE_S):
            _touch(directory + b"/warned")
            os.write(2, _WARNING)
    except OSError:
        pass


def _is_confined() -> bool:
    """Whether it would have limits of ours that are not for who serves others, and for long."""
    import resource

    bounds = (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU)
    return any(resource.getrlimit(each)[0] != resource.RLIM_INFINITY for each in bounds)


def _own_directory(socket: bytes) -> bytes | None:
    directory = agent_place.directory(socket)
    above = os.path.dirname(directory)
    if not os.path.isdir(above):
        os.makedirs(above, 0o700)
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    return directory if agent_place.is_ours(directory) else None


def _is_recent(path: bytes, pause_s: float) -> bool:
    from substrate.system import clock

    try:
        age_s = clock.now_ns() / 1e9 - os.stat(path).st_mtime
    except FileNotFoundError:
        return False
    return 0 <= age_s < pause_s


def _touch(path: bytes) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    os.utime(path)


def _lock(path: bytes) -> int | None:
    import fcntl

    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    return fd


def environment_for(env: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    return {name: value for name, value in env.items() if name in _KEPT or name.startswith(b"LC_")}


def _spawn(directory: bytes, replace: bool) -> None:
    """Fork twice, so that the agent is nobody's child; its words go to a log."""
    argv = [sys.executable, "-m", "substrate", "agent", "serve", "--background"]
    if replace:
        argv.append("--replace")
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork() == 0:
            _redirect(directory)
            os.chdir("/")
            os.execve(sys.executable, argv, environment_for(agent_place.variables()))
    finally:
        os._exit(0)


def _redirect(directory: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    log = os.open(directory + b"/log", flags, 0o600)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(3, 256)
