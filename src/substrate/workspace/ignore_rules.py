"""The gitignore language, for ``.substrateignore``: exact, small, and fast to import.

Each line is matched against one path at a time and never against paths below it: the caller walks
down from the root, and does not enter excluded directories. Git does the same, so that ``*`` and
then ``!/src/`` include ``src`` again (pathspec 1.1 disagrees, and takes 35 ms to import).
tests/unit/workspace/test_ignore_rules.py compares with git itself. In one point this follows git's
manual and not git 2.39: in ``a**/b`` the stars are a plain ``*``.
"""

from __future__ import annotations

import re
from typing import NamedTuple

#: A line with more ``**`` than is realistic could keep the matcher busy for minutes.
_MOST_DOUBLE_STARS = 6

_CLASSES = {
    b"alnum": rb"a-zA-Z0-9",
    b"alpha": rb"a-zA-Z",
    b"blank": rb" \t",
    b"cntrl": rb"\x00-\x1f\x7f",
    b"digit": rb"0-9",
    b"graph": rb"\x21-\x7e",
    b"lower": rb"a-z",
    b"print": rb"\x20-\x7e",
    b"punct": rb"!-/:-@\[-`{-~",
    b"space": rb" \t\n\r\f\v",
    b"upper": rb"A-Z",
    b"xdigit": rb"0-9a-fA-F",
}


class Rule(NamedTuple):
    """One line: what it matches, and the effect of a match."""

    number: int
    text: bytes
    #: ``!``: include again what an earlier line excluded.
    negated: bool
    directories_only: bool
    #: A pattern with a ``/`` is matched against the whole path, others against the last name.
    whole_path: bool
    matches: re.Pattern[bytes]


class MalformedRuleError(ValueError):
    """The line can never match anything; the text says why."""


def parse_line(line: bytes, number: int) -> Rule | None:
    """The rule of one line; `None` for blank lines and comments."""
    text = _without_trailing_blanks(line)
    if not text or text.startswith(b"#"):
        return None
    pattern = text
    negated = pattern.startswith(b"!")
    if negated:
        pattern = pattern[1:]
    directories_only = pattern.endswith(b"/")
    if directories_only:
        pattern = pattern[:-1]
    whole_path = b"/" in pattern
    pattern = pattern.removeprefix(b"/")
    if not pattern:
        raise MalformedRuleError("names nothing")
    if pattern.count(b"**") > _MOST_DOUBLE_STARS:
        raise MalformedRuleError("too many **")
    regex = re.compile(_translate(pattern) + rb"\Z", re.DOTALL)
    return Rule(number, text, negated, directories_only, whole_path, regex)


class IgnoreRules:
    """A whole file. The last line that matches decides."""

    def __init__(self, content: bytes) -> None:
        #: (line number, line, what is wrong with it): such a line has no effect.
        self.problems: list[tuple[int, bytes, str]] = []
        self.rules: list[Rule] = []
        lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        for number, line in enumerate(lines, 1):
            try:
                rule = parse_line(line.removesuffix(b"\r"), number)
            except MalformedRuleError as error:
                self.problems.append((number, line, str(error)))
                continue
            if rule is not None:
                self.rules.append(rule)
        self._last_first = self.rules[::-1]

    def deciding_rule(self, path: bytes, *, is_dir: bool) -> Rule | None:
        """The rule that decides about `path` itself, assuming that its parents are included."""
        name = path.rpartition(b"/")[2]
        for rule in self._last_first:
            if rule.directories_only and not is_dir:
                continue
            if rule.matches.match(path if rule.whole_path else name):
                return rule
        return None


def _without_trailing_blanks(line: bytes) -> bytes:
    r"""``b"a\ "`` keeps its blank, ``b"a "`` loses it."""
    end = len(line)
    while end and line[end - 1 : end] == b" ":
        before = line[: end - 1]
        if (len(before) - len(before.rstrip(b"\\"))) % 2:
            break
        end -= 1
    return line[:end]


