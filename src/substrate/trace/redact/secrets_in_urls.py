"""Passwords in URLs: ``scheme://user:password@host``."""

from __future__ import annotations

from substrate.trace.redact.redact_rule import Rule, compiled
from substrate.trace.redact.redact_text import REDACTED
from substrate.trace.redact.secret_names import looks_random
from substrate.trace.redact.shell_words import is_reference

_WORD = r"[^\s\"'<>`]++"
#: A user name with digits is common; one that long with digits is a token.
_TOKEN_LENGTH = 16
#: Passwords that say that the user's name is the token.
_NO_PASSWORDS = ("x-oauth-basic", "")
#: A signature in a query, as in shared access links.
_SIGNATURE = r"(?<=[?&])sig=[^\s&\"'<>]++"


def _urls(text: str) -> str:
    return compiled(_WORD).sub(lambda found: _word(found[0]), text)


def _word(word: str) -> str:
    """One word may hold several URLs, and passwords may hold ``/`` and ``@``."""
    last_at = word.rfind("@")
    out, done = [], 0
    while 0 <= (start := word.find("://", done)) < last_at:
        start += 3
        end = _authority_end(word, start)
        at = word.rfind("@", start, end)
        if at < 0 and _goes_on_after(word[start:end]):
            at = last_at
        out.append(word[done:start])
        if at < 0:
            out.append(word[start:end])
            done = end
        else:
            out.append(_without_password(word[start:at]))
            done = at
    return "".join(out) + word[done:]


def _authority_end(word: str, start: int) -> int:
    found = compiled(r"[/?#]").search(word, start)
    return found.start() if found else len(word)


def _goes_on_after(authority: str) -> bool:
    """``user:half-a-password``: no port follows the colon, so the password contains a ``/``."""
    _, colon, after = authority.partition(":")
    return bool(colon) and after != "" and not after.isdigit() and "[" not in authority


def _without_password(credentials: str) -> str:
    user, colon, password = credentials.partition(":")
    is_alone = bool(colon) and password in _NO_PASSWORDS
    if looks_random(user, 8 if is_alone else _TOKEN_LENGTH):
        user = REDACTED  # some services take the token as the user's name
    if user == REDACTED and is_alone:
        return user + colon + password
    if password and not is_reference(password):
        password = REDACTED
    return user + colon + password


def _signatures(text: str) -> str:
    return compiled(_SIGNATURE).sub(f"sig={REDACTED}", text)


RULES = (Rule(("://",), _urls), Rule(("sig=",), _signatures))
