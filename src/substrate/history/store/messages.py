"""Commit messages and ref names, composed and parsed in one place (docs/on-disk-format.md)."""

from __future__ import annotations

import re
from typing import NamedTuple

from substrate.errors import UsageError

BRANCH = "refs/heads/main"
ATTRS_REF = "refs/substrate/attrs"
RECOVERY_PREFIX = "refs/substrate/recovery/"

_SUMMARY_LENGTH = 72
_SESSION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Trailers(NamedTuple):
    """What a history commit says about itself: the ledger can be rebuilt from git alone."""

    kind: str
    command_id: str
    session_id: str | None = None
    span_id: str | None = None
    agent_id: str | None = None
    exit: int | None = None
    attrs: str = ""


_TRAILER_KEYS = {
    "kind": "Substrate-Kind",
    "command_id": "Substrate-Command",
    "session_id": "Substrate-Session",
    "span_id": "Substrate-Span",
    "agent_id": "Substrate-Agent",
    "exit": "Substrate-Exit",
    "attrs": "Substrate-Attrs",
}
_TRAILER_FIELDS = {key: field for field, key in _TRAILER_KEYS.items()}


def checked_session_id(name: str) -> str:
    """A session name becomes part of tag names, so git's rules for refs apply to it."""
    bad = ".." in name or name.endswith((".", ".lock")) or not _SESSION_NAME.fullmatch(name)
    if bad:
        raise UsageError(
            f"not a session id: {name!r}",
            hint="use letters, digits, '.', '_' and '-', at most 64 characters, e.g. s-fix-login",
        )
    return name


def checkpoint_tag(session_id: str, seq: int) -> str:
    return f"refs/tags/cp/task/{session_id}/{seq}"


def session_closed_tag(session_id: str) -> str:
    return f"refs/tags/cp/session/{session_id}/closed"


def session_squashed_tag(session_id: str) -> str:
    return f"refs/tags/cp/session/{session_id}/squashed"


def summary_of(command: str) -> str:
    """The first line of a command, printable and short enough for a commit's first line."""
    text = _printable(command.strip().split("\n", 1)[0])
    return text if len(text) <= _SUMMARY_LENGTH else text[: _SUMMARY_LENGTH - 1] + "…"


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


def subject(kind: str, session_id: str | None, command_id: str, command: str) -> str:
    """The first line of a history commit.

    command    cmd: s-1/c-7 make test
    external   cmd: external-changes
    undo, …    cmd: s-1/c-9 undo of c-7
    """
    if kind == "external":
        return "cmd: external-changes"
    if kind == "baseline":
        return f"cmd: {command_id} baseline"
    return f"cmd: {session_id or '-'}/{command_id} {summary_of(command)}".rstrip()


def checkpoint_squash_subject(session_id: str, first: str, last: str) -> str:
    return f"cp: session {session_id} [{first}..{last}] squashed"


def session_squash_subject(session_id: str) -> str:
    return f"cp: session {session_id} squashed"


def mixed_squash_subject(
    first: str, last: str, kinds: dict[str, int], session_ids: list[str], more: int
) -> str:
    """``cp: [c-1..c-9] squashed: 5 command, 4 external; sessions s-1, s-2 and 7 more``"""
    held = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    named = ", ".join(session_ids) + (f" and {more} more" if more > 0 else "")
    return f"cp: [{first}..{last}] squashed: {held}" + (f"; sessions {named}" if named else "")


def compose(subject_line: str, trailers: Trailers) -> bytes:
    lines = [subject_line, ""]
    for field, key in _TRAILER_KEYS.items():
        value = getattr(trailers, field)
        if value not in (None, ""):
            # An agent may choose any name, but it must not be able to forge another trailer.
            lines.append(f"{key}: {_printable(str(value))}")
    return ("\n".join(lines) + "\n").encode("utf-8", "surrogateescape")


def parse_trailers(message: bytes) -> Trailers | None:
    """The trailers of a history commit, or None for a commit that is not one."""
    found: dict[str, str] = {}
    for line in message.decode("utf-8", "surrogateescape").split("\n")[1:]:
        key, colon, value = line.partition(": ")
        if colon and key in _TRAILER_FIELDS:
            found[_TRAILER_FIELDS[key]] = value
    if "kind" not in found or "command_id" not in found:
        return None
    exit_text = found.get("exit", "")
    return Trailers(
        kind=found["kind"],
        command_id=found["command_id"],
        session_id=found.get("session_id"),
        span_id=found.get("span_id"),
        agent_id=found.get("agent_id"),
        exit=int(exit_text) if exit_text.isascii() and exit_text.isdigit() else None,
        attrs=found.get("attrs", ""),
    )
