"""Secrets recognisable by the name before them: variables, options, headers, JSON fields."""

from __future__ import annotations

import re

from substrate.trace.redact.redact_rule import Rule, compiled
from substrate.trace.redact.redact_text import REDACTED
from substrate.trace.redact.secret_names import (
    is_secret_name,
    is_secret_option,
    looks_random,
    names_a_place,
)
from substrate.trace.redact.shell_words import Quotes, is_reference, value_end

#: Every secret-looking name holds one of these.
_NAME_TRIGGERS = (
    *("token", "secret", "pass", "pwd", "key", "auth", "cookie", "cred", "bearer", "signature"),
)

_ASSIGNMENT = r"(?<![A-Za-z0-9_.-])([A-Za-z_][A-Za-z0-9_.-]*+)(\+?=)"
_OPTION = r"(?<![A-Za-z0-9_.-])(--?[A-Za-z][A-Za-z0-9_.-]*+)([ \t]++|=)"
_SPACED = (
    r"(?<![A-Za-z0-9_.-])([A-Za-z_][A-Za-z0-9_.-]*+)([ \t]++=[ \t]*+|=[ \t]++)(?!=)"
    r"(\"[^\"\n]++\"|'[^'\n]++'|[^\s\"'`;|&()]++)"
)
_FIELD = (
    r"((?<!\\)\\*+[\"'])([A-Za-z_][A-Za-z0-9_.-]*+)\1(\s*+(?:=>|:|=)\s*+)"
    r"(?:(\\*+)([\"'])|\[redacted\]|[^\s,}\]\"'\\]++)"
)
#: ``pwd: "x"``, as programs write it.
_BARE_FIELD = r"(?<![A-Za-z0-9_.$-])([A-Za-z_][A-Za-z0-9_-]*+)(:[ \t]*+\\?)([\"'])([^\"'\\\n]++)"
#: A line of YAML with one word for a value. A commit message's first line is not one.
_YAML = (
    r"(?<=\n)([ \t]*+(?:-[ \t]++)?)([A-Za-z_][\w.-]*+)(:[ \t]++)([\w+/=.:@%^~,-]++)"
    r"(?=[ \t]*+(?:\r?\n|\Z))"
)
_YAML_CONSTANTS = frozenset({"true", "false", "null", "none", "yes", "no", "on", "off"})
#: Names of sections and of things that have another name: ``auth: basic``, ``existingSecret: db``.
_YAML_HARMLESS = re.compile(r"(?i)auth|.*cookies?|.*signature|.*credentials?|existing.*")
_HEADER = r"(?<![A-Za-z0-9_./-])([A-Za-z_][A-Za-z0-9_.-]*+)([ \t]*+:(?!//)[ \t]*+)"
_SCHEME = (
    r"(?i:(bearer|basic|token|digest|negotiate|apikey|bot|aws4-hmac-sha256|key)(?:[ \t]|\\ )+)"
)
_BEARER = r"(?<![A-Za-z0-9])((?i:bearer|basic)[ \t]++)([A-Za-z0-9._~+/=-]{8,}+)"
#: As far back as this the program is searched for that an option belongs to.
_BEFORE = 120
_WHOLE_HEADERS = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie"})


def _assignments(text: str) -> str:
    """``NAME=value`` anywhere, quoted or not."""
    return _named_values(text, _ASSIGNMENT, option=False)


def _options(text: str) -> str:
    """``--password x``, ``--password=x``."""
    return _named_values(text, _OPTION, option=True)


def _named_values(text: str, pattern: str, *, option: bool) -> str:
    quotes = Quotes(text)
    search = compiled(pattern).search
    out, done, position = [], 0, 0
    while found := search(text, position):
        position = found.end()
        # Search for the end of the value only after a name that may hold a secret.
        is_secret = is_secret_option if option else is_secret_name
        if not is_secret(found[1], "?"):
            continue
        if text.startswith("=", position) and not found[1].isupper():
            continue  # a comparison in program code
        if option and text.startswith("-", position) and not found[2].startswith("="):
            continue  # another option follows: this one takes no value
        end = value_end(text, position, quotes, found.start())
        value = text[position:end]
        before = text[max(0, found.start() - _BEFORE) : found.start()] if option else ""
        if option and names_a_place(found[1], value, before):
            continue
        if value and is_secret(found[1], value) and not is_reference(value):
            out += [text[done:position], REDACTED]
            done = end
        position = max(position, end)
    return "".join(out) + text[done:]


