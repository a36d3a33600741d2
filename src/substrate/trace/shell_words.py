"""Just enough of shell syntax to tell where a value ends."""

from __future__ import annotations

import re
from functools import cache

#: One word: quoted parts, escapes and plain characters in any order. An open quote lasts to the
#: end. ``\\"`` opens a quoted part inside an outer, double-quoted one.
WORD = (
    r"""(?:'[^']*+(?:'|\Z)"""
    r"""|"(?:[^"\\]|\\.)*+(?:"|\\?\Z)"""
    r"""|\\"(?:[^"\\]|\\[^"])*+(?:\\?"|\\?\Z)"""
    r"""|\\."""
    r"""|[^\s;|&()<>"'`\\])++"""
)
_PLAIN_IN_QUOTES = r"[^\s;|&<>\"'`\\]*+"
_REFERENCE = r"[\"']?\$(?:\w++|\{\w++\}|\(.*|\{.*)?[\"']?|`.*"


@cache
def word_pattern() -> re.Pattern[str]:
    return re.compile(WORD, re.DOTALL)


@cache
def _plain_pattern() -> re.Pattern[str]:
    return re.compile(_PLAIN_IN_QUOTES)


@cache
def _reference_pattern() -> re.Pattern[str]:
    return re.compile(_REFERENCE, re.DOTALL)


def is_reference(value: str) -> bool:
    """``$TOKEN``, ``${TOKEN}``, ``$(cat file)``: says where a secret is, and not what it is."""
    return value[:2].lstrip("\"'").startswith(("$", "`")) and bool(
        _reference_pattern().fullmatch(value)
    )


class Quotes:
    """Follows a text's quotes from left to right; asked for growing positions only."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._open = ""
        self._opened_at = -1
        self._event = self._find_event()

    def open_at(self, position: int) -> tuple[str, int]:
        """The quote that is open at `position` (or ``""``), and where it was opened."""
        while 0 <= self._event < position:
            found = self._text[self._event]
            if found == "\\":
                self._at = self._event + 2
            else:
                self._open, self._opened_at = ("", -1) if self._open else (found, self._event)
                self._at = self._event + 1
            self._event = self._find_event()
        return self._open, self._opened_at

    def _find_event(self) -> int:
        """Where the next character stands that opens, closes or escapes; -1 for nowhere."""
        if self._open == "'":
            return self._text.find("'", self._at)
        pattern = _in_double() if self._open else _outside()
        found = pattern.search(self._text, self._at)
        return found.start() if found else -1


@cache
def _outside() -> re.Pattern[str]:
    return re.compile(r"['\"\\]")


@cache
def _in_double() -> re.Pattern[str]:
    return re.compile(r"[\"\\]")


def value_end(text: str, start: int, quotes: Quotes, name_start: int) -> int:
    """Where the value that starts at `start` ends; its name starts at `name_start`.

    Outside of quotes that is the end of the word. Inside, it is the end of a word of the quoted
    script, or of the quoted text if the name is the first thing in it: ``-e 'NAME=a b'``.
    """
    quote, opened_at = quotes.open_at(start)
    if not quote:
        match = word_pattern().match(text, start)
        return match.end() if match else start
    if opened_at == name_start - 1 and not _is_script(text, opened_at):
        end = _closing(text, start, quote)
    else:
        end = _end_inside(text, start, quote)
    # A quote within quotes is spelled by closing, quoting and opening again: '"'"'
    if text[end : end + 1] == quote and text[end + 1 : end + 2] in ("'", '"', "\\"):
        match = word_pattern().match(text, end)
        return match.end() if match else end
    return end


def _closing(text: str, start: int, quote: str) -> int:
    end = text.find(quote, start)
    while quote == '"' and end > start and text[end - 1] == "\\":
        end = text.find(quote, end + 1)
    return len(text) if end < 0 else end


def _end_inside(text: str, start: int, quote: str) -> int:
    for inner in ('\\"', "\\'", '"', "'"):
        if inner != quote and text.startswith(inner, start):
            end = text.find(inner, start + len(inner))
            outer = text.find(quote, start + len(inner)) if inner[-1] != quote else -1
            ends = [at for at in (end + len(inner) if end >= 0 else -1, outer) if at >= 0]
            return min(ends, default=len(text))
    match = _plain_pattern().match(text, start)
    end = match.end() if match else start
    while text.startswith("\\", end) and end + 1 < len(text) and text[end + 1] != quote:
        match = _plain_pattern().match(text, end + 2)
        end = match.end() if match else end + 2
    return end


def _is_script(text: str, quote_at: int) -> bool:
    """Whether the quote there opens the argument of ``sh -c``."""
    before = text[max(0, quote_at - 16) : quote_at].split()
    return bool(before) and before[-1].startswith("-") and before[-1].endswith("c")
