"""A user's own tools: executables that read one JSON document and write one.

``.ctx/config.json``::

    {"tools": {"lookup": {"command": ["tools/lookup.py", "--offline"]}}}

stdin:   {"protocol": 1, "tool": "lookup", "parameters": {…}, "tree": "/tmp/…", "root": "/home/…"}
stdout:  {"output": "text"}   or {"output_b64": "…"}   or {"error": "why not"}

A tool is trusted: it runs in the replayed tree, as the current user, outside the world. A command
with a slash is relative to the project's directory. An exit status other than 0 is a failure.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Mapping
from pathlib import Path

from substrate.errors import UsageError
from substrate.packs.tools.registry import (
    Parameters,
    Produced,
    ShellCall,
    Tool,
    ToolContext,
    ToolError,
    ToolResult,
)

PROTOCOL = 1
#: The most bytes of an answer: it is kept in memory.
_ANSWER_CAP = 256 << 20


def own_tools(config: Mapping[str, object], project: Path) -> dict[str, Tool]:
    """The tools that a store's configuration registers; `UsageError` says what is wrong there."""
    found = config.get("tools", {})
    if not isinstance(found, dict):
        raise _wrong("tools", "is not an object")
    return {name: _tool(name, said, project) for name, said in found.items()}


def _tool(name: str, said: object, project: Path) -> Tool:
    if not isinstance(said, dict):
        raise _wrong(f"tools.{name}", "is not an object")
    command = said.get("command")
    if isinstance(command, str):
        command = [command]
    if not isinstance(command, list) or not command or not all(isinstance(w, str) for w in command):
        raise _wrong(f"tools.{name}.command", "is not a list of strings")
    program = command[0]
    if os.sep in program:
        program = str(project / program)
    argv = (program, *command[1:])

    def tool(context: ToolContext, called: str, parameters: Parameters) -> ToolResult:
        return _ask(context, called, parameters, argv)

    return tool


def _ask(
    context: ToolContext, name: str, parameters: Parameters, argv: tuple[str, ...]
) -> ToolResult:
    question = {
        "protocol": PROTOCOL,
        "tool": name,
        "parameters": parameters,
        "tree": str(context.tree.directory),
        "root": context.tree.recorded_root,
    }
    done = context.run(
        ShellCall(
            argv, stdin=json.dumps(question, ensure_ascii=True, sort_keys=True).encode(),
            timeout_s=context.limits.timeout_s,
            output_bytes=min(_ANSWER_CAP, context.limits.output_bytes), outside=True,
        )
    )  # fmt: skip
    if done.problem:
        raise ToolError(f"{name}: {done.problem}")
    if done.timed_out:
        raise ToolError(f"{name} did not answer within {context.limits.timeout_s:g} s")
    if done.exit != 0:
        said = done.stderr.read_bytes()[-2000:].decode("utf-8", "replace").strip()
        last = said.splitlines()[-1] if said else "it said nothing on stderr"
        raise ToolError(f"{name} exited with status {done.exit}: {last}")
    return ToolResult(Produced(_answer(name, done.stdout.read_bytes())))


def _answer(name: str, raw: bytes) -> bytes:
    try:
        said = json.loads(raw)
    except (ValueError, RecursionError):
        raise ToolError(f"{name} did not answer with a JSON document") from None
    if not isinstance(said, dict):
        raise ToolError(f"{name} did not answer with a JSON object")
    if "error" in said:
        raise ToolError(f"{name}: {said['error']}")
    if isinstance(said.get("output"), str):
        output: str = said["output"]
        return output.encode("utf-8", "surrogatepass")
    if isinstance(said.get("output_b64"), str):
        try:
            return base64.b64decode(said["output_b64"], validate=True)
        except (ValueError, binascii.Error):
            raise ToolError(f"{name}: output_b64 is not base64") from None
    raise ToolError(f"{name} answered without output, output_b64 or error")


def _wrong(field: str, what: str) -> UsageError:
    return UsageError(
        f".ctx/config.json: {field} {what}",
        hint='{"tools": {"NAME": {"command": ["PROGRAM", "ARG"]}}}; see docs/REPLAY.md',
    )
