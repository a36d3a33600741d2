"""Which programs a run used, and their versions on this machine."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from substrate.errors import SubstrateError
from substrate.system.process import process

#: Programs known to answer `--version` at once and do nothing else. No other program is started.
_ASKABLE = frozenset(
    {
        *(
            "bash",
            "sh",
            "dash",
            "zsh",
            "make",
            "cmake",
            "ninja",
            "meson",
            "cc",
            "c++",
            "gcc",
            "g++",
        ),
        *("clang", "clang++", "ld", "ar", "rustc", "cargo", "node", "npm", "yarn", "pnpm", "deno"),
        *(
            "python",
            "python3",
            "pip",
            "pip3",
            "pytest",
            "ruff",
            "mypy",
            "uv",
            "ruby",
            "perl",
            "php",
        ),
        *("java", "javac", "mvn", "gradle", "git", "sed", "awk", "gawk", "grep", "tar", "bun"),
    }
)
_VERSION_S = 10.0
_HASHED_CAP = 512 << 20
_WORD = re.compile(r"[A-Za-z0-9_.+-]+\Z")
_SEPARATORS = re.compile(r"\|\||&&|[;|&\n()]")
#: Shell keywords and builtins, and programs that do not affect a result.
_NO_PROGRAM = frozenset(
    {
        *(
            "if",
            "then",
            "else",
            "elif",
            "fi",
            "for",
            "while",
            "until",
            "do",
            "done",
            "case",
            "esac",
        ),
        *("in", "function", "time", "exec", "eval", "cd", "echo", "export", "set", "unset", "exit"),
        *("true", "false", "test", "read", "source", "printf", "pwd", "return", "trap", "wait"),
        *("shift", "local", "alias", "type", "umask", "ulimit", "let", "break", "continue"),
    }
)


class Drift(NamedTuple):
    name: str
    recorded: str
    present: str


def programs_of(commands: Iterable[str | tuple[str, ...]]) -> list[str]:
    """The programs that commands name: the first word of each part of a line. Sorted."""
    found: set[str] = set()
    for command in commands:
        if not isinstance(command, str):
            found.add(os.path.basename(command[0]))
            continue
        for part in _SEPARATORS.split(command):
            word = _first_word(part)
            if word and _WORD.match(word) and word not in _NO_PROGRAM:
                found.add(word)
    return sorted(found)


def _first_word(part: str) -> str:
    try:
        words = shlex.split(part, comments=True)
    except ValueError:  # a quote that closes in another part
        return ""
    for word in words:
        if word in ("!", "{", "env", "sudo", "then", "do", "else", "time", "exec"):
            continue
        if re.match(r"[A-Za-z_]\w*=", word):
            continue
        return word
    return ""


def versions_of(names: Iterable[str], search_path: str, since_ns: int = 0) -> dict[str, str]:
    """The version of each program that is found: its own answer, and the hash of its file.

    A program that was changed after `since_ns` is marked: its earlier version is not known.
    """
    out = {}
    for name in names:
        where = shutil.which(name, path=search_path)
        if where is None:
            continue
        out[name] = _version(name, Path(where), search_path)
        if since_ns and _changed_ns(Path(where)) > since_ns:
            out[name] += " (changed since)"
    return out


def _version(name: str, path: Path, search_path: str) -> str:
    said = _asked(path, search_path) if name in _ASKABLE else ""
    digest = _digest(path)
    return f"{said} {digest}".strip()


def _asked(path: Path, search_path: str) -> str:
    env = {"PATH": search_path, "LC_ALL": "C", "HOME": "/nonexistent"}
    try:
        done = process.run([str(path), "--version"], env=env, timeout_s=_VERSION_S)
    except SubstrateError:
        return ""
    lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
    return lines[0][:120] if done.returncode == 0 and lines else ""


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        if path.stat().st_size > _HASHED_CAP:
            return ""
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError:
        return ""
    return f"sha256:{digest.hexdigest()[:16]}"


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_ctime_ns
    except OSError:
        return 0


def drift(recorded: Mapping[str, str], search_path: str) -> tuple[list[Drift], list[str]]:
    """What differs from the recorded versions, and the names that cannot be checked.

    A version that a user wrote into a log (`12.2`) matches any answer that contains it.
    """
    known = {name for name, version in recorded.items() if "sha256:" in version or name in _ASKABLE}
    present = versions_of(sorted(known), search_path)
    out = []
    for name in sorted(known):
        here, then = present.get(name, "not found"), recorded[name].removesuffix(" (changed since)")
        if then != here and ("sha256:" in then or then not in here):
            out.append(Drift(name, recorded[name], here))
    return out, sorted(recorded.keys() - known)
