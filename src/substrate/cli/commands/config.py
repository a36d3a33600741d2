"""Settings: what applies here, where it comes from, and how to change it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from substrate.cli.render import place_of
from substrate.errors import EXIT_OK, NotFoundError, UsageError
from substrate.model import display
from substrate.recorder import settings_of, write_setting

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from substrate.cli.frame import Context
    from substrate.recorder import SourcedSetting

NAME = "config"
HELP = "get, set and list settings, with where each value comes from"
EXAMPLE = "substrate config set retention.sessions 10"

_WORDS = {"get": 1, "set": 2, "list": 0}


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("action", choices=tuple(_WORDS), metavar="get|set|list", help="what to do")
    parser.add_argument("name", nargs="?", metavar="NAME", help="such as retention.sessions")
    parser.add_argument(
        "value", nargs="?", metavar="VALUE", help="set: the new value; a list with commas"
    )
    parser.add_argument(
        "--project", action="store_true", help="set: for this project, not for all of yours"
    )


def run(args: Namespace, context: Context) -> int:
    given = [word for word in (args.name, args.value) if word is not None]
    wanted = _WORDS[args.action]
    if len(given) != wanted:
        what = f"unexpected argument: {given[wanted]}" if len(given) > wanted else "too few words"
        raise UsageError(what, hint="substrate config get NAME | set NAME VALUE | list")
    if args.project and args.action != "set":
        raise UsageError("unexpected option: --project", hint="config set takes it")
    if args.action == "set":
        return _set(args, context)
    found = settings_of(place_of(context))
    if args.action == "get":
        return _get(args.name, found, context)
    if context.json:
        context.output.emit_json({"settings": [_json(one) for one in found]})
        return EXIT_OK
    rows = [(one.name, _text(one), _origin(one)) for one in found]
    context.output.table(rows, header=("setting", "value", "from"))
    return EXIT_OK


def _get(name: str, found: list[SourcedSetting], context: Context) -> int:
    one = next((one for one in found if one.name == name), None)
    if one is None:
        raise NotFoundError(f"no setting {name!r}", hint="`substrate config list` shows them")
    if context.json:
        context.output.emit_json(_json(one))
    else:
        context.output.line(_text(one))
    return EXIT_OK


def _set(args: Namespace, context: Context) -> int:
    place = place_of(context)
    file = write_setting(place, args.name, args.value, project=args.project)
    one = next(one for one in settings_of(place) if one.name == args.name)
    if context.json:
        context.output.emit_json({**_json(one), "written": display(os.fsencode(file))})
        return EXIT_OK
    context.output.line(f"{one.name} = {_text(one)}  in {display(os.fsencode(file))}")
    if one.file != file:
        context.output.note(f"{_origin(one)} sets it, too, and wins here")
    return EXIT_OK


def _json(one: SourcedSetting) -> dict[str, object]:
    value = list(one.value) if isinstance(one.value, tuple) else one.value
    origin = None if one.file is None else display(os.fsencode(one.file))
    return {"name": one.name, "value": value, "from": origin or "default"}


def _text(one: SourcedSetting) -> str:
    if isinstance(one.value, tuple):
        return ",".join(one.value) or "(none)"
    return one.value if isinstance(one.value, str) else json.dumps(one.value)


def _origin(one: SourcedSetting) -> str:
    return "default" if one.file is None else display(os.fsencode(one.file))
