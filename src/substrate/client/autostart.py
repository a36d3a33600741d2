"""Start a daemon beside this call, at most one, and never wait for it.

A call that finds no daemon runs its command in its own process; the daemon is for the calls that
follow. If several first calls run at the same time, the one that gets the lock starts the daemon.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from substrate.system import daemon_paths

#: The pause after a daemon that did not come up, and between two warnings.
_PAUSE_S = 60.0

_WARNING = b"substrate: warn: shell world-agent exec failed, running direct\n"

#: The daemon serves many calls: it keeps only these variables of the call that started it.
_KEPT = (
    *(b"HOME", b"PATH", b"USER", b"LOGNAME", b"SHELL", b"LANG", b"LANGUAGE", b"TZ", b"TMPDIR"),
    *(b"SUBSTRATE_HOME", b"SUBSTRATE_SOCKET", b"SUBSTRATE_TRACE", b"SUBSTRATE_DAEMON_IDLE_S"),
    *(b"SUBSTRATE_DAEMON_IDLE_WORK_S", b"SUBSTRATE_AGENT_IDLE_S", b"SUBSTRATE_AGENT_IDLE_WORK_S"),
    b"SUBSTRATE_DAEMON_SPEED",
    *(b"PYTHONPATH", b"PYTHONHOME", b"LD_LIBRARY_PATH"),
)

_PATHS = (b"SUBSTRATE_HOME", b"SUBSTRATE_SOCKET", b"SUBSTRATE_TRACE")


def start(socket: bytes, *, replace: bool = False) -> None:
    """Start a daemon for `socket` unless another call just did; failure is not an error."""
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
        # Check again under the lock: the call that gets it first touches the file before unlocking.
        if not _is_recent(directory + b"/start", _PAUSE_S if not replace else 5.0):
            _touch(directory + b"/start")
            _spawn(directory, replace)
    except OSError:
        pass
    finally:
        os.close(lock)


def say_fallback(socket: bytes, argv: Sequence[bytes]) -> None:
    """Warn, now and then, that the command runs in this process. If a world is required, there is
    no warning: the command runs in a world, or not at all."""
    if daemon_paths.variables().get(b"SUBSTRATE_WORLD", b"").lower() == b"enabled":
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
    """Whether this process has resource limits that the long-lived daemon must not inherit."""
    import resource

    bounds = (resource.RLIMIT_AS, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU)
    return any(resource.getrlimit(each)[0] != resource.RLIM_INFINITY for each in bounds)


def _own_directory(socket: bytes) -> bytes | None:
    directory = daemon_paths.directory(socket)
    above = os.path.dirname(directory)
    if not os.path.isdir(above):
        os.makedirs(above, 0o700)
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    return directory if daemon_paths.is_ours(directory) else None


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
    kept = {name: value for name, value in env.items() if name in _KEPT or name.startswith(b"LC_")}
    for name in _PATHS:  # the daemon does not stay in our directory
        if kept.get(name):
            kept[name] = os.path.abspath(kept[name])
    return kept


def _spawn(directory: bytes, replace: bool) -> None:
    """Fork twice, so that the daemon is no caller's child; its output goes to a log."""
    from substrate.system.process import process

    argv = [sys.executable, "-m", "substrate", "daemon", "serve", "--background"]
    if replace:
        argv.append("--replace")
    environment = environment_for(daemon_paths.variables())

    def serve() -> None:
        _redirect(directory)
        os.chdir("/")
        process.become(sys.executable, argv, environment)

    def detach() -> None:
        os.setsid()
        process.fork_child(serve)

    os.waitpid(process.fork_child(detach), 0)


def _redirect(directory: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    log = os.open(directory + b"/log", flags, 0o600)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.closerange(3, 256)
