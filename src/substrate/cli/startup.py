"""Where the installed program begins: to the agent if it will have us, else on our own.

The way to the agent imports next to nothing (`client/door.py` says why). On our own, the rest is
imported with care for an early Ctrl-C: Python turns an interrupt into an exception at once, and
in the middle of an import nobody is there to catch it: the user would see a traceback. Until
`main` can catch it, the system's own way holds: the process just ends.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal  # `signal` itself brings `enum`, and that milliseconds


_EXIT_RUN_FAILED = 125
#: From the launcher: directories among our streams, with which Python does not start.
_ASIDE = b"SUBSTRATE_STREAMS_ASIDE"


def substrate() -> int:
    """Run one call of `substrate` and return its exit status."""
    try:
        return _substrate()
    except (MemoryError, OSError, ImportError) as error:
        # `main` catches its own: too little is left to import even that. Anything else is a bug.
        if not _is_shortage(error):
            raise
        _say_why_not(str(error) or "out of memory")
        return _EXIT_RUN_FAILED


def _substrate() -> int:
    from substrate.client import hooks

    before = _let_interrupts_end_us()
    if sys.platform == "linux":
        import posix

        from substrate.client.door import offer
        from substrate.system import agent_place

        agent_place.forget_coerced_locale()
        _take_streams_back(posix.environ.get(_ASIDE, b""))
        hooks.pass_through(sys.argv[1:])
        status = offer(sys.argv[1:])
        if status is not None:
            # Nothing is buffered, and taking the interpreter down would cost milliseconds.
            posix._exit(status)
    else:
        hooks.pass_through(sys.argv[1:])
    if sys.platform != "win32":
        from substrate.system import streams

        streams.hold_places()
    if sys.flags.no_site:  # the launcher left out what the way to the agent does not need
        import site

        site.main()
    from substrate.cli import main

    _signal.signal(_signal.SIGINT, before)
    return main.substrate()


def _take_streams_back(where: bytes) -> None:
    """`where` names for each the descriptor it was moved to, and its place: ``10:0``."""
    import posix

    if not where:
        return
    for pair in where.split():
        copy, _, place = pair.partition(b":")
        posix.dup2(int(copy), int(place))
        posix.close(int(copy))
    del posix.environ[_ASIDE]
    posix.unsetenv(_ASIDE)
    if "os" in sys.modules:  # it has a copy
        from substrate.system import environment

        environment.forget(_ASIDE.decode())


def _is_shortage(error: MemoryError | OSError | ImportError) -> bool:
    import errno  # built in

    if isinstance(error, OSError):
        return error.errno in (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)
    return isinstance(error, MemoryError) or "map" in str(error)


def _say_why_not(reason: str) -> None:
    import os  # always there: Python itself has it

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

        # Taking the interpreter down would cost milliseconds, and more after a large index.
        os._exit(0)
    return status


def _let_interrupts_end_us() -> _signal._HANDLER:
    """Until the returned handler is put back."""
    before = _signal.getsignal(_signal.SIGINT)
    if before is _signal.default_int_handler:  # not where it is ignored, as below nohup
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    return before
