"""Secrets recognisable by the program that takes them: options, plain words, standard input."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from substrate.trace.redact.redact_rule import Rule, compiled
from substrate.trace.redact.redact_text import REDACTED
from substrate.trace.redact.secret_names import is_secret_name
from substrate.trace.redact.secret_programs import (
    COMMANDS,
    PRINTERS,
    SETTERS,
    Command,
    Option,
)
from substrate.trace.redact.shell_words import WORD, is_reference

#: Quoted scripts inside quoted scripts: as deep as this.
_DEPTH = 3
#: Words of one command that are taken for a program: ``sudo docker exec c mysql`` has three.
_MOST_PROGRAMS = 6
#: Values of options that may come before a verb: ``kubectl -n ns --context c create secret``.
_MOST_BEFORE_VERBS = 8
_SEPARATORS = frozenset(";|&()\n")
_QUOTES = str.maketrans("", "", "\"'\\")
_TOKEN = r"[;|&()\n]++|<<<|<<-?+(?=[ \t]*+[\w'\"\\])|" + WORD


@cache
def _by_program() -> dict[str, list[Command]]:
    found: dict[str, list[Command]] = {}
    for command in COMMANDS:
        for program in command.programs.split():
            found.setdefault(program, []).append(command)
    return found


def redact_words(words: Sequence[str]) -> list[str]:
    """The words of one or more commands, separators between them, with secrets replaced."""
    out = list(words)
    before: _Span | None = None  # the command whose output goes into the next one
    heredoc_end = 0
    for span in _spans(words):
        _redact_settings(out, span)
        for command, at in _rules_for(words, span):
            _redact_command(out, command, at, span.end)
            if command.stdin and _reads_secret(words, command, at, span.end):
                for source in (span, before) if before else (span,):
                    heredoc_end = _redact_stdin(out, command, source, heredoc_end)
        before = span if span.is_piped else None
    return out


class _Span(NamedTuple):
    """Where a command begins and ends; `is_piped` if its output is the next one's input."""

    start: int
    end: int
    is_piped: bool


def _spans(words: Sequence[str]) -> Iterator[_Span]:
    start = 0
    for at, word in enumerate([*words, ";"]):
        if word and word[0] in _SEPARATORS:
            if at > start:
                yield _Span(start, at, word in ("|", "|&"))
            start = at + 1


def _rules_for(words: Sequence[str], span: _Span) -> Iterator[tuple[Command, int]]:
    """The rules of the command's programs, each with the place after its verbs."""
    programs = 0
    for at in range(span.start, span.end):
        commands = _by_program().get(words[at].rpartition("/")[2])
        if commands is None or programs == _MOST_PROGRAMS:
            continue
        programs += 1
        plain = _plain_words(words, at + 1, span.end, ())
        for command in commands:
            verbs = command.verbs.split()
            after = _after_verbs(words, plain, verbs) if verbs else at + 1
            if after and _has_one(words[at + 1 : span.end], command.needs):
                yield command, after


def _after_verbs(words: Sequence[str], plain: Sequence[int], verbs: Sequence[str]) -> int:
    """The place after the verbs, which follow each other, options between them left out; or 0."""
    many = len(verbs)
    for first in range(min(len(plain) - many + 1, _MOST_BEFORE_VERBS)):
        places = plain[first : first + many]
        if all(_is_verb(words[n], verb) for n, verb in zip(places, verbs, strict=True)):
            return places[-1] + 1
    return 0


def _is_verb(word: str, verb: str) -> bool:
    word = word.lower()
    return word.startswith(verb[:-1]) if verb.endswith("*") else word == verb


def _plain_words(words: Sequence[str], start: int, end: int, takes: Sequence[str]) -> list[int]:
    """The places of words that are neither options nor the value of one of `takes`."""
    return [
        at
        for at in range(start, end)
        if (not words[at].startswith(("-", "<")) or words[at] == "-")
        and (at == start or words[at - 1] not in takes)
    ]


def _has_one(words: Sequence[str], needs: Sequence[str]) -> bool:
    return not needs or any(_is_like(word, need) for need in needs for word in words)


def _is_like(word: str, need: str) -> bool:
    if need.startswith("-*"):  # one letter in a group of short options
        return word[:1] == "-" and word[:2] != "--" and need[2] in word
    return word.endswith(need) if need.startswith("=") else word == need


def _redact_command(words: list[str], command: Command, start: int, end: int) -> None:
    for at in range(start, end) if command.options else ():
        for option in command.options:
            _redact_option(words, at, end, option)
    if not (command.words or command.named or command.pairs_from >= 0):
        return
    plain = _plain_words(words, start, end, command.takes)
    for number in command.words:
        if number < len(plain):
            _hide_word(words, plain[number], command.after)
    for at in plain[command.pairs_from :] if command.pairs_from >= 0 else ():
        if not words[at].partition("=")[2].startswith(("@", "-")):  # a file, standard input
            words[at] = _hide(words[at], "=")
    for at in plain if command.named else ():
        if at > start and is_secret_name(words[at - 1], words[at]):
            _hide_word(words, at, "")


