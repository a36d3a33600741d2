"""Where the installed program begins: the daemon takes the call, or this process runs it.

The path to the daemon imports almost nothing (`client/offer_to_daemon.py` says why). Otherwise
this process imports the rest, and an early Ctrl-C must not print a traceback: Python turns an
interrupt into an exception at once, and during an import no code catches it. So until `main` can
catch it, SIGINT keeps the system's default action: the process just ends.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal  # `signal` itself imports `enum`, which takes milliseconds


_EXIT_RUN_FAILED = 125
#: Set by the launcher: standard streams that are directories, with which Python cannot start.
_ASIDE = b"SUBSTRATE_STREAMS_ASIDE"


def substrate() -> int:
    """Run one call of `substrate` and return its exit status."""
    try:
        return _substrate()
    except (MemoryError, OSError, ImportError) as error:
        # `main` catches its own errors. Here memory or descriptors do not even suffice to import
        # it; any other error is a bug.
        if not _is_shortage(error):
            raise
        _say_why_not(str(error) or "out of memory")
        return _EXIT_RUN_FAILED


def _substrate() -> int:
    from substrate.client import hook_passthrough

    before = _let_interrupts_end_us()
    if sys.platform == "linux":
        import posix

        from substrate.client.offer_to_daemon import offer
        from substrate.system import daemon_paths, umask
        from substrate.system.process import die_of_signal

        daemon_paths.forget_coerced_locale()
        _take_streams_back(posix.environ.get(_ASIDE, b""))
        hook_passthrough.pass_through(sys.argv[1:])
        umask.take()
        status = offer(sys.argv[1:])
        if status is not None:
            if status < 0:
                die_of_signal.die_of(-status)
            # Nothing is buffered, and shutting the interpreter down would take milliseconds.
            posix._exit(status)
    else:
        hook_passthrough.pass_through(sys.argv[1:])
    if sys.platform != "win32":
        from substrate.system.terminal import standard_streams

        standard_streams.hold_places()
    if sys.flags.no_site:  # the launcher skipped it: the path to the daemon does not need it
        import site

        site.main()
    from substrate.cli import main

    _signal.signal(_signal.SIGINT, before)
    status = main.substrate()
    if sys.platform != "win32":
        _die_as_the_command(status)
    return status


def _die_as_the_command(status: int) -> None:
    from substrate.system.process import die_of_signal

    number = die_of_signal.signal_for(status)
    if number:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        die_of_signal.die_of(number)


def _take_streams_back(where: bytes) -> None:
    """`where` lists for each stream the descriptor it was moved to, and its own: ``10:0``."""
    import posix

    if not where:
        return
    for pair in where.split():
        copy, _, place = pair.partition(b":")
        posix.dup2(int(copy), int(place))
        posix.close(int(copy))
    del posix.environ[_ASIDE]
    posix.unsetenv(_ASIDE)
    if "os" in sys.modules:  # it has a copy of the environment
        from substrate.system import environment

        environment.forget(_ASIDE.decode())


def _is_shortage(error: MemoryError | OSError | ImportError) -> bool:
    import errno  # built in

    if isinstance(error, OSError):
        return error.errno in (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)
    return isinstance(error, MemoryError) or "map" in str(error)


def _say_why_not(reason: str) -> None:
    import os  # always imported: Python itself needs it

    text = (
        f"substrate: error: cannot start: {reason}\n"
        "hint: a limit may be too small: `ulimit -a` shows them (-v memory, -n open files)\n"
    )
    os.write(2, text.encode("utf-8", "backslashreplace"))


def ctx() -> int:
    """Run one call of `ctx` and return its exit status."""
    before = _let_interrupts_end_us()
    from substrate.cli import ctx as program

    _signal.signal(_signal.SIGINT, before)
    status = program.ctx()
    if status == 0:  # then everything is flushed
        import os

        # Shutting the interpreter down would take milliseconds, and more after a large index.
        os._exit(0)
    return status


def _let_interrupts_end_us() -> _signal._HANDLER:
    """Let SIGINT end the process until the caller restores the returned handler."""
    before = _signal.getsignal(_signal.SIGINT)
    if before is _signal.default_int_handler:  # not if it is ignored
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    return before
