"""The daemon behind the command line: ``substrate daemon serve|status|stop``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import substrate
from substrate.cli.frame import arguments
from substrate.errors import EXIT_DIFFERENT, EXIT_OK, MissingDependencyError, UsageError

if TYPE_CHECKING:
    import socket
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context
    from substrate.daemon.server import Home

NAME = "daemon"
HELP = "the background process that runs commands quickly and serves HTTP; it starts by itself"
EXAMPLE = "substrate daemon status"

_ACTIONS = ("serve", "status", "stop")
_WATCHER_S = 2.0
#: What people read for each field of the daemon's answer.
_LABELS = {
    "pid": "process",
    "version": "version",
    "install": "installed in",
    "socket": "socket",
    "started": "started",
    "commands": "running now",
    "served": "calls answered",
    "server_pid": "HTTP process",
    "watcher_pid": "watcher process",
    "speed": "speed layer",
    "spares": "prepared processes",
    "ahead": "calls that got a prepared world",
    "warm": "calls that got a used view",
    "idle_exit_s": "ends when idle",
}

_NOT_RUNNING = (
    "nothing is lost by that: the next recorded command starts it, for example `substrate -c true`"
)


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "action", choices=_ACTIONS, metavar="|".join(_ACTIONS),
        help="serve: run it here, in the foreground",
    )  # fmt: skip
    parser.add_argument(
        "--replace", action="store_true", help="serve: take the place of the one that runs"
    )
    parser.add_argument(
        "--idle-exit", type=float, metavar="S",
        help="serve: end after S seconds without work (daemon.idle_exit_s, 900; 0: never)",
    )  # fmt: skip
    parser.add_argument("--background", action="store_true", help="serve: say nothing")


def run(args: Namespace, context: Context) -> int:
    if sys.platform != "linux":
        raise MissingDependencyError(
            "the daemon needs Linux", hint="everything else works without it, in process"
        )
    from substrate.daemon.server import Home, socket_of

    home = Home(socket_of(context.environment))
    actions = {"serve": _serve, "status": _status, "stop": _stop}
    return actions[args.action](args, context, home)


def _serve(args: Namespace, context: Context, home: Home) -> int:
    from substrate.daemon.server import ForkServer, Settings
    from substrate.recorder import load_config

    home.take(replace=args.replace)

    def ready() -> None:
        if not args.background:
            context.output.line(f"serving {home.socket_path}")
            context.output.flush()

    config = load_config(context.environment.substrate_home / "config.toml")
    settings = Settings(
        version=substrate.__version__,
        install=os.path.dirname(substrate.__file__),
        program=_program,
        server=_server,
        preload=lambda: _preload(home),
        idle_exit_s=_seconds(
            args.idle_exit, context, "SUBSTRATE_DAEMON_IDLE_S", config.daemon_idle_exit_s
        ),
        idle_work_s=_seconds(
            None, context, "SUBSTRATE_DAEMON_IDLE_WORK_S", config.daemon_idle_work_s
        ),
        watches=config.daemon_watch,
        speed=_switch(context, "SUBSTRATE_DAEMON_SPEED", setting=config.daemon_speed),
    )
    os.chdir("/")
    ForkServer(home, settings).run(ready)
    return EXIT_OK


def _seconds(said: float | None, context: Context, variable: str, setting: int) -> float:
    """The option's value, else the variable's, else the setting; 0 means never."""
    if said is None:
        try:
            said = float(_variable(context, variable) or setting)
        except ValueError:
            raise UsageError(
                f"{variable} is not a number of seconds", hint="for example 900"
            ) from None
    if said < 0:
        raise UsageError("--idle-exit takes a number of seconds", hint="0: never")
    return said or float("inf")


def _switch(context: Context, variable: str, *, setting: bool) -> bool:
    """The variable's value, ``on`` or ``off``, else the setting."""
    said = context.environment.get(variable)
    if said not in (None, "on", "off"):
        raise UsageError(f"{variable} must be on or off, not {said!r}", hint="or unset it")
    return setting if said is None else said == "on"


