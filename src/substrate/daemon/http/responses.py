"""How a command's record, or an error, is written as an HTTP answer."""

from __future__ import annotations

import json
from collections.abc import Mapping

from substrate.daemon.http.http_command import Ended
from substrate.daemon.http.http_limits import BusyError
from substrate.errors import (
    EXIT_RUN_FAILED,
    MissingDependencyError,
    NotFoundError,
    RefusedError,
    SubstrateError,
    UsageError,
)

Document = dict[str, object]

#: The fields of a span that are part of the answer.
_OF_SPAN = (
    *("span_id", "command_id", "session_id", "scopes_used", "fs_diff", "substrate_git_commit"),
    *(
        "net_failed",
        "net_denied",
        "fs_denied",
        "isolation",
        "outcome",
        "duration_ms",
        "conflicts",
        "held",
        "held_causes",
        "world_id",
    ),
)
_STATUS: tuple[tuple[type[SubstrateError], int], ...] = (
    (UsageError, 400),
    (NotFoundError, 404),
    (BusyError, 429),
    (RefusedError, 409),
    (MissingDependencyError, 501),
)


def answer(ended: Ended, notes: str) -> Document:
    """The record of a command that ran; raises the error if it did not run. `notes`: what
    Substrate itself wrote."""
    if ended.span is None:
        raise _told_on(notes) or SubstrateError(
            f"the command was not run (status {ended.status})", hint="see the daemon's log"
        )
    return {"exit": ended.status, **{name: ended.span.get(name) for name in _OF_SPAN}}


def started(span: Mapping[str, object]) -> Document:
    return {name: span.get(name) for name in ("span_id", "command_id", "session_id", "isolation")}


def own_answer(ended: Ended, stdout: bytes, notes: str) -> bytes:
    """The command line's answer with `--json`; raises the error that it reported."""
    if not stdout.strip() or ended.status == EXIT_RUN_FAILED:
        raise _told_on(notes) or SubstrateError("there is no answer", hint="see the daemon's log")
    return stdout


def _told_on(notes: str) -> SubstrateError | None:
    """The error that the command line wrote as JSON, after the text for people."""
    for line in reversed(notes.split("\n")):
        if line.startswith('{"error"'):
            try:
                said = json.loads(line)["error"]
                error = _like(str(said["kind"]))(str(said["message"]), hint=str(said["hint"]))
            except (ValueError, KeyError, TypeError):
                continue
            error.kind = str(said["kind"])
            return error
    return None


def _like(kind: str) -> type[SubstrateError]:
    for known, _ in _STATUS:
        if kind in (known.kind, *(sub.kind for sub in known.__subclasses__())):
            return known
    return SubstrateError
