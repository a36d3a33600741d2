"""Keeping secrets out of what is written down.

Command text, arguments, variables and URLs pass through here before they reach a trace line or a
commit message. What is replaced is the value, never its name: ``TOKEN=[redacted]``. Redacting
twice is the same as once, and the time grows with the text, not with its square: every pattern
starts at a word's beginning, eats possessively (``*+``), and is never asked twice for a place.

The rules are compiled on first use, and only those whose trigger words occur in the text: most
commands hold none, and compiling all of them would cost more than running ``true``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from substrate.trace import redact_names, redact_programs, redact_shapes, redact_urls
from substrate.trace.redact_rule import REDACTED
from substrate.trace.secret_names import is_secret_name, is_secret_option
from substrate.trace.shell_words import is_reference

__all__ = ["REDACTED", "redact", "redact_argv", "redact_variable"]

#: Shapes come first: what they replace cannot confuse the rules that look for a value's end.
_RULES = (
    *redact_shapes.RULES,
    *redact_urls.RULES,
    *redact_names.RULES,
    *redact_programs.RULES,
)
#: A replacement can bring something to light (a quote that now closes elsewhere), so the rules
#: run until nothing changes; more often than this was never seen.
_MOST_PASSES = 8


def redact(text: str) -> str:
    """`text` with its secrets replaced."""
    for _ in range(_MOST_PASSES):
        before = text
        lowered = text.lower()
        for rule in _RULES:
            if any(trigger in lowered for trigger in rule.triggers):
                text = rule.apply(text)
        if text == before:
            break
    return text


def redact_argv(argv: Sequence[str]) -> list[str]:
    """The same for separate arguments, where an option's value is the argument after it."""
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
    return redact_programs.redact_words(out)


def redact_variable(name: str, value: str) -> str:
    """A variable's value: nothing of it if the name promises a secret."""
    return REDACTED if value and is_secret_name(name, value) else redact(value)


def _redact_argument(argument: str) -> str:
    """One argument needs no quotes, so what follows a secret's ``=`` is its value to the end."""
    name, equals, value = argument.partition("=")
    if equals and value and re.fullmatch(r"-{0,2}[A-Za-z_][\w.-]*+", name):
        is_option = name.startswith("-")
        if is_secret_option(name, value) if is_option else is_secret_name(name, value):
            return f"{name}={REDACTED}"
    return redact(argument)
