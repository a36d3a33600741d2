"""JSON with comments and trailing commas, read with the place of every value.

Settings files of coding agents are such JSON. `settings_json` edits them by these places, so that
every byte that is not ours stays as it is.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import NamedTuple

from substrate.errors import RefusedError

_BLANK = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR = re.compile(r"[-+.0-9A-Za-z]+")
#: Deeper settings are not settings; it also keeps the reader off Python's recursion limit.
_DEEPEST = 200


class Value(NamedTuple):
    """A value and its place: ``text[start:end]``."""

    start: int
    end: int
    #: The values by key, or by number as text; None: neither an object nor an array.
    parts: tuple[Part, ...] | None
    is_object: bool
    #: What the value is for Python; only the value of a scalar is set.
    scalar: object = None

    def find(self, key: str) -> Part | None:
        """The member with this key; of equal keys the last, as every JSON reader does."""
        parts = self.parts or ()
        if not self.is_object:
            return parts[int(key)] if key.isdecimal() and int(key) < len(parts) else None
        return next((part for part in reversed(parts) if part.key == key), None)

    def plain(self) -> object:
        """The value for Python."""
        if self.parts is None:
            return self.scalar
        if self.is_object:
            return {part.key: part.value.plain() for part in self.parts}
        return [part.value.plain() for part in self.parts]


class Part(NamedTuple):
    """A member of an object, or an item of an array."""

    key: str
    #: Where the key begins; for an item, where its value begins.
    start: int
    value: Value
    #: The offset of the comma behind it; -1 if there is none.
    comma: int


@lru_cache(maxsize=2)  # an edit asks many times about the same text
def read(text: str) -> Value | None:
    """The root value; None for a text without one. Raises `RefusedError` if it is not JSON."""
    reader = _Reader(text)
    at = reader.skip(1 if text.startswith("\ufeff") else 0)
    if at == len(text):
        return None
    value = reader.value(at, 0)
    if reader.skip(value.end) != len(text):
        raise reader.wrong(reader.skip(value.end), "the end of the file")
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text

    def skip(self, at: int) -> int:
        """The offset of the next character that is neither blank nor in a comment."""
        while True:
            at = _blank(self.text, at)
            comment = _COMMENT.match(self.text, at)
            if comment is None:
                return at
            at = comment.end()

    def value(self, at: int, depth: int) -> Value:
        if depth > _DEEPEST:
            raise self.wrong(at, "less nesting")
        opening = self.text[at : at + 1]
        if opening in ("{", "["):
            return self._container(at, depth, is_object=opening == "{")
        found = (_STRING if opening == '"' else _SCALAR).match(self.text, at)
        if found is None:
            raise self.wrong(at, "a value")
        try:
            scalar = json.loads(found.group())
        except ValueError:
            raise self.wrong(at, "a value") from None
        return Value(at, found.end(), None, is_object=False, scalar=scalar)

    def _container(self, start: int, depth: int, *, is_object: bool) -> Value:
        closing = "}" if is_object else "]"
        parts: list[Part] = []
        at = self.skip(start + 1)
        while self.text[at : at + 1] != closing:
            key, part_start = str(len(parts)), at
            if is_object:
                key, at = self._key(at)
            value = self.value(at, depth + 1)
            at = self.skip(value.end)
            comma = at if self.text[at : at + 1] == "," else -1
            parts.append(Part(key, part_start, value, comma))
            if comma < 0 and self.text[at : at + 1] != closing:
                raise self.wrong(at, f"a comma or {closing}")
            at = self.skip(at + 1) if comma >= 0 else at
        return Value(start, at + 1, tuple(parts), is_object)

    def _key(self, at: int) -> tuple[str, int]:
        found = _STRING.match(self.text, at)
        if found is None:
            raise self.wrong(at, "a key in double quotes")
        colon = self.skip(found.end())
        if self.text[colon : colon + 1] != ":":
            raise self.wrong(colon, "a colon")
        try:
            return str(json.loads(found.group())), self.skip(colon + 1)
        except ValueError:
            raise self.wrong(at, "a key in double quotes") from None

    def wrong(self, at: int, expected: str) -> RefusedError:
        line = self.text.count("\n", 0, at) + 1
        column = at - self.text.rfind("\n", 0, at)
        return RefusedError(f"line {line}, column {column}: expected {expected}")


def end_of_last_comment(text: str, start: int, end: int) -> int:
    """Where the last comment in ``text[start:end]`` ends, a range without values; else `start`."""
    at = last = start
    while at < end:
        at = _blank(text, at)
        comment = _COMMENT.match(text, at)
        if comment is None:
            return last
        at = last = comment.end()
    return last


def _blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at
