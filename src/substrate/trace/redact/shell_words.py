"""Just enough of shell syntax to tell where a value ends."""

from __future__ import annotations

import re
from functools import cache

#: One word: quoted parts, escapes and plain characters in any order. An unclosed quote extends to
#: the end. ``\\"`` opens a quoted part inside an outer, double-quoted one.
WORD = (
    r"""(?:'[^']*+(?:'|\Z)"""
    r"""|"(?:[^"\\]|\\.)*+(?:"|\\?\Z)"""
    r"""|\\"(?:[^"\\]|\\[^"])*+(?:\\?"|\\?\Z)"""
    r"""|\\."""
    r"""|[^\s;|&()<>"'`\\])++"""
)
_REFERENCE = r"[\"']?\$(?:\w++|\{\w++\}|\(.*|\{.*)?[\"']?|`.*"


@cache
def word_pattern() -> re.Pattern[str]:
    return re.compile(WORD, re.DOTALL)


@cache
def _reference_pattern() -> re.Pattern[str]:
    return re.compile(_REFERENCE, re.DOTALL)


def is_reference(value: str) -> bool:
    """``$TOKEN``, ``${TOKEN}``, ``$(cat file)``: refers to a secret without containing it."""
    return value[:2].lstrip("\"'").startswith(("$", "`")) and bool(
        _reference_pattern().fullmatch(value)
    )


class Quotes:
    """Tracks a text's quotes from left to right; query it with increasing positions only."""

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
        """The position of the next character that opens, closes or escapes; -1 if none."""
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
    for inner in _INNER_QUOTES:
        if inner != quote and text.endswith(inner, 0, max(name_start, 0)):
            end = text.find(inner, start)
            return len(text) if end < 0 else end
    is_first = opened_at == name_start - 1 and not _is_script(text, opened_at)
    end, is_outside = _end_inside(text, start, quote, to_the_end=is_first)
    # If the outer word ended here, the quote that closes it stays.
    return end - 1 if is_outside and start < end and text[end - 1] == quote else end


#: How a quote within quotes is spelled.
_INNER_QUOTES = ("'\"'\"'", "'\\''", '\\"', "\\'", '"', "'")
_ENDS_A_WORD = frozenset(" \t\r\n;|&()<>`")


def _end_inside(text: str, start: int, outer: str, *, to_the_end: bool) -> tuple[int, bool]:
    """The end of a word of a script in `outer` quotes, or (`to_the_end`) of the whole script.

    Two shells read the text: the outer shell removes its quotes, and the inner shell sees the
    rest. Also returns whether the end is outside of the outer quotes.
    """
    inner, escaped = "", False
    at, size = start, len(text)
    while at < size:
        char, step = text[at], 1
        if char == outer or (not outer and char in "'\""):
            outer = "" if outer else char
            at += 1
            continue
        if not outer and char in _ENDS_A_WORD:
            return at, True
        if char == "\\" and (not outer or (outer == '"' and text[at + 1 : at + 2] in _ESCAPABLE)):
            char, step = text[at + 1 : at + 2], 2
        if to_the_end:
            pass
        elif escaped:
            escaped = False
        elif char == "\\" and inner != "'":
            escaped = True
        elif inner:
            inner = "" if char == inner else inner
        elif char in ("'", '"'):
            inner = char
        elif char in _ENDS_A_WORD:
            return at, False
        at += step
    return size, not outer


_ESCAPABLE = ('"', "\\", "$", "`")


def _is_script(text: str, quote_at: int) -> bool:
    """Whether the quote there opens the argument of ``sh -c``."""
    before = text[max(0, quote_at - 16) : quote_at].split()
    return bool(before) and before[-1].startswith("-") and before[-1].endswith("c")
