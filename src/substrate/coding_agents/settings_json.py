"""Add values to a JSON settings file, and remove them again, without changing any other byte.

Adding only inserts text, so that removing the inserted ranges gives back the exact file. Where the
file changed since, `remove` cuts out the named values and leaves the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from substrate.coding_agents.json_syntax import Part, Value, end_of_last_comment, read
from substrate.coding_agents.text_insertions import Extended, newline_of
from substrate.errors import RefusedError, SettingTakenError

_UNIT = "  "


class Addition(NamedTuple):
    """A member to set (`in_array` False), or an item to append to the array at `path`."""

    path: tuple[str, ...]
    value: object
    in_array: bool = False


def add(text: str, additions: Sequence[Addition]) -> Extended:
    """`text` with all additions that it lacks. `RefusedError` if another value is in the way."""
    extended = Extended(text)
    for addition in additions:
        extended = _add_one(extended, addition)
    return extended


def has(text: str, addition: Addition) -> bool:
    """Whether the settings in `text` include the addition, exactly."""
    found = _at(read(text), addition.path)
    if found is None:
        return False
    if addition.in_array:
        return any(item.value.plain() == addition.value for item in found.parts or ())
    return found.plain() == addition.value


def value_at(text: str, path: Sequence[str]) -> object:
    """The value at `path`, for Python; None if there is none. Items of arrays go by number."""
    found = _at(read(text), path)
    return None if found is None else found.plain()


def remove(text: str, path: Sequence[str], is_ours: Callable[[object], bool]) -> str:
    """`text` without the member at `path`, or without the array's items, if `is_ours` says so."""
    found = _at(read(text), path)
    if found is None:
        return text
    if found.parts is None or found.is_object:
        return remove_member(text, path) if is_ours(found.plain()) else text
    parts = list(found.parts)
    for number in range(len(parts) - 1, -1, -1):  # what is before a removed item stays in place
        if is_ours(parts[number].value.plain()):
            text = _without_part(text, parts, number)
            if parts.pop(number).comma < 0 and parts:  # it was the last one: see `_without_part`
                parts[-1] = parts[-1]._replace(comma=-1)
    return text


def remove_member(text: str, path: Sequence[str]) -> str:
    """`text` without the member at `path`, if there is one."""
    holder = _at(read(text), path[:-1])
    if holder is None or holder.parts is None:
        return text
    found = holder.find(path[-1])
    return text if found is None else _without_part(text, holder.parts, holder.parts.index(found))


def is_empty_container(text: str, path: Sequence[str]) -> bool:
    """Whether an object or array without values and without comments is at `path`."""
    found = _at(read(text), path)
    return (
        found is not None
        and found.parts == ()
        and not text[found.start + 1 : found.end - 1].strip()
    )


def _add_one(extended: Extended, addition: Addition) -> Extended:
    text = extended.text
    if has(text, addition):
        return extended
    root = read(text)
    if root is None:
        opened = extended.insert(len(text), "{}" + newline_of(text))
        return _add_one(opened._replace(containers=(*opened.containers, ())), addition)
    *parents, last = addition.path
    holder, depth = root, 0
    for key in parents:
        _require(holder, addition.path[:depth], is_object=True)
        part = holder.find(key)
        if part is None:
            break
        holder, depth = part.value, depth + 1
    _require(holder, addition.path[:depth], is_object=True)
    target = holder.find(last) if depth == len(parents) else None
    if target is not None and not addition.in_array:
        raise SettingTakenError(
            f"{'.'.join(addition.path)} is already set, to another value", last_key=last
        )
    if target is not None:
        _require(target.value, addition.path, is_object=False)
        return _insert_part(extended, target.value, None, addition.value)
    value: object = [addition.value] if addition.in_array else addition.value
    for key in reversed(addition.path[depth + 1 :]):
        value = {key: value}
    upto = len(addition.path) if addition.in_array else len(parents)
    made = tuple(tuple(addition.path[: n + 1]) for n in range(depth, upto))
    added = _insert_part(extended, holder, addition.path[depth], value)
    return added._replace(containers=(*extended.containers, *made))


def _insert_part(extended: Extended, holder: Value, key: str | None, value: object) -> Extended:
    text, parts = extended.text, holder.parts or ()
    newline = newline_of(text)
    label = "" if key is None else json.dumps(key, ensure_ascii=False)
    inner = text[holder.start + 1 : holder.end - 1]
    root = read(text)
    is_inline_file = (
        root is not None and bool(root.parts) and "\n" not in text[root.start : root.end]
    )
    if "\n" in inner or (not parts and not is_inline_file):
        indent = _indent_of_parts(text, holder)
        body = json.dumps(value, indent=_unit(text), ensure_ascii=False)
        body = body.replace("\n", newline + indent)
        added = newline + indent + (f"{label}: " if label else "") + body
        if "\n" not in inner:  # an empty object on one line
            added += newline + _line_indent(text, holder.start)
    else:
        gap = " " if '": ' in text or ", " in text else ""
        body = json.dumps(value, ensure_ascii=False, separators=("," + gap, ":" + gap))
        added = (gap if parts else "") + (f"{label}:{gap}" if label else "") + body
    tail = holder.start + 1
    if parts:
        tail = parts[-1].value.end if parts[-1].comma < 0 else parts[-1].comma + 1
    comma = "," if parts and parts[-1].comma < 0 else ""
    behind = end_of_last_comment(text, tail, holder.end - 1)
    if behind == tail:
        return extended.insert(tail, comma + added)
    after = extended.insert(behind, added)
    return after.insert(tail, comma) if comma else after


def _without_part(text: str, parts: Sequence[Part], number: int) -> str:
    """Cut out one member or item with its comma and, if it has lines of its own, those lines."""
    part = parts[number]
    start, end = part.start, part.value.end if part.comma < 0 else part.comma + 1
    behind = text[end:].partition("\n")
    # Only whole lines: a line comment before them would swallow what follows.
    if _is_first_on_line(text, start) and behind[1] and not behind[0].strip():
        start = text.rfind("\n", 0, start)
        start -= text[start - 1 : start] == "\r"
    text = text[:start] + text[end:]
    if part.comma < 0 and number > 0:  # the last one: the comma before it goes, too
        comma = parts[number - 1].comma
        text = text[:comma] + text[comma + 1 :]
    return text


def _at(root: Value | None, path: Sequence[str]) -> Value | None:
    for key in path:
        part = root.find(key) if root is not None else None
        root = None if part is None else part.value
    return root


def _require(value: Value, path: Sequence[str], *, is_object: bool) -> None:
    if value.parts is None or value.is_object != is_object:
        where = f"{'.'.join(path)} is" if path else "the settings are"
        raise RefusedError(f"{where} not {'an object' if is_object else 'an array'}")


def _indent_of_parts(text: str, holder: Value) -> str:
    for part in holder.parts or ():
        if _is_first_on_line(text, part.start):
            return _line_indent(text, part.start)
    return _line_indent(text, holder.start) + _unit(text)


def _unit(text: str) -> str:
    """The indentation of one level, from the first member of the root."""
    root = read(text)
    first = root.parts[0] if root is not None and root.parts else None
    if first is not None and _is_first_on_line(text, first.start):
        return _line_indent(text, first.start) or _UNIT
    return _UNIT


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    line = line.removeprefix("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def _is_first_on_line(text: str, at: int) -> bool:
    """Whether only blanks are before `at` on its line, and another line before that."""
    start = text.rfind("\n", 0, at) + 1
    return start > 0 and not text[start:at].strip(" \t")
