"""The tool `shell`, under every name and with every spelling of its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from substrate.packs.tools.registry import (
    Parameters,
    Produced,
    ShellCall,
    ShellDone,
    ToolContext,
    ToolError,
    ToolResult,
    number_of,
    text_of,
)

#: Outputs above this size are compared as they are, not in the formats of each agent.
_FORMS_CAP = 1 << 20
_COMMAND_NOT_FOUND = 127
#: The status that agents report for a command that they ended: 128 + SIGTERM.
_ENDED = 143


def shell(context: ToolContext, name: str, parameters: Parameters) -> ToolResult:
    """Run a command in the tree; what it prints on stdout is the result."""
    done = context.run(_call(context, parameters))
    if done.problem and not done.is_not_started:
        raise ToolError(done.problem)
    if done.timed_out and "killed_after_ms" in parameters:  # as the agent did
        done = done._replace(exit=_ENDED)
    elif done.timed_out:
        raise ToolError(f"the command did not end within {_timeout(context, parameters):g} s")
    # The `shell` of a log records only stdout; agents merge stderr into it, and so does a command
    # recorded with `2>&1`.
    also: tuple[bytes, ...] = ()
    if name != "shell":
        also = _agent_forms(done)
    elif "stderr" in parameters and done.merged.stat().st_size <= _FORMS_CAP:
        also = (done.merged.read_bytes(),)
    return ToolResult(
        Produced(path=done.stdout), also, exit=done.exit, scopes=done.scopes,
        stderr=_head(done.stderr, 4096), not_started=done.problem,
    )  # fmt: skip


def is_missing_program(result: ToolResult) -> bool:
    """Whether the shell found no such command."""
    return result.exit == _COMMAND_NOT_FOUND


def _call(context: ToolContext, parameters: Parameters) -> ShellCall:
    return ShellCall(
        _command(parameters),
        text_of(parameters, "cwd", "workdir", "working_directory", "directory", "dir_path",
                default=""),
        _variables(parameters),
        text_of(parameters, "stdin", default="").encode("utf-8", "surrogateescape"),
        _timeout(context, parameters),
        context.limits.output_bytes,
        _umask(parameters),
    )  # fmt: skip


def _command(parameters: Parameters) -> str | tuple[str, ...]:
    for name in ("command", "cmd"):
        value = parameters.get(name)
        if isinstance(value, str):
            if not value.strip():
                raise ToolError(f"parameter {name} is empty")
            return value
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            return tuple(value)
        if value is not None:
            raise ToolError(f"parameter {name} is neither a string nor a list of strings")
    raise ToolError("parameter command is missing")


def _variables(parameters: Parameters) -> Mapping[str, str] | None:
    env = parameters.get("env")
    if env is None:
        return None
    if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
        raise ToolError("parameter env is not an object of strings")
    if any("\0" in name + value or "=" in name or not name for name, value in env.items()):
        raise ToolError("parameter env has a variable that cannot be set")
    return env


def _umask(parameters: Parameters) -> int | None:
    text = text_of(parameters, "umask", default="")
    try:
        return int(text, 8) if text else None
    except ValueError:
        raise ToolError("parameter umask is not an octal number") from None


def _timeout(context: ToolContext, parameters: Parameters) -> float:
    """The replay's own timeout: the agent's value does not suit this machine's speed.

    Unless the agent's timeout ended the command: then it ends after the same time here.
    """
    number_of(parameters, "timeout_s")
    killed_ms = number_of(parameters, "killed_after_ms")
    own = context.limits.timeout_s
    return min(killed_ms / 1000, own) if killed_ms and killed_ms > 0 else own


def _agent_forms(done: ShellDone) -> tuple[bytes, ...]:
    """The same output in the formats of agents: with stderr, without last newline, with status.

    Claude Code, exit 3:   Exit code 3\nfirst line…
    """
    paths = (done.stdout, done.stderr, done.merged)
    if any(path.stat().st_size > _FORMS_CAP for path in paths):
        return ()
    out, err, merged = (path.read_bytes() for path in paths)
    plain = [merged, out, out + err, err + out, out.rstrip(b"\n") + b"\n" + err]
    forms = []
    for text in plain:
        for form in (text, text.rstrip(b"\n"), text.strip(b"\n"), text.rstrip()):
            forms.append(form)
            if done.exit:
                forms.append(b"Exit code %d\n" % done.exit + form)
    if done.exit:
        forms.append(b"Exit code %d" % done.exit)
    if not merged.strip():
        forms += [b"(Bash completed with no output)", b"(no content)", b"(empty)"]
    return tuple(dict.fromkeys(forms))


def _head(path: Path, limit: int) -> bytes:
    with path.open("rb") as file:
        return file.read(limit)
