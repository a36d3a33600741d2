"""Keeping secrets out of what is written down.

Command text, arguments, variables and URLs pass through here before they reach a trace line or a
commit message. What is replaced is the value, never its name: ``TOKEN=[redacted]``. Redacting
twice is the same as once, and the time grows with the text, not with its square: every pattern
starts at a word's beginning, eats possessively (``*+``), and is never asked twice for a place.

Most commands hold nothing that could be a secret's mark. For them nothing but a few substring
searches happens: the rules are imported, and their patterns compiled, when first needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

REDACTED = "[redacted]"

#: Without one of these no rule has anything to do; a test holds the rules to it.
MARKS = (
    *("token", "secret", "pass", "pwd", "key", "auth", "cookie", "cred", "bearer", "basic"),
    *("signature", "://", "sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
    *("glsa_", "xox", "xapp-", "akia", "asia", "abia", "acca"),
    *("aiza", "npm_", "hf_", "dop_v1_", "k_live_", "k_test_", "whsec_", "shpat_", "ya29."),
    *("sg.", "eyj", "hooks.slack.com", "pypi-", "curl", "http", "mysql", "mariadb", "mongo"),
    *("redis-cli", "sqlcmd", "ldap", "smbclient", "zip", "7z", "login", "set"),
)
#: A replacement can bring something to light (a quote that now closes elsewhere), so the rules
#: run until nothing changes; more often than this was never seen.
_MOST_PASSES = 8


def redact(text: str) -> str:
    """`text` with its secrets replaced."""
    if not _is_marked([text]):
        return text
    from substrate.trace.redact_rules import RULES

    for _ in range(_MOST_PASSES):
        before = text
        lowered = text.lower()
        for rule in RULES:
            if any(trigger in lowered for trigger in rule.triggers):
                text = rule.apply(text)
        if text == before:
            break
    return text


def redact_argv(argv: Sequence[str]) -> list[str]:
    """The same for separate arguments, where an option's value is the argument after it."""
    if not _is_marked(argv):
        return list(argv)
    from substrate.trace.redact_programs import redact_words
    from substrate.trace.secret_names import is_secret_option
    from substrate.trace.shell_words import is_reference

    out: list[str] = []
    option = ""  # the argument before this one, if it is an option that stands alone
    for argument in argv:
        if (
            option
            and not argument.startswith("-")
            and is_secret_option(option, argument)
            and not is_reference(argument)
        ):
            out.append(REDACTED if argument else "")
        elif option.endswith("c") and " " in argument:
            out.append(redact(argument))  # a script for sh -c
        else:
            out.append(_redact_argument(argument))
        option = argument if argument.startswith("-") and "=" not in argument else ""
    return redact_words(out)


def redact_variable(name: str, value: str) -> str:
    """A variable's value: nothing of it if the name promises a secret."""
    from substrate.trace.secret_names import is_secret_name

    return REDACTED if value and is_secret_name(name, value) else redact(value)


def _is_marked(texts: Iterable[str]) -> bool:
    for text in texts:
        lowered = text.lower()
        if any(mark in lowered for mark in MARKS):
            return True
    return False


def _redact_argument(argument: str) -> str:
    """One argument needs no quotes, so what follows a secret's ``=`` is its value to the end."""
    from substrate.trace.secret_names import is_secret_name, is_secret_option

    name, equals, value = argument.partition("=")
    if equals and value and re.fullmatch(r"-{0,2}[A-Za-z_][\w.-]*+", name):
        is_option = name.startswith("-")
        if is_secret_option(name, value) if is_option else is_secret_name(name, value):
            return f"{name}={REDACTED}"
    return redact(argument)
