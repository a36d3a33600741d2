"""Build the two lines of a command's span, with every field that readers rely on.

Nothing here reads a clock or makes an id: the recorder says what happened, and this module formats
it. Command text and environment pass through `redact` here and nowhere else.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from substrate.model import RelPath, to_text
from substrate.system import clock
from substrate.trace.fs_diff_record import FsDiff, absolute_texts, relative_texts
from substrate.trace.redact import REDACTED, redact, redact_argv

#: The most paths in one line. A line that leaves paths out says ``truncated``; the history commit
#: has the whole change.
SHOWN_PATHS = 20_000

#: Variables that commonly influence a command and do not normally hold secrets.
REPLAYED_VARIABLES = (
    *("PATH", "HOME", "SHELL", "TERM", "TMPDIR", "TZ", "CI", "EDITOR", "PAGER", "NO_COLOR"),
    *("LANG", "LC_ALL", "LC_CTYPE", "LC_COLLATE", "LC_MESSAGES", "LC_NUMERIC", "LC_TIME"),
    *("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHASHSEED", "NODE_ENV", "NODE_OPTIONS", "GOFLAGS"),
    *("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "MAKEFLAGS", "RUSTFLAGS", "JAVA_HOME"),
    "SOURCE_DATE_EPOCH",
)


#: (strategy, tier, network, reason), as `substrate.world.interface.Isolation` holds them.
Isolation = tuple[str, str, str, str]
_ISOLATION_FIELDS = ("strategy", "tier", "network", "reason")


class Command(NamedTuple):
    """What runs where, and for which session: known before the start, equal in both lines."""

    session_id: str
    command_id: str
    span_id: str
    parent_span: str | None
    agent_id: str
    workspace: Path
    cwd: Path
    #: The program and its arguments, or else `shell`.
    argv: Sequence[str | bytes] = ()
    #: The line given to the shell.
    shell: str | bytes = ""


class Output(NamedTuple):
    """What a stream contained; all `None` if it was not captured."""

    sha256: str | None = None
    bytes: int | None = None
    ref: str | None = None


class Completion(NamedTuple):
    """How the command ended."""

    ended_ns: int
    #: `None` if unknown.
    exit: int | None
    duration_ms: int
    fs_diff: FsDiff
    isolation: Isolation
    #: Hex; `None` if nothing changed, or there is no history here.
    substrate_git_commit: str | None
    base_commit: str | None
    #: ``completed``, ``timed_out``, ``killed``, ``not_started``, ``detached``, …
    outcome: str
    scopes_used: Sequence[str] = ()
    #: Hosts that it tried to reach and was refused.
    net_denied: Sequence[str] = ()
    #: Hosts that it was allowed to reach, but could not.
    net_failed: Sequence[str] = ()
    #: Paths that the tier refused to change, each with the system call; None: not observed.
    fs_denied: Sequence[tuple[bytes, str]] | None = None
    #: Why the list may be incomplete; empty if it is complete.
    fs_denied_notice: str = ""
    conflicts: Sequence[RelPath] = ()
    stdout: Output = Output()
    stderr: Output = Output()
    #: Further fields of the line.
    extra: Mapping[str, object] = {}


def command_start(
    command: Command,
    started_ns: int,
    isolation: Isolation,
    extra: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """The line written before the command runs."""
    fields, encoded = _common(command)
    span: dict[str, object] = {
        "ts": clock.iso(started_ns),
        "event_type": "command_start",
        **fields,
        "isolation": _isolation(isolation),
    }
    return _finish(span, extra or {}, encoded)


def command_complete(
    command: Command, completion: Completion, replay_context: Mapping[str, object]
) -> dict[str, object]:
    """The line written after the command; readers do not need the first line as well."""
    fields, encoded = _common(command)
    shown = completion.fs_diff.shown(SHOWN_PATHS)
    changed = completion.fs_diff.recorded_paths()
    changed_files, encoded_changed = relative_texts(changed[:SHOWN_PATHS])
    diff: dict[str, object] = {}
    for name in ("writes", "mods", "deletes"):
        diff[name], _ = absolute_texts(command.workspace, getattr(shown, name))
    if shown.excluded:
        diff["excluded"], _ = absolute_texts(command.workspace, shown.excluded)
    # Two lists within the limit can exceed it together.
    diff["truncated"] = shown.truncated or len(changed) > SHOWN_PATHS
    conflicts, encoded_conflicts = relative_texts(completion.conflicts)
    span: dict[str, object] = {
        "ts": clock.iso(completion.ended_ns),
        "event_type": "command_complete",
        **fields,
        "exit": completion.exit,
        "duration_ms": completion.duration_ms,
        "changed_files": changed_files,
        "fs_diff": diff,
        "scopes_used": [redact(scope) for scope in completion.scopes_used],
        "substrate_git_commit": completion.substrate_git_commit,
        "base_commit": completion.base_commit,
        "isolation": _isolation(completion.isolation),
        "stdout": completion.stdout._asdict(),
        "stderr": completion.stderr._asdict(),
        "replay_context": dict(replay_context),
        "conflicts": conflicts,
        "outcome": completion.outcome,
    }
    if completion.net_denied:
        span["net_denied"] = [redact(scope) for scope in completion.net_denied]
    if completion.net_failed:
        span["net_failed"] = [redact(scope) for scope in completion.net_failed]
    if completion.fs_denied is not None:
        span |= fs_denied_fields(completion.fs_denied, completion.fs_denied_notice)
    if diff["truncated"]:
        span["changed_total"] = len(changed)
    return _finish(span, completion.extra, encoded or encoded_changed or encoded_conflicts)


def fs_denied_fields(denied: Sequence[tuple[bytes, str]], notice: str) -> dict[str, object]:
    """The writes that a tier refused, and whether these are all."""
    listed = [{"path": redact(to_text(path)[0]), "call": call} for path, call in denied]
    fields: dict[str, object] = {"fs_denied": listed, "fs_denied_complete": not notice}
    return fields | ({"fs_denied_notice": notice} if notice else {})


def replay_context(
    command: Command, variables: Mapping[str, str], *, umask: int, stdin: str
) -> dict[str, object]:
    """What else is needed to repeat the command, as far as it may be recorded.

    Of the environment only a small known set, redacted like everything else; `stdin` is a kind
    of file as `system.process.stdin_kind` names it.
    """
    context: dict[str, object] = {}
    if command.argv:
        context["argv"] = redact_argv([_text(arg)[0] for arg in command.argv])
    else:
        context["shell"] = redact(_text(command.shell)[0])
    context["env"] = {
        name: redact(_text(variables[name])[0]) for name in REPLAYED_VARIABLES if name in variables
    }
    context["umask"] = f"{umask:04o}"
    context["stdin"] = stdin
    return context


def command_text(command: Command) -> str:
    """The command as one redacted line of text, as ``log`` and the span show it."""
    return _command(command)[0]


def _common(command: Command) -> tuple[dict[str, object], bool]:
    workspace, encoded_workspace = to_text(os.fsencode(command.workspace))
    cwd, encoded_cwd = to_text(os.fsencode(command.cwd))
    text, encoded_text = _command(command)
    fields: dict[str, object] = {
        "session_id": command.session_id,
        "command_id": command.command_id,
        "span_id": command.span_id,
        "parent_span": command.parent_span,
        "agent_id": command.agent_id,
        "workspace": workspace,
        "cwd": cwd,
        "command": text,
    }
    return fields, encoded_workspace or encoded_cwd or encoded_text


def _command(command: Command) -> tuple[str, bool]:
    if not command.argv:
        text, encoded = _text(command.shell)
        return redact(text), encoded
    texts = [_text(arg) for arg in command.argv]
    return (
        " ".join(_quoted(arg) for arg in redact_argv([text for text, _ in texts])),
        any(encoded for _, encoded in texts),
    )


def _quoted(argument: str) -> str:
    from shlex import quote

    # The redaction mark is not a shell pattern: leave it unquoted and readable.
    return argument if quote(plain := argument.replace(REDACTED, "x")) == plain else quote(argument)


def _text(raw: str | bytes) -> tuple[str, bool]:
    return to_text(os.fsencode(raw))


def _isolation(isolation: Isolation) -> dict[str, object]:
    return dict(zip(_ISOLATION_FIELDS, isolation, strict=True))


def _finish(
    span: dict[str, object], extra: Mapping[str, object], encoded: bool
) -> dict[str, object]:
    for name, value in extra.items():
        span.setdefault(name, _clean(value))
    if encoded:
        span["encoded"] = True
    return span


def _clean(value: object) -> object:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {name: _clean(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(inner) for inner in value]
    return value
