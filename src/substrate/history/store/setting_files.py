"""Where each setting comes from, and how one is written into its file, byte for byte around it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from substrate.errors import NotFoundError, UsageError
from substrate.history.store.config import (
    Config,
    Setting,
    checked_setting,
    is_users_own,
    load_config,
)
from substrate.history.store.config import read_settings as read_file
from substrate.system.files import files


class SourcedSetting(NamedTuple):
    #: As in `retention.checkpoints`.
    name: str
    value: Setting
    #: The file that sets it; None: it is the default.
    file: Path | None


def sourced(user: Path, workspace: Path | None) -> list[SourcedSetting]:
    """Every setting, in the order of `Config`; the workspace's file wins."""
    read = [user, *([workspace] if workspace is not None else [])]
    config = load_config(user, *read[1:])
    by_file = [(file, read_file(file)) for file in reversed(read) if file.is_file()]
    out = []
    for field in Config._fields:
        origin = next((file for file, values in by_file if field in values), None)
        out.append(SourcedSetting(dotted(field), getattr(config, field), origin))
    return out


def dotted(field: str) -> str:
    return field.replace("_", ".", 1)


def write_setting(file: Path, name: str, text: str, *, is_users: bool) -> Setting:
    """Set `name` to `text` in `file`; everything else in it stays. Returns the value.

    Raises an error, and changes nothing, if there is no such setting or value.
    """
    section, _, key = name.partition(".")
    if f"{section}_{key}" not in Config._field_defaults or not key:
        names = ", ".join(map(dotted, Config._fields))
        raise NotFoundError(f"no setting {name!r}", hint=f"the settings are: {names}")
    if not is_users and is_users_own(f"{section}_{key}"):
        raise UsageError(f"{name} is the user's to set", hint="leave out --project")
    literal = _literal(Config._field_defaults[f"{section}_{key}"], text)
    before = file.read_text("utf-8") if file.exists() else ""
    after = _with_line(before, section, key, literal)
    value = checked_setting(file, section, key, _parsed(after)[section][key])
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    files.write_atomic(file, after.encode("utf-8"), durable=True)
    return value


def _literal(default: object, text: str) -> str:
    """The value as TOML; a text that is no value of this kind is refused when it is checked."""
    import json

    if isinstance(default, tuple):
        return json.dumps([part.strip() for part in text.split(",") if part.strip()])
    if isinstance(default, str):
        return json.dumps(text)
    return text if re.fullmatch(r"[0-9]+|true|false", text) else json.dumps(text)


def _with_line(before: str, section: str, key: str, literal: str) -> str:
    """`before` with the line ``key = literal`` in its section: replaced, or added at its end."""
    lines = before.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    starts = [n for n, line in enumerate(lines) if re.match(rf"\s*\[{section}\]", line)]
    if not starts:
        gap = ["\n"] if lines else []
        return "".join([*lines, *gap, f"[{section}]\n", f"{key} = {literal}\n"])
    first = starts[0] + 1
    last = next((n for n in range(first, len(lines)) if lines[n].lstrip().startswith("[")), None)
    end = len(lines) if last is None else last
    for n in range(first, end):
        if re.match(rf"\s*{key}\s*=", lines[n]):
            if _parses("".join([*lines[:n], *lines[n + 1 :]])):
                return "".join([*lines[:n], f"{key} = {literal}\n", *lines[n + 1 :]])
            raise UsageError(
                f"{section}.{key} covers several lines of the file", hint="edit the file by hand"
            )
    while end > first and not lines[end - 1].strip():
        end -= 1
    return "".join([*lines[:end], f"{key} = {literal}\n", *lines[end:]])


def _parses(text: str) -> bool:
    import tomllib

    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _parsed(text: str) -> dict[str, dict[str, object]]:
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"the file is no TOML: {error}", hint="mend it or remove it") from error
