"""Secrets in what a command writes or sends: SQL, calls in programs, ``.netrc``, manifests."""

from __future__ import annotations

import re

from substrate.trace.redact.redact_rule import Rule, compiled
from substrate.trace.redact.redact_text import REDACTED
from substrate.trace.redact.shell_words import is_reference

#: ``ALTER USER u PASSWORD 'x'``, ``CREATE USER u IDENTIFIED WITH p BY 'x'``, ``PASSWORD('x')``.
_SQL = (
    r"(?i)(\b(?:password|identified[ \t]++by|identified[ \t]++with[ \t]++\w++[ \t]++(?:by|as))"
    r"[ \t]*+(?:=[ \t]*+)?\(?(?:'\\'|'\"')?\\?['\"])([^'\"\\\n]++)"
)
_SQL_STATEMENTS = ("alter user", "alter role", "create user", "create role", "set password")
#: ``auth=('u', 'x')``, ``db.auth("u", "x")``, ``HTTPBasicAuth('u', 'x')``.
_CALL = r"(?i)(auth=?\([ \t]*+(\\?['\"])[^'\"\\\n]*+\2[ \t]*+,[ \t]*+\\?['\"])([^'\"\\\n]++)"
_NETRC = r"(\b(?:machine\s++\S++|default)\s++login\s++\S++\s++password\s++)([^\s\"']++)"
#: host:port:database:user:password, a line of ``.pgpass``.
_PGPASS = r"((?<![\w.*/-])[\w.*-]++:(?:\d++|\*):[^\s:'\"]++:[^\s:'\"]++:)([^\s'\"]++)"
_DATA = r"([ \t]*+)(?:data|stringData):[ \t]*+"
_ENTRY = r"([ \t]++)([\"']?[\w.-]++[\"']?:[ \t]++)([^\s|>].*+)"


def _values(pattern: str, text: str) -> str:
    """Replace the last group of every match."""

    def replace(found: re.Match[str]) -> str:
        value = found[found.re.groups]
        return found[0] if is_reference(value) else found[1] + REDACTED

    return compiled(pattern).sub(replace, text)


def _sql(text: str) -> str:
    lowered = text.lower()
    if "identified" not in lowered and not any(part in lowered for part in _SQL_STATEMENTS):
        return text
    return _values(_SQL, text)


def _manifests(text: str) -> str:
    """The values below ``data:`` and ``stringData:`` of a Kubernetes secret."""
    lines = text.split("\n")
    first = 0
    for at in range(len(lines) + 1):
        if at == len(lines) or lines[at].startswith("---"):
            if any(line.strip() == "kind: Secret" for line in lines[first:at]):
                lines[first:at] = _without_data(lines[first:at])
            first = at
    return "\n".join(lines)


def _without_data(lines: list[str]) -> list[str]:
    out, indent = [], -1  # of the `data:` that the line is below
    for line in lines:
        new = line
        if found := compiled(_DATA).fullmatch(line):
            indent = len(found[1])
        elif (entry := compiled(_ENTRY).fullmatch(line)) and 0 <= indent < len(entry[1]):
            new = line if is_reference(entry[3]) else entry[1] + entry[2] + REDACTED
        elif line.strip() and len(line) - len(line.lstrip()) <= indent:
            indent = -1
        out.append(new)
    return out


RULES = (
    Rule(("password", "identified"), _sql),
    Rule(("auth",), lambda text: _values(_CALL, text)),
    Rule(("password",), lambda text: _values(_NETRC, text)),
    Rule(("pgpass",), lambda text: _values(_PGPASS, text)),
    Rule(("kind: secret",), _manifests),
)
