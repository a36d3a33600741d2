"""The bodies of HTTP requests: checked before anything acts on them.

A body is small, flat and typed. What is wrong is named; what is unknown is let be, so that a
newer client can talk to an older agent.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import NamedTuple

from substrate.errors import UsageError

#: A command and an environment fit many times over.
MOST_BODY_BYTES = 1024 * 1024
MOST_DEPTH = 32
_MOST_VARIABLES = 4096


class Execute(NamedTuple):
    """What to run: ``{cmd, cwd, env, pty, agent_id}`` and a few more, all but `cmd` optional."""

    cmd: str
    cwd: str
    env: Mapping[str, str]
    agent_id: str
    pty: bool = False
    session_id: str = ""
    timeout_s: float = 0.0
    #: ``enabled``, ``disabled`` or empty, as in SUBSTRATE_WORLD.
    world: str = ""
    isolate: str = ""
    net: str = ""
    cols: int = 80
    rows: int = 24

    def argv(self) -> list[bytes]:
        """The words for `substrate` that run it."""
        options = [("--agent-id", self.agent_id), ("--session", self.session_id)]
        words = [word for name, value in options if value for word in (name, value)]
        if self.timeout_s:
            words.append(f"--timeout={self.timeout_s:g}")
        if self.world:
            words.append("--world" if self.world == "enabled" else "--no-world")
        words += [f"{name}={value}" for name, value in (("--isolate", self.isolate),
                                                        ("--net", self.net)) if value]  # fmt: skip
        # `-c` stands for the verb: its value is then taken as it is, dash or not.
        return [os.fsencode(word) for word in (*words, "--json", "-c", self.cmd)]


def parse_json(body: bytes) -> dict[str, object]:
    """The document, if it is an object of reasonable shape; `UsageError` otherwise."""
    if len(body) > MOST_BODY_BYTES:
        raise UsageError("the body is too large", hint=f"at most {MOST_BODY_BYTES} bytes")
    if _depth(body) > MOST_DEPTH:
        raise UsageError("the document is nested too deeply", hint="an object of plain values")
    try:
        found = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise UsageError("the body is not JSON", hint='for example {"cmd": "make"}') from None
    if not isinstance(found, dict):
        raise UsageError("the body is not a JSON object", hint='for example {"cmd": "make"}')
    return found


def _no_constant(name: str) -> object:
    raise ValueError(name)


def _depth(body: bytes) -> int:
    """How deep brackets nest outside strings: found without recursion, before parsing."""
    depth = deepest = 0
    for piece in _outside_strings(body):
        for byte in piece:
            if byte in b"[{":
                depth += 1
                deepest = max(deepest, depth)
            elif byte in b"]}":
                depth -= 1
        if deepest > MOST_DEPTH:
            break
    return deepest


def _outside_strings(body: bytes) -> list[bytes]:
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    return plain.split(b'"')[::2]


def execute(document: Mapping[str, object], default_cwd: str) -> Execute:
    """The request of ``/v1/execute`` and of a stream's `start`; `UsageError` names the field."""
    cmd = _text(document, "cmd")
    if not cmd.strip():
        raise UsageError("cmd: a command is needed", hint='{"cmd": "make"}')
    return Execute(
        cmd=cmd,
        cwd=_directory(_text(document, "cwd") or default_cwd),
        env=_variables(document.get("env")),
        agent_id=_text(document, "agent_id"),
        pty=_flag(document, "pty"),
        session_id=_text(document, "session_id"),
        timeout_s=_seconds(document, "timeout_s"),
        world=_one_of(document, "world", ("", "enabled", "disabled")),
        isolate=_one_of(document, "isolate", ("", "none", "workspace", "guarded", "full")),
        net=_text(document, "net"),
        cols=size(document, "cols", 80),
        rows=size(document, "rows", 24),
    )


def size(document: Mapping[str, object], name: str, otherwise: int) -> int:
    """A terminal's width or height."""
    found = document.get(name, otherwise)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 < found < 65536:
        raise UsageError(f"{name}: a number of cells", hint=f'{{"{name}": {otherwise}}}')
    return found


def _text(document: Mapping[str, object], name: str) -> str:
    found = document.get(name)
    if found is None:
        return ""
    if not isinstance(found, str) or "\0" in found:
        raise UsageError(f"{name}: text without NUL", hint=f'{{"{name}": "…"}}')
    try:
        os.fsencode(found)
    except UnicodeEncodeError:
        raise UsageError(f"{name}: not valid text", hint="no lone surrogates") from None
    return found


def _directory(path: str) -> str:
    if not path.startswith("/"):
        raise UsageError("cwd: an absolute path", hint='{"cwd": "/home/me/project"}')
    if not os.path.isdir(path):
        raise UsageError(f"cwd: {path} is not a directory", hint="name one that is there")
    return path


def _variables(found: object) -> dict[str, str]:
    if found is None:
        return {}
    if not isinstance(found, dict) or len(found) > _MOST_VARIABLES:
        raise UsageError("env: an object of texts", hint='{"env": {"NAME": "value"}}')
    for name, value in found.items():
        if not isinstance(value, str) or not name or "=" in name or "\0" in name + value:
            raise UsageError(f"env: {name!r} is not a variable", hint='{"env": {"NAME": "value"}}')
        _text({name: value}, name)
    return dict(found)


def _flag(document: Mapping[str, object], name: str) -> bool:
    found = document.get(name, False)
    if not isinstance(found, bool):
        raise UsageError(f"{name}: true or false", hint=f'{{"{name}": false}}')
    return found


def _seconds(document: Mapping[str, object], name: str) -> float:
    found = document.get(name) or 0
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 1e9:
        raise UsageError(f"{name}: a number of seconds", hint=f'{{"{name}": 60}}')
    return float(found)


def _one_of(document: Mapping[str, object], name: str, words: tuple[str, ...]) -> str:
    found = _text(document, name)
    if found not in words:
        raise UsageError(f"{name}: one of {', '.join(words[1:])}", hint="or leave it out")
    return found