def _spaced(text: str) -> str:
    """``password = "x"``: a setting if the value is a text or looks random, else program code."""

    def replace(found: re.Match[str]) -> str:
        name, equals, value = found.groups()
        bare = value.strip("\"'")
        is_text = value[0] in "\"'"
        if not is_secret_name(name, bare) or is_reference(value) or not bare:
            return found[0]
        if not is_text and not looks_random(bare):
            return found[0]
        return f"{name}{equals}{value[0] + REDACTED + value[0] if is_text else REDACTED}"

    return compiled(_SPACED).sub(replace, text)


def _fields(text: str) -> str:
    """``"password": "x"``, also with its quotes escaped, as in JSON given to a shell."""
    out, done, position = [], 0, 0
    search = compiled(_FIELD).search
    while found := search(text, position):
        if not is_secret_name(found[2], "?"):
            position = found.end(3)  # what follows may be the next field's name
            continue
        start, position = _field_value(text, found)
        if _is_secret_value(found[2], text[start:position]):
            out += [text[done:start], REDACTED]
            done = position
    return "".join(out) + text[done:]


def _is_secret_value(name: str, value: str) -> bool:
    return (
        value not in ("", "true", "false", "null", "None")
        and is_secret_name(name, value)
        and not is_reference(value)
    )


def _field_value(text: str, found: re.Match[str]) -> tuple[int, int]:
    """Where a field's value starts and ends, its quotes left out."""
    if found[5] is None:
        return found.end(3), found.end()
    start = found.end()
    return start, _field_end(text, start, found[4], found[5])


def _field_end(text: str, start: int, escape: str, quote: str) -> int:
    if escape:
        end = text.find(escape + quote, start)
        return len(text) if end < 0 else end
    body = r"(?:[^\"\\]|\\.)*+" if quote == '"' else r"(?:[^'\\]|\\.)*+"
    match = compiled(body, re.DOTALL).match(text, start)
    return match.end() if match else start


def _headers(text: str) -> str:
    """``Authorization: Bearer x``, ``X-Api-Key: x``; in plain prose only what looks random."""
    quotes = Quotes(text)
    out, done, position = [], 0, 0
    search = compiled(_HEADER).search
    while found := search(text, position):
        position = found.end()
        name = found[1].lower()
        is_header = name in _WHOLE_HEADERS or "-" in name
        if name not in _WHOLE_HEADERS and not is_secret_name(found[1], "?"):
            continue
        start = position
        if name.endswith("authorization") and (scheme := compiled(_SCHEME).match(text, start)):
            start = scheme.end()
        # A header extends to the end of its quotes; anything else ends with its word.
        end = value_end(text, start, quotes, found.start() if is_header else -1)
        position = max(position, _line_end(text, start, end))
        if _is_header_secret(name, text[start:position], is_header):
            out += [text[done:start], REDACTED]
            done = position
    return "".join(out) + text[done:]


def _is_header_secret(name: str, value: str, is_header: bool) -> bool:
    if not value.strip() or is_reference(value):
        return False
    if name.endswith("cookie"):
        return "=" in value or value == REDACTED
    return is_header or looks_random(value.strip("\"'"))


def _line_end(text: str, start: int, end: int) -> int:
    newline = text.find("\n", start, end)
    return end if newline < 0 else newline


def _bare_fields(text: str) -> str:
    quotes = Quotes(text)

    def replace(found: re.Match[str]) -> str:
        name, value = found[1], found[4]
        closes = quotes.open_at(found.start(3))[0] == found[3]
        is_secret = name.lower() == "pwd" or is_secret_name(name, value)
        if not is_secret or is_reference(value) or (closes and not found[2].endswith("\\")):
            return found[0]
        return f"{name}{found[2]}{found[3]}{REDACTED}"

    return compiled(_BARE_FIELD).sub(replace, text)


def _yaml(text: str) -> str:
    def replace(found: re.Match[str]) -> str:
        before, name, colon, value = found.groups()
        is_plain = value.lower() in _YAML_CONSTANTS or not any(c.isalnum() for c in value)
        if is_plain or _YAML_HARMLESS.fullmatch(name) or not is_secret_name(name, value):
            return found[0]
        return before + name + colon + REDACTED

    return compiled(_YAML).sub(replace, text)


def _bearers(text: str) -> str:
    def replace(found: re.Match[str]) -> str:
        return found[1] + REDACTED if looks_random(found[2], 12) else found[0]

    return compiled(_BEARER).sub(replace, text)


RULES = (
    Rule(_NAME_TRIGGERS, _fields),
    Rule(_NAME_TRIGGERS, _bare_fields),
    Rule(_NAME_TRIGGERS, _headers),
    Rule(_NAME_TRIGGERS, _yaml),
    Rule(("bearer", "basic"), _bearers),
    Rule(_NAME_TRIGGERS, _spaced),
    Rule(_NAME_TRIGGERS, _assignments),
    Rule(_NAME_TRIGGERS, _options),
)
