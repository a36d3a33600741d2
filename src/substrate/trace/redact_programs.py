"""Programs that take a secret by an option which means something else everywhere else."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from substrate.trace.redact import REDACTED
from substrate.trace.redact_rule import Rule, compiled
from substrate.trace.secret_names import is_secret_name
from substrate.trace.shell_words import WORD, is_reference

_DEPTH = 3


class _Option(NamedTuple):
    flags: tuple[str, ...]
    #: ``-pSECRET`` in one word.
    attached: bool = True
    #: ``-p SECRET`` in two.
    separate: bool = True
    #: What parts a name from the secret in its value; empty if all of it is secret.
    after: str = ""


_USER_AND_PASSWORD = _Option(("-u", "--user", "--proxy-user", "-U"), after=":")
_PROMPTS_ALONE = _Option(("-p",), separate=False)
_PROGRAMS: dict[str, tuple[_Option, ...]] = {
    "curl": (_USER_AND_PASSWORD, _Option(("-b", "--cookie"), after="=")),
    "http": (_Option(("-a", "--auth"), after=":"),),
    "https": (_Option(("-a", "--auth"), after=":"),),
    "mysql": (_PROMPTS_ALONE,),
    "mysqldump": (_PROMPTS_ALONE,),
    "mysqladmin": (_PROMPTS_ALONE,),
    "mariadb": (_PROMPTS_ALONE,),
    "mariadb-dump": (_PROMPTS_ALONE,),
    "mongo": (_Option(("-p",), attached=False),),
    "mongosh": (_Option(("-p",), attached=False),),
    "sshpass": (_Option(("-p",)),),
    "redis-cli": (_Option(("-a", "--pass"), attached=False),),
    "sqlcmd": (_Option(("-P",)),),
    "ldapsearch": (_Option(("-w",)),),
    "ldapmodify": (_Option(("-w",)),),
    "smbclient": (_Option(("-U",), after="%"),),
    "zip": (_Option(("-P", "--password")),),
    "unzip": (_Option(("-P",)),),
    "7z": (_PROMPTS_ALONE,),
    "7za": (_PROMPTS_ALONE,),
    "login": (_Option(("-p",), attached=False),),  # docker login, podman login
}
_SEPARATORS = frozenset(";|&()\n")


def redact_words(words: Sequence[str]) -> list[str]:
    """The words of one or more commands, separators between them, with secrets replaced."""
    out = list(words)
    options: tuple[_Option, ...] = ()
    for at, word in enumerate(words):
        if word and word[0] in _SEPARATORS:
            options = ()
        elif (known := _PROGRAMS.get(os.path.basename(word))) and not word.startswith("-"):
            options = known
        elif options and word.startswith("-"):
            _redact_option(out, at, options)
        elif _is_setting(words, at) and not is_reference(word):
            out[at] = REDACTED
    return out


def _is_setting(words: Sequence[str], at: int) -> bool:
    """``aws configure set aws_secret_access_key VALUE``, ``git config auth.token VALUE``."""
    return (
        at >= 2
        and words[at - 2] in ("set", "config")
        and not words[at].startswith("-")
        and is_secret_name(words[at - 1], words[at])
    )


def _redact_option(words: list[str], at: int, options: tuple[_Option, ...]) -> None:
    word = words[at]
    for option in options:
        for flag in option.flags:
            if word == flag and option.separate and at + 1 < len(words):
                if words[at + 1][:1] not in _SEPARATORS:
                    words[at + 1] = _hide(words[at + 1], option)
            elif word.startswith(flag + "=") and flag.startswith("--"):
                words[at] = f"{flag}={_hide(word[len(flag) + 1 :], option)}"
            elif word.startswith(flag) and len(word) > 2 == len(flag) and option.attached:
                words[at] = flag + _hide(word[2:], option)


def _hide(value: str, option: _Option) -> str:
    if not value or is_reference(value):
        return value
    if not option.after:
        return REDACTED
    name, mark, secret = value.partition(option.after)
    # 1000:1000 is a user and a group.
    if not secret or is_reference(secret) or (name + secret).isdigit():
        return value
    return name + mark + REDACTED


def _programs(text: str) -> str:
    return _in_text(text, _DEPTH)


def _in_text(text: str, depth: int) -> str:
    """The same for a line of shell, quoted scripts in it included."""
    matches = list(compiled(r"[;|&()\n]++|" + WORD, re.DOTALL).finditer(text))
    raw = [found[0] for found in matches]
    words = [_unquoted(word) for word in raw]
    out, done = [], 0
    for found, before, after in zip(matches, words, redact_words(words), strict=True):
        new = found[0]
        if after != before:
            new = after
        elif depth and new[0] in "'\"" and " " in new:
            closed = len(new) > 1 and new[-1] == new[0]
            inner = new[1:-1] if closed else new[1:]
            new = new[0] + _in_text(inner, depth - 1) + (new[-1] if closed else "")
        out += [text[done : found.start()], new]
        done = found.end()
    return "".join(out) + text[done:]


def _unquoted(word: str) -> str:
    """Good enough to recognise a program, an option and a value."""
    return compiled(r"[\"'\\]").sub("", word)


RULES = (Rule((*_PROGRAMS, "set"), _programs),)
