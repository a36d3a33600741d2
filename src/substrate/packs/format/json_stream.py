"""Read JSON from a file of any size: long texts are spilled, the C scanner reads the rest.

`json` parses a value that is complete in the current window of text. Only a larger value (the log
itself, the step with the 300 MB output) is parsed by hand, so that memory holds no more than the
window. Lines are counted on the way, for error messages.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import IO

from substrate.packs.format.spill_file import LONG, Spilled

#: The window in characters; a value up to half this size is read at once.
WINDOW = 1 << 21
_MAX_DEPTH = 200
#: Python does not convert longer integers.
_MAX_NUMBER = 4300

Spill = Callable[[Iterable[str]], Spilled]

_SPACE = re.compile(r"[ \t\n\r]*+")
_SCALAR = re.compile(r"[-+.0-9A-Za-z]*+")
#: Up to the closing quote, or to where the window ends.
# Not `)*+`: before Python 3.11.5 (Debian 12 has 3.11.2) a possessive group keeps the text that a
# failed last round consumed (CPython issue 106052). Nothing follows the loop: it never backtracks.
_STRING = re.compile(r'(?:[^"\\]++|\\.)*', re.DOTALL)
#: The same, but it stops before an incomplete escape or half a surrogate pair.
_WHOLE = re.compile(
    r'(?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)
#: The longest escape: a pair of surrogates.
_ESCAPE = 12


class JsonSyntaxError(ValueError):
    """Where the text stops being JSON, and why."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line
        self.problem = problem


