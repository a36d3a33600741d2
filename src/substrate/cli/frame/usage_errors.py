"""What argparse finds wrong with a call, in our own words. Loaded only when something is."""

from __future__ import annotations

import re

#: As argparse words it (the same in every Python we run on), and as we do.
_SAID = tuple(
    (re.compile(theirs + r"\Z", re.DOTALL), ours)
    for theirs, ours in (
        (r"the following arguments are required: (.+)", r"missing: \1"),
        (r"one of the arguments (.+) is required", r"missing: one of \1"),
        (r"unrecognized arguments: (-.*)", r"unknown option: \1"),
        (r"unrecognized arguments: (.+)", r"too many words: \1"),
        (r"unexpected option string: (.+)", r"unknown option: \1"),
        (r"argument (.+?): invalid int value: (.+)", r"\1 takes a whole number, not \2"),
        (r"argument (.+?): invalid float value: (.+)", r"\1 takes a number, not \2"),
        (r"argument (.+?): expected (?:at least )?one argument", r"\1 needs a value"),
        (r"argument (.+?): expected at most one argument", r"\1 takes one value at most"),
        (r"argument (.+?): ignored explicit argument (.+)", r"\1 takes no value, but was given \2"),
        (r"argument (.+?): not allowed with argument (.+)", r"\1 cannot stand beside \2"),
        (r"argument (.+?): (.+)", r"\1: \2"),
    )
)


def in_our_words(message: str) -> str:
    """`message` itself if nothing of the kind is known."""
    for theirs, ours in _SAID:
        found = theirs.match(message)
        if found is not None:
            return found.expand(ours)
    return message
