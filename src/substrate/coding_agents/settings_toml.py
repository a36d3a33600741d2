"""Add tables to the end of a TOML settings file, and remove them again, byte for byte.

A table at the end of the file needs no knowledge of what is before it. The standard library's
reader checks that the result means the old settings and the new tables, and nothing else. Why this
is no TOML library: docs/decisions/0051-settings-keep-every-byte.md.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from substrate.coding_agents.text_insertions import Extended, newline_of
from substrate.errors import RefusedError, SettingTakenError

_BOM = "\ufeff"


class Table(NamedTuple):
    """One table with string values: ``[hooks.state."KEY"]``."""

    path: tuple[str, ...]
    values: Mapping[str, str]

    @property
    def header(self) -> str:
        """The line that begins the table."""
        *plain, last = self.path
        return f"[{'.'.join([*plain, _quoted(last)])}]"


def read(text: str) -> dict[str, Any]:
    """The settings. Raises `RefusedError` if the text is not TOML."""
    try:
        return tomllib.loads(text.removeprefix(_BOM))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise RefusedError(str(error)) from None


def has(text: str, table: Table) -> bool:
    """Whether the settings include the table with exactly these values."""
    return bool(_at(read(text), table.path) == dict(table.values))


def value_at(text: str, path: Sequence[str]) -> Any:
    """The value at `path`; None if there is none."""
    return _at(read(text), path)


def add(text: str, tables: Sequence[Table]) -> Extended:
    """`text` with the tables that it lacks. `RefusedError` if another value is in the way.

    `containers` of the result: the path of each new table, followed by its values.
    """
    extended = Extended(text)
    for table in tables:
        if has(extended.text, table):
            continue
        expected = read(extended.text)
        if _at(expected, table.path) is not None:
            raise SettingTakenError(
                f"{table.header} is already set, to another value", last_key=table.path[-1]
            )
        newline = newline_of(extended.text)
        lines = [
            table.header,
            *(f"{key} = {_quoted(value)}" for key, value in table.values.items()),
        ]
        added = newline.join(lines) + newline
        at_line_start = extended.text.removeprefix(_BOM) == "" or extended.text.endswith("\n")
        added = ("" if at_line_start else newline) + added
        after = extended.insert(len(extended.text), added)
        _set(expected, table)
        if _read_or_none(after.text) != expected:
            raise RefusedError(f"{table.header} cannot be added at the end of the file")
        extended = after._replace(
            containers=(*after.containers, (*table.path, *table.values.values()))
        )
    return extended


def remove(text: str, path: Sequence[str], values: Sequence[str]) -> str:
    """`text` without the table at `path`, if it has just these values."""
    settings = read(text)
    table = _at(settings, path)
    if not isinstance(table, dict) or list(table.values()) != list(values):
        return text
    header = Table(tuple(path), {}).header
    lines = text.splitlines(keepends=True)
    start = next((i for i, line in enumerate(lines) if line.strip() == header), None)
    if start is None:
        raise RefusedError(f"{header} is no longer written on one line")
    end = start + 1
    while end < len(lines) and lines[end].partition("=")[0].strip() in table:
        end += 1
    after = "".join(lines[:start] + lines[end:])
    holder = _at(settings, path[:-1])
    assert isinstance(holder, dict)
    del holder[path[-1]]
    if _pruned(read(after)) != _pruned(settings):
        raise RefusedError(f"{header} cannot be removed without changing other settings")
    return after


def _at(settings: object, path: Sequence[str]) -> Any:
    for key in path:
        settings = settings.get(key) if isinstance(settings, dict) else None
    return settings


def _set(settings: dict[str, Any], table: Table) -> None:
    *parents, last = table.path
    for key in parents:
        settings = settings.setdefault(key, {})
        if not isinstance(settings, dict):
            raise RefusedError(f"{key} is not a table")
    settings[last] = dict(table.values)


def _pruned(settings: Any) -> Any:
    """Without empty tables: the parents of a removed table go with it."""
    if not isinstance(settings, dict):
        return settings
    pruned = {key: _pruned(value) for key, value in settings.items()}
    return {key: value for key, value in pruned.items() if value != {}}


def _read_or_none(text: str) -> dict[str, Any] | None:
    try:
        return read(text)
    except RefusedError:
        return None


def _quoted(text: str) -> str:
    import json

    # A basic string of TOML has JSON's escapes, but for surrogate pairs: keep the characters.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
