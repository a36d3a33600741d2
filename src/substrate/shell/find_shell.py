"""Finds the user's own shell, and prepares its start files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import NamedTuple

from substrate.errors import MissingDependencyError
from substrate.shell.bash_hooks import bash_rc
from substrate.shell.zsh_hooks import zsh_files
from substrate.system import Environment


class ShellProgram(NamedTuple):
    argv: tuple[bytes, ...]
    variables: dict[str, str]


def find(environment: Environment) -> str:
    """zsh if ``$SHELL`` says so, else bash."""
    wanted = environment.get("SHELL") or ""
    if os.path.basename(wanted) == "zsh" and (found := shutil.which(wanted)):
        return found
    bash = shutil.which("bash")
    if bash is None:
        raise MissingDependencyError("the shell needs bash 4.4 or later", hint="install bash")
    return bash


def prepare(path: str, directory: Path, pid: int | None, environment: Environment) -> ShellProgram:
    """Write its start files; `pid` is as in `hooks.bash_rc`."""
    program = os.fsencode(path)
    if os.path.basename(path) == "zsh":
        own = environment.get("ZDOTDIR") or ""
        for name, text in zsh_files(directory, pid, own).items():
            (directory / name).write_bytes(os.fsencode(text))
        return ShellProgram((program, b"-i"), {"ZDOTDIR": str(directory)})
    rc = directory / "rc"
    rc.write_bytes(os.fsencode(bash_rc(directory, pid)))
    return ShellProgram((program, b"--rcfile", os.fsencode(rc), b"-i"), {})