def _translate(pattern: bytes) -> bytes:
    """A regular expression for `pattern` whose ``*`` cannot cause endless backtracking.

    Text between two stars is searched at its first place only (an atomic group): if the rest then
    fails, it would fail from any later place as well.
    """
    done: list[bytes] = []
    piece: list[bytes] = []
    starred = False
    at = 0
    while at < len(pattern):
        char = pattern[at : at + 1]
        if char == b"*":
            end = at
            while pattern[end : end + 1] == b"*":
                end += 1
            double = _double_star(pattern, at, end)
            _flush(done, piece, starred, before_star=not double)
            starred = not double
            done.append(double)
            at = end + 1 if double.endswith(b"/)?") else end
        elif char == b"[":
            translated, at = _bracket(pattern, at)
            piece.append(translated)
        else:
            if char == b"\\":
                at += 1
                if at == len(pattern):
                    raise MalformedRuleError("ends in a lone backslash")
                char = pattern[at : at + 1]
                piece.append(re.escape(char))
            else:
                piece.append(rb"[^/]" if char == b"?" else re.escape(char))
            at += 1
    _flush(done, piece, starred, before_star=False)
    return b"".join(done)


def _double_star(pattern: bytes, start: int, end: int) -> bytes:
    """The expression for ``**`` between slashes or ends; empty if the stars are a plain ``*``."""
    if end - start < 2 or (start and pattern[start - 1 : start] != b"/"):
        return b""
    following = pattern[end : end + 1]
    if following == b"/":
        return rb"(?:.*/)?"
    return b"" if following else rb".*"


def _flush(done: list[bytes], piece: list[bytes], starred: bool, *, before_star: bool) -> None:
    text = b"".join(piece)
    piece.clear()
    if not starred:
        done.append(text)
    elif before_star:
        done.append(rb"(?>[^/]*?" + text + rb")")
    else:
        done.append(rb"[^/]*" + text)


def _bracket(pattern: bytes, start: int) -> tuple[bytes, int]:
    """``[a-z]``, ``[!a]``, ``[[:alpha:]]``: the expression, and where the pattern continues."""
    at = start + 1
    negated = pattern[at : at + 1] in (b"!", b"^")
    at += negated
    first = at
    members: list[bytes] = []
    while True:
        char = pattern[at : at + 1]
        if not char:
            raise MalformedRuleError("a [ without its ]")
        if char == b"]" and at > first:
            break
        if pattern[at : at + 2] == b"[:":
            members_of_class, at = _named_class(pattern, at)
            members.append(members_of_class)
            continue
        low, at = _member(pattern, at)
        if pattern[at : at + 1] == b"-" and pattern[at + 1 : at + 2] not in (b"]", b""):
            high, at = _member(pattern, at + 1)
            if low <= high:
                members.append(re.escape(low) + b"-" + re.escape(high))
        else:
            members.append(re.escape(low))
    inside = b"".join(members)
    # A name never contains "/", and in a path no bracket may match it.
    if negated:
        return rb"[^/" + inside + rb"]", at + 1
    return (rb"(?!/)[" + inside + rb"]" if inside else rb"(?!)"), at + 1


def _member(pattern: bytes, at: int) -> tuple[bytes, int]:
    if pattern[at : at + 1] == b"\\":
        at += 1
        if at >= len(pattern):
            raise MalformedRuleError("a [ without its ]")
    return pattern[at : at + 1], at + 1


def _named_class(pattern: bytes, at: int) -> tuple[bytes, int]:
    end = pattern.find(b":]", at + 2)
    named = pattern[at + 2 : end] if end >= 0 else b""
    if end >= 0 and named in _CLASSES:
        return _CLASSES[named], end + 2
    if end >= 0 and b"]" not in named:
        raise MalformedRuleError(f"no such class: [:{named.decode('ascii', 'replace')}:]")
    return re.escape(b"["), at + 1
