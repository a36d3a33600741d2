"""The bodies of HTTP requests: checked before anything acts on them.

A body is small, flat and typed. An error names the field that is wrong. Unknown fields are
ignored, so that a newer client can talk to an older daemon.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple, TypeVar

from msgspec import Meta, Struct, ValidationError, convert

from substrate.errors import UsageError

#: A command and an environment fit many times over.
MOST_BODY_BYTES = 1024 * 1024
MOST_DEPTH = 32
_MOST_VARIABLES = 4096

_Text = Annotated[str, Meta(pattern=r"\A[^\0]*\Z")]
_Cells = Annotated[int, Meta(gt=0, lt=65536)]
_Checked = TypeVar("_Checked", bound=Struct)


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
    #: Keep the change in a held world: `substrate world` decides on it.
    hold: bool = False

    def argv(self) -> list[bytes]:
        """The arguments for `substrate` that run it."""
        options = [("--agent-id", self.agent_id), ("--session", self.session_id)]
        words = [word for name, value in options if value for word in (name, value)]
        if self.timeout_s:
            words.append(f"--timeout={self.timeout_s:g}")
        if self.hold:
            words.append("--hold")
        if self.world:
            words.append("--world" if self.world == "enabled" else "--no-world")
        words += [f"{name}={value}" for name, value in (("--isolate", self.isolate),
                                                        ("--net", self.net)) if value]  # fmt: skip
        # `-c` takes the verb's place, so its value is used as it is, even with a leading dash.
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
    body = _checked(document, _Body)
    cmd = body.cmd or ""
    if not cmd.strip():
        raise UsageError("cmd: a command is needed", hint='{"cmd": "make"}')
    return Execute(
        cmd=cmd,
        cwd=_directory(body.cwd or default_cwd),
        env=_variables(body.env or {}),
        agent_id=body.agent_id or "",
        pty=body.pty,
        session_id=body.session_id or "",
        timeout_s=body.timeout_s or 0.0,
        hold=body.hold,
        world=body.world or "",
        isolate=body.isolate or "",
        net=body.net or "",
        cols=body.cols,
        rows=body.rows,
    )


class Size(Struct):
    """A terminal's size, in cells."""

    cols: _Cells = 80
    rows: _Cells = 24


def size(document: Mapping[str, object]) -> Size:
    """A terminal's width and height; `UsageError` names the field."""
    return _checked(document, Size)


class _Body(Size):
    """What `execute` accepts; None as well as a missing field means the default."""

    cmd: _Text | None = None
    cwd: _Text | None = None
    env: Annotated[dict[str, str], Meta(max_length=_MOST_VARIABLES)] | None = None
    agent_id: _Text | None = None
    pty: bool = False
    hold: bool = False
    session_id: _Text | None = None
    timeout_s: Annotated[float, Meta(ge=0, lt=1e9)] | None = None
    world: Literal["", "enabled", "disabled"] | None = None
    isolate: Literal["", "none", "workspace", "guarded", "full"] | None = None
    net: _Text | None = None


#: For each field that is not a plain text: what it must be, and an example.
_EXPECTED = {
    "env": ("an object of texts", '{"env": {"NAME": "value"}}'),
    "pty": ("true or false", '{"pty": false}'),
    "hold": ("true or false", '{"hold": false}'),
    "timeout_s": ("a number of seconds", '{"timeout_s": 60}'),
    "world": ("one of enabled, disabled", "or leave it out"),
    "isolate": ("one of none, workspace, guarded, full", "or leave it out"),
    "cols": ("a number of cells", '{"cols": 80}'),
    "rows": ("a number of cells", '{"rows": 24}'),
}


def _checked(document: Mapping[str, object], kind: type[_Checked]) -> _Checked:
    known = {name: document[name] for name in kind.__struct_fields__ if name in document}
    for name, value in known.items():
        if isinstance(value, str):
            _check_text(name, value)
    try:
        return convert(known, kind)
    except ValidationError as error:
        # msgspec ends its message with the place: "Expected `int`, got `str` - at `$.cols`".
        name = str(error).rpartition("`$.")[2].rstrip("`").partition("[")[0]
        expected, hint = _EXPECTED.get(name, ("text without NUL", f'{{"{name}": "…"}}'))
        raise UsageError(f"{name}: {expected}", hint=hint) from None


def _check_text(name: str, text: str) -> None:
    """It can be an argument of a program: bytes that are not UTF-8 are surrogates."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        raise UsageError(f"{name}: not valid text", hint="no lone surrogates") from None


def _directory(path: str) -> str:
    if not path.startswith("/"):
        raise UsageError("cwd: an absolute path", hint='{"cwd": "/home/me/project"}')
    if not os.path.isdir(path):
        raise UsageError(f"cwd: {path} is not a directory", hint="name one that is there")
    return path


def _variables(found: dict[str, str]) -> dict[str, str]:
    for name, value in found.items():
        if not name or "=" in name or "\0" in name + value:
            raise UsageError(f"env: {name!r} is not a variable", hint='{"env": {"NAME": "value"}}')
        _check_text(name, value)
    return found