class JsonStream:
    """The values in a file, one after the other."""

    def __init__(self, file: IO[bytes], spill: Spill, window: int = WINDOW) -> None:
        self._file = file
        self._spill = spill
        self._window = window
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._text = ""
        self._at = 0
        self._is_end = False
        self._line = 1
        self._counted = 0
        self._json = json.JSONDecoder(
            object_pairs_hook=self._object_of, parse_constant=_no_constant, parse_float=_float
        )

    @property
    def line(self) -> int:
        """The line that is being read, counted from 1."""
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def documents(self) -> Iterator[tuple[int, object]]:
        """Every value in the file, with its line; white space between values is allowed."""
        while not self.at_end():
            line = self.line
            yield line, self.value()

    def at_end(self) -> bool:
        return self._peek() == ""

    def value(self, depth: int = 0) -> object:
        """The next value; texts of more than `LONG` characters come as `Spilled`."""
        first = self._peek()
        if depth > _MAX_DEPTH:
            raise self._wrong(f"nested more than {_MAX_DEPTH} deep")
        if first == '"':
            return self._string()
        if first not in ("{", "["):
            return self._scalar()
        self._fill()
        try:
            found, end = self._json.raw_decode(self._text, self._at)
        except (ValueError, RecursionError):
            # Incomplete, or wrong: parsing by hand finds out which, and in which line.
            if first == "{":
                return {key: self.value(depth + 1) for key in self.fields()}
            return [self.value(depth + 1) for _ in self.items()]
        self._at = end
        return found

    def fields(self) -> Iterator[str]:
        """Step through an object: after each key its value must be read."""
        self._take("{")
        seen: set[str] = set()
        if self._peek() == "}":
            self._at += 1
            return
        while True:
            if self._peek() != '"':
                raise self._wrong("a name in double quotes was expected")
            key = self._string()
            if not isinstance(key, str):
                raise self._wrong("a field's name of more than 16,384 characters")
            if key in seen:
                raise self._wrong(f'the field "{key}" is there twice')
            seen.add(key)
            self._take(":")
            yield key
            if not self._goes_on("}"):
                return

    def items(self) -> Iterator[int]:
        """Step through an array: after each number its item must be read."""
        self._take("[")
        if self._peek() == "]":
            self._at += 1
            return
        number = 0
        while True:
            yield number
            number += 1
            if not self._goes_on("]"):
                return

    def peek(self) -> str:
        return self._peek()

    def _goes_on(self, closing: str) -> bool:
        found = self._peek()
        if found not in (",", closing) or not found:
            raise self._wrong(f"a comma or {closing} was expected")
        self._at += 1
        return found == ","

    def _take(self, wanted: str) -> None:
        if self._peek() != wanted:
            raise self._wrong(f"{wanted} was expected")
        self._at += 1

    def _peek(self) -> str:
        """The next character that is not white space; "" at the end."""
        while True:
            match = _SPACE.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _scalar(self) -> object:
        while True:
            match = _SCALAR.match(self._text, self._at)
            assert match is not None
            if match.end() < len(self._text) or not self._more():
                break
            if len(self._text) - self._at > 2 * _MAX_NUMBER:
                break
        word = match[0]
        if len(word) > _MAX_NUMBER:
            raise self._wrong(f"a number of more than {_MAX_NUMBER:,} digits")
        if not word:
            what = "the text ends" if self._is_end and not self._peek() else "no value begins so"
            raise self._wrong(f"{what}; a value was expected")
        try:
            found, end = self._json.raw_decode(word)
        except ValueError as error:
            said = str(error) if isinstance(error, _NumberError) else f"not JSON: {word[:40]}"
            raise self._wrong(said) from None
        if end != len(word):
            raise self._wrong(f"not JSON: {word[:40]}")
        self._at = match.end()
        return found

    def _string(self) -> str | Spilled:
        while True:
            match = _STRING.match(self._text, self._at + 1)
            assert match is not None
            if match.end() < len(self._text) and self._text[match.end()] == '"':
                return self._short(match.end() + 1)
            if len(self._text) - self._at > self._window // 2:
                return self._spill(self._pieces())
            if not self._more():
                raise self._wrong("a text in double quotes does not end")

    def _short(self, end: int) -> str | Spilled:
        try:
            text = json.loads(self._text[self._at : end])
        except ValueError as error:
            problem = getattr(error, "msg", str(error))
            raise self._wrong(f"in a text: {problem.lower()}") from None
        assert isinstance(text, str)
        self._at = end
        return self._keep(text)

    def _pieces(self) -> Iterator[str]:
        """A long text, a window at a time."""
        self._at += 1
        while True:
            match = _WHOLE.match(self._text, self._at)
            assert match is not None
            yield json.loads(f'"{match[0]}"')
            self._at = match.end()
            left = self._text[self._at : self._at + _ESCAPE]
            if left.startswith('"'):
                self._at += 1
                return
            if len(left) == _ESCAPE or not self._more():
                raise self._wrong(_what_is_wrong(left))

    def _object_of(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = {
            key: self._keep(value) if isinstance(value, str) else value for key, value in pairs
        }
        if len(found) != len(pairs):
            raise ValueError("a field is there twice")
        return found

    def _keep(self, text: str) -> str | Spilled:
        if len(text) <= LONG:
            return text
        try:
            return self._spill([text])
        except UnicodeEncodeError:
            return text  # half a character: reported later, with the field's name

    def _fill(self) -> None:
        while len(self._text) - self._at < self._window // 2 and self._more():
            pass

    def _more(self) -> bool:
        """Read more; False at the end. Drops the text before `_at`."""
        if self._is_end:
            return False
        try:
            data = self._file.read(self._window // 2)
            fresh = self._decode(data, final=not data)
        except UnicodeDecodeError:
            raise self._wrong("after this line, the text is not UTF-8") from None
        self._is_end = not data
        self._line = self.line
        self._text = self._text[self._at :] + fresh
        self._at = self._counted = 0
        return not self._is_end

    def _wrong(self, problem: str) -> JsonSyntaxError:
        return JsonSyntaxError(self.line, problem)


class _NumberError(ValueError):
    pass


def _float(text: str) -> float:
    found = float(text)
    if found in (float("inf"), float("-inf")):
        raise _NumberError(f"a number that is too large: {text[:40]}")
    return found


def _no_constant(text: str) -> object:
    raise _NumberError(f"{text} is not JSON")


def _what_is_wrong(left: str) -> str:
    if not left:
        return "a text in double quotes does not end"
    if re.match(r"\\u[dD][89a-fA-F]", left):
        return f"half a character in a text: {left[:6]}"
    if left[0] == "\\":
        return f"no such escape in a text: {left[:6]}"
    return "a control character in a text must be written as an escape"
