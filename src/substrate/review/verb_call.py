"""Ask a verb of the installed command line, in a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from substrate.errors import (
    ConflictError,
    NotFoundError,
    RefusedError,
    SubstrateError,
    UsageError,
)
from substrate.system.process import process

#: A verb answers 1 for "no, different, conflict": an answer, not an error.
_ANSWERS = (0, 1)
_MOST_SECONDS = 600.0
_LIKE: dict[int, type[SubstrateError]] = {
    1: ConflictError, 2: UsageError, 4: NotFoundError, 5: RefusedError,
}  # fmt: skip


async def call_verb(words: list[str], cwd: str, variables: dict[str, str]) -> bytes:
    """The JSON document of ``substrate --json WORDS``; raises the error that it reported."""
    if any("\0" in word for word in words):
        raise UsageError("a value has a NUL character", hint="leave it out")
    argv = [*_program(), "--json", *words]
    done = await asyncio.to_thread(
        process.run, argv, cwd=Path(cwd), env=variables, timeout_s=_MOST_SECONDS
    )
    if done.returncode in _ANSWERS and done.stdout.strip():
        return done.stdout
    raise _error(done.returncode, done.stderr)


def _program() -> list[str]:
    """The program that was installed together with this interpreter."""
    installed = Path(sys.executable).parent / "substrate"
    if os.access(installed, os.X_OK):
        return [str(installed)]
    return [sys.executable, "-P", "-m", "substrate"]  # -P: not the project's own modules


def _error(status: int, stderr: bytes) -> SubstrateError:
    """The error that the command line wrote as its last line of JSON."""
    lines = stderr.decode("utf-8", "replace").splitlines()
    like = _LIKE.get(status, SubstrateError)
    for line in reversed(lines):
        if line.startswith('{"error"'):
            try:
                said = json.loads(line)["error"]
                error = like(str(said["message"]), hint=str(said["hint"]))
            except (ValueError, KeyError, TypeError):
                break
            error.kind = str(said["kind"])
            return error
    return like(" ".join(lines[-2:]) or "the command line gave no answer", hint="")
