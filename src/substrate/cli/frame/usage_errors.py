"""Usage errors of argparse in our own words. Imported only when there is one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

#: argparse's message (the same in every supported Python version), and ours.
_SAID = tuple(
    (re.compile(theirs + r"\Z", re.DOTALL), ours)
    for theirs, ours in (
        (r"the following arguments are required: (.+)", r"missing: \1"),
        (r"one of the arguments (.+) is required", r"missing: one of \1"),
        (r"unrecognized arguments: (-\S*).*", r"unknown option: \1"),
        (r"unrecognized arguments: (.+)", r"unexpected argument: \1"),
        (r"unexpected option string: (.+)", r"unknown option: \1"),
        (r"argument (.+?): invalid int value: (.+)", r"\1 takes a whole number, not \2"),
        (r"argument (.+?): invalid float value: (.+)", r"\1 takes a number, not \2"),
        (r"argument (.+?): expected (?:at least )?one argument", r"\1 needs a value"),
        (r"argument (.+?): expected at most one argument", r"\1 takes one value at most"),
        (r"argument (.+?): ignored explicit argument (.+)", r"\1 takes no value, but was given \2"),
        (r"argument (.+?): not allowed with argument (.+)", r"\1 cannot be combined with \2"),
        (r"argument (.+?): (.+)", r"\1: \2"),
    )
)


def in_our_words(message: str) -> str:
    """Our own message for an argparse error; `message` itself if it is not known."""
    for theirs, ours in _SAID:
        found = theirs.match(message)
        if found is not None:
            return found.expand(ours)
    return message


_UNKNOWN_OPTION = re.compile(r"unrecognized arguments: (-[^\s=]*)")
_WITHOUT_VALUE = re.compile(r"argument ([^\s/:]+)\S*: expected (?:at least )?one argument")


def option_hint(message: str, options: Mapping[str, str]) -> str:
    """What was probably meant, ready to put before another hint; `options`: each with its value."""
    unknown, without_value = _UNKNOWN_OPTION.match(message), _WITHOUT_VALUE.match(message)
    if unknown is not None:
        return did_you_mean(unknown[1], options)
    if without_value is not None and without_value[1] in options:
        return f"write it as {options[without_value[1]]}; "
    return ""


def did_you_mean(word: str, known: Iterable[object]) -> str:
    """The known word that is closest, ready to put before another hint; empty if none is close."""
    from difflib import get_close_matches

    near = get_close_matches(word, [str(one) for one in known], n=1)
    return f"did you mean {near[0]}? " if near else ""