def _redact_option(words: list[str], at: int, end: int, option: Option) -> None:
    word = words[at]
    for flag in option.flags:
        if word == flag or (option.grouped and _ends_group(word, flag)):
            if option.separate and at + 1 < end:
                words[at + 1] = _hide(words[at + 1], option.after)
        elif word.startswith(flag + "=") and flag.startswith("--"):
            words[at] = f"{flag}={_hide(word[len(flag) + 1 :], option.after)}"
        elif word.startswith(flag) and not flag.startswith("--") and option.attached:
            words[at] = flag + _hide(word[len(flag) :], option.after)


def _ends_group(word: str, flag: str) -> bool:
    return len(flag) == 2 and word[:1] == "-" and word[1:].isalpha() and word[-1] == flag[1]


def _hide_word(words: list[str], at: int, after: str) -> None:
    # `vault login token=X`, `-method=userpass username=ada`: the rules for names handle those.
    if after or ("=" not in words[at] and words[at] != "-"):
        words[at] = _hide(words[at], after)


def _hide(value: str, after: str) -> str:
    if not value or is_reference(value):
        return value
    if not after:
        return REDACTED
    name, mark, secret = value.partition(after)
    # 1000:1000 is a user and a group; `/nolog` is none of sqlplus's users.
    if not secret or is_reference(secret) or (name + secret).isdigit():
        return value
    if after != "/":
        return name + mark + REDACTED
    _, at, database = secret.rpartition("@")
    return name + mark + REDACTED + at + (database if at else "") if name else value


def _redact_settings(words: list[str], span: _Span) -> None:
    """``aws configure set aws_secret_access_key VALUE``, ``git config auth.token VALUE``."""
    setter = -10
    for at in range(span.start, span.end):
        word = words[at]
        if word in SETTERS:
            setter = at
        elif word.startswith("-"):
            setter += setter == at - 1  # `set -x NAME value`
        elif at == setter + 2 and _is_secret_setting(words[at - 1], word):
            words[at] = REDACTED


def _is_secret_setting(name: str, value: str) -> bool:
    # `kubectl config set-credentials u` has a verb where others have the name.
    return (
        not name.startswith(("set-", "-"))
        and is_secret_name(name, value)
        and not is_reference(value)
    )


def _reads_secret(words: Sequence[str], command: Command, start: int, end: int) -> bool:
    return "" in command.stdin or _has_one(words[start:end], command.stdin)


def _redact_stdin(words: list[str], command: Command, source: _Span, heredoc_end: int) -> int:
    """What the command reads: a here-string or heredoc of `source`, or what `source` prints.

    Returns where the last redacted heredoc ends: none is searched for twice.
    """
    for at in range(source.start, source.end):
        if words[at] == "<<<" and at + 1 < source.end:
            words[at + 1] = _hide(words[at + 1], command.after)
        elif words[at] in ("<<", "<<-") and at >= heredoc_end and at + 1 < source.end:
            heredoc_end = _redact_heredoc(words, at + 1, command.after)
    program = words[source.start].rpartition("/")[2]
    if source.is_piped and program in PRINTERS:
        plain = _plain_words(words, source.start + 1, source.end, ())
        is_format = program == "printf" and len(plain) > 1 and "%" in words[plain[0]]
        for at in plain[1:] if is_format else plain:
            words[at] = _hide(words[at], command.after)
    return heredoc_end


def _redact_heredoc(words: list[str], name_at: int, after: str) -> int:
    name, is_body = words[name_at], False
    for at in range(name_at + 1, len(words)):
        if words[at][:1] in _SEPARATORS:
            is_body = is_body or "\n" in words[at]
        elif is_body and words[at] == name and words[at - 1].endswith("\n"):
            return at
        elif is_body:
            words[at] = _hide(words[at], after)
    return len(words)


def _programs(text: str) -> str:
    return _in_text(text, _DEPTH)


def _in_text(text: str, depth: int) -> str:
    """The same for a line of shell, quoted scripts in it included."""
    matches = list(compiled(_TOKEN, re.DOTALL).finditer(text))
    words = [_unquoted(found[0]) for found in matches]
    out, done = [], 0
    for found, before, after in zip(matches, words, redact_words(words), strict=True):
        new = found[0]
        if after != before:
            new = after
        elif depth and new[0] in "'\"" and " " in new:
            closed = len(new) > 1 and new[-1] == new[0]
            inner = new[1:-1] if closed else new[1:]
            new = new[0] + _in_text(inner, depth - 1) + (new[-1] if closed else "")
        else:
            continue
        out += [text[done : found.start()], new]
        done = found.end()
    return "".join(out) + text[done:]


def _unquoted(word: str) -> str:
    """Good enough to recognise a program, an option and a value."""
    return word.translate(_QUOTES)


_TRIGGERS = sorted({trigger for command in COMMANDS for trigger in command.triggers()} | SETTERS)
RULES = (Rule(tuple(_TRIGGERS), _programs),)