def _variable(context: Context, name: str) -> str | None:
    """A variable, or the same under its former name, `SUBSTRATE_AGENT_…`."""
    get = context.environment.get
    return get(name) or get(name.replace("_DAEMON_", "_AGENT_"))


def _program(words: list[str]) -> int:
    from substrate.cli import main

    return main.substrate(words)


def _preload(home: Home) -> None:
    from substrate.daemon.prefork import imports_preload

    imports_preload.preload(_program, home.directory / "rehearsal")
    arguments.parse(arguments.load("run"), arguments.split(["-c", "true"]))  # caches its parser


def _server(listener: socket.socket, home: Home) -> None:
    from substrate.daemon.http import serve

    serve(listener, home)


def _status(_: Namespace, context: Context, home: Home) -> int:
    state = _ask(home, b"status")
    if state is None:
        _refuse_inside(context)
        if os.path.lexists(home.directory):  # otherwise no daemon starts, without a reason
            home.require_ours()
    watching = _watching(home) if state is not None and state.get("watcher_pid") else []
    if context.json:
        found = {} if state is None else {**state, "watching": watching}
        context.output.emit_json({"running": state is not None, **found})
    elif state is None:
        context.output.line(f"no daemon serves {home.socket_path}")
        context.output.note(_NOT_RUNNING)
    else:
        context.output.table(
            [
                (_LABELS.get(name, name.replace("_", " ")), _shown(name, value))
                for name, value in state.items()
                if value is not None
            ],
            whole=True,
        )
        for one in watching:
            context.output.line(_in_words(one))
    return EXIT_DIFFERENT if state is None else EXIT_OK


def _shown(name: str, value: object) -> str:
    if name == "idle_exit_s":
        return f"after {float(str(value)):g} s" if value else "never"
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _in_words(one: dict[str, object]) -> str:
    if not one["watched"]:
        return f"not watched: {one['workspace']}: {one['why_not']}{_tidied(one)}"
    words = f"watched: {one['workspace']}, {_directories(one['directories'])}"
    if "recorded" in one:
        words += f"; outside edits last recorded {one['recorded']}"
    if "still_why_not" in one:
        words += f"; views of it are not used again: {one['still_why_not']}"
    return words + _tidied(one)


def _directories(count: object) -> str:
    return "1 directory" if count == 1 else f"{count} directories"


def _tidied(one: dict[str, object]) -> str:
    work = one.get("idle_work")
    if not isinstance(work, dict):
        return ""
    compacted = ", compacted" if work["compacted"] else ""
    return f"; tidied up {work['at']}{compacted}"


def _watching(home: Home) -> list[dict[str, object]]:
    """What the watcher reports; an empty list if it does not answer."""
    import json

    from substrate.system import watcher_client

    try:
        said = json.loads(watcher_client.report(os.fsencode(home.watch_path), _WATCHER_S))
    except (OSError, ValueError):
        return []
    return [one for one in said if isinstance(one, dict)]


def _stop(_: Namespace, context: Context, home: Home) -> int:
    stopped = _ask(home, b"stop") is not None
    if not stopped:
        _refuse_inside(context)
    if stopped:
        home.take(replace=True)  # the daemon has ended when its lock is free
        home.leave()
    if context.json:
        context.output.emit_json({"stopped": stopped})
    else:
        context.output.line("stopped" if stopped else f"no daemon serves {home.socket_path}")
    return EXIT_OK


def _refuse_inside(context: Context) -> None:
    """Refuse inside a world: a command there cannot see the daemon, even if it is running."""
    from substrate.cli.render import place_of

    place_of(context).refuse_inside()


def _ask(home: Home, kind: bytes) -> dict[str, object] | None:
    import json

    from substrate.daemon.server import ask

    try:
        said = json.loads(ask(home.door_path, kind))
    except (OSError, EOFError, ValueError):
        return None
    return said if isinstance(said, dict) else {}
