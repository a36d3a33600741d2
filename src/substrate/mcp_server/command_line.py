"""Call the installed command line and read its JSON answer."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from substrate.errors import SubstrateError
from substrate.system.process import process

Document = dict[str, Any]
#: A verb answers 1 for "no, different, conflict": an answer, not an error.
_ANSWERS = (0, 1)
_MOST_SECONDS = 600.0


class RefusedCallError(Exception):
    """The command line reported an error: its kind, message and hint."""

    def __init__(self, kind: str, message: str, hint: str) -> None:
        super().__init__(f"{message}. Hint: {hint}" if hint else message)
        self.kind = kind


class CommandLine:
    """`substrate` and `ctx` in one project, with the caller's environment."""

    def __init__(self, project: Path, variables: Mapping[str, str]) -> None:
        self.project = project
        self.variables = dict(variables)

    def substrate(self, *words: str) -> Document:
        """Run ``substrate --json WORDS``; raises `RefusedCallError`."""
        return self._ask("substrate", words)

    def ctx(self, *words: str) -> Document:
        return self._ask("ctx", words)

    def text(self, *words: str) -> str:
        """What ``substrate WORDS`` prints for people, without colour."""
        done = self._run("substrate", words, {"NO_COLOR": "1", "COLUMNS": "0"})
        if done.returncode not in _ANSWERS:
            raise _error(done.stderr)
        return done.stdout.decode("utf-8", "replace")

    def _ask(self, program: str, words: Sequence[str]) -> Document:
        done = self._run(program, ("--json", *words), {})
        if done.returncode not in _ANSWERS or not done.stdout.strip():
            raise _error(done.stderr)
        found = json.loads(done.stdout)
        return found if isinstance(found, dict) else {"answer": found}

    def _run(
        self, program: str, words: Sequence[str], extra: Mapping[str, str]
    ) -> process.Completed:
        env = {**self.variables, **extra}
        argv = [*_program(program), *words]
        if any("\0" in word for word in words):
            raise RefusedCallError(
                "usage", "an argument has a NUL character", "leave the NUL character out"
            )
        try:
            return process.run(argv, cwd=self.project, env=env, timeout_s=_MOST_SECONDS)
        except SubstrateError as error:
            raise RefusedCallError(error.kind, error.message, error.hint) from error


def _program(name: str) -> list[str]:
    """The program that was installed together with this interpreter."""
    installed = Path(sys.executable).parent / name
    if os.access(installed, os.X_OK):
        return [str(installed)]
    if name == "substrate":
        return [sys.executable, "-P", "-m", "substrate"]  # -P: not the project's own modules
    start = "import sys; from substrate.cli.ctx import ctx; sys.exit(ctx())"
    return [sys.executable, "-P", "-c", start]


def _error(stderr: bytes) -> RefusedCallError:
    """The error that the command line wrote as its last line of JSON."""
    lines = stderr.decode("utf-8", "replace").splitlines()
    for line in reversed(lines):
        if line.startswith('{"error"'):
            try:
                found = json.loads(line)["error"]
                return RefusedCallError(found["kind"], found["message"], found["hint"] or "")
            except (ValueError, KeyError, TypeError):
                break
    message = " ".join(lines[-2:]) or "the command line gave no answer"
    return RefusedCallError("unknown", message, "")
