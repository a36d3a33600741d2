"""Gather the fields of an execution log from JSON or JSON Lines, each with its origin.

JSON: one object. JSON Lines: each line is an object with some of the log's fields. Lists are
concatenated over the lines; a single `step`, `prompt`, `input` or `output` appends one item; a
line with a `tool` is a step.

    {"model": {…}, "system_prompt": "…", "environment": {…}}
    {"prompt": {"role": "user", "content": "…"}}
    {"type": "tool_call", "tool": "read_file", "parameters": {…}, "output": "…"}
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path as FilePath
from typing import IO, NamedTuple

from substrate.packs.format.json_stream import JsonStream, Spill
from substrate.packs.format.spill_file import Spilled

#: Fields that occur once, and fields that are lists.
SINGLE = ("model", "system_prompt", "environment")
LISTS = ("prompts", "inputs", "steps", "outputs")
_ONE_OF = {"prompt": "prompts", "input": "inputs", "step": "steps", "output": "outputs"}

Path = tuple[str | int, ...]


class Origin(NamedTuple):
    """Which document of the file, and where in it."""

    document: int
    path: Path = ()

    def at(self, *further: str | int) -> Origin:
        return Origin(self.document, (*self.path, *further))


class Item(NamedTuple):
    """A part of a log: its name in messages (``steps[3]``), its value, its position."""

    place: str
    value: object
    origin: Origin


class Problem(NamedTuple):
    place: str
    what: str
    origin: Origin

    def __str__(self) -> str:
        return f"{self.place}: {self.what}" if self.place else self.what


class LogItems(NamedTuple):
    single: dict[str, Item]
    lists: dict[str, list[Item]]
    problems: list[Problem]


def gather(file: IO[bytes], spill: Spill) -> LogItems:
    """Read a whole log; `JsonSyntaxError` if it is not JSON."""
    gathered = LogItems({}, {name: [] for name in LISTS}, [])
    count = 0
    for _, document in JsonStream(file, spill).documents():
        _add(gathered, document, Origin(count))
        count += 1
    if not count:
        gathered.problems.append(Problem("", "it is empty", Origin(0)))
    return gathered


def _add(gathered: LogItems, document: object, origin: Origin) -> None:
    if not isinstance(document, dict):
        gathered.problems.append(
            Problem("", f"an object was expected, not {kind(document)}", origin)
        )
        return
    if "tool" in document and "steps" not in document:
        _append(gathered, "steps", document, origin)
        return
    for key, value in document.items():
        here = origin.at(key)
        if key in SINGLE:
            if key in gathered.single:
                gathered.problems.append(Problem(key, "is there a second time", here))
            gathered.single[key] = Item(key, value, here)
        elif key in LISTS:
            if isinstance(value, list):
                for n, item in enumerate(value):
                    _append(gathered, key, item, here.at(n))
            elif value is not None:
                gathered.problems.append(
                    Problem(key, f"a list was expected, not {kind(value)}", here)
                )
        elif key in _ONE_OF:
            _append(gathered, _ONE_OF[key], value, here)
        else:
            known = (*SINGLE, *LISTS)
            gathered.problems.append(Problem(key, unknown_field(key, known), here))


def _append(gathered: LogItems, name: str, value: object, origin: Origin) -> None:
    items = gathered.lists[name]
    items.append(Item(f"{name}[{len(items)}]", value, origin))


def line_of(file: IO[bytes], origin: Origin) -> int:
    """The line of an origin; the line of the nearest enclosing value if it is missing."""
    stream = JsonStream(file, _drop)
    for _ in range(origin.document):
        stream.at_end()
        stream.value()
    stream.at_end()
    line = stream.line
    for step in origin.path:
        if not _enter(stream, step):
            break
        stream.peek()
        line = stream.line
    return line


def _enter(stream: JsonStream, step: str | int) -> bool:
    first = stream.peek()
    if first == "{":
        for key in stream.fields():
            if key == step:
                return True
            stream.value()
    elif first == "[":
        for number in stream.items():
            if number == step:
                return True
            stream.value()
    return False


def _drop(pieces: Iterable[str]) -> Spilled:
    for _ in pieces:
        pass
    return Spilled(FilePath(), "", 0)


def kind(value: object) -> str:
    """The JSON name of a value's type, for messages."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    names = ((str, "a text"), ((int, float), "a number"), (list, "a list"), (dict, "an object"))
    return next((name for types, name in names if isinstance(value, types)), "a text")


def unknown_field(name: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    if near:
        return f"no such field; did you mean {near[0]}?"
    return f"no such field; there are {', '.join(known)}"
