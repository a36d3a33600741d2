"""Every git that the product starts, in any process of any test, is recorded and checked.

Our own `git` is first on the PATH of the whole suite. Calls of the product are recognised by
``--no-pager``, which the product always uses and the tests never do.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LOG = "calls"


def forbidden(words: list[str]) -> bool:
    """Whether this may throw a user's work away (docs/architecture.md, law 1)."""
    name, rest = _subcommand(words)
    if name in ("clean", "stash"):
        return True
    if name == "reset":
        return "--hard" in rest or "--merge" in rest or "--keep" in rest
    if name in ("checkout", "switch", "checkout-index", "read-tree"):
        flags = {word for word in rest if word.startswith("-")}
        short = {letter for f in flags if not f.startswith("--") for letter in f[1:]}
        return bool(flags & {"--force", "--discard-changes", "--reset"}) or "f" in short
    if name == "add":
        return bool({"-A", "--all", "-u", "--update", "."} & set(rest))
    return name == "restore"


def _subcommand(words: list[str]) -> tuple[str, list[str]]:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in ("-c", "-C") else 1
    return (words[at], words[at + 1 :]) if at < len(words) else ("", [])


def calls(directory: Path) -> list[list[str]]:
    """The product's calls so far, word by word."""
    try:
        text = (directory / _LOG).read_text("utf-8", "surrogateescape")
    except FileNotFoundError:
        return []
    return [line.split("\x1f") for line in text.split("\x1e\n") if line]


@contextmanager
def watching(directory: Path) -> Iterator[None]:
    """Put the watching `git` in front; fail afterwards if one of its calls was forbidden."""
    real = shutil.which("git")
    if real is None or os.name != "posix":
        yield
        return
    wrapper = directory / "git"
    wrapper.write_text(
        f"""#!/bin/sh
if [ "$1" = --no-pager ]; then
  IFS=$(printf '\\037')
  printf '%s\\036\\n' "$*" >> '{directory / _LOG}'
  unset IFS
fi
exec '{real}' "$@"
"""
    )
    wrapper.chmod(0o755)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{directory}{os.pathsep}{before}"
    try:
        yield
    finally:
        os.environ["PATH"] = before
    bad = [" ".join(words) for words in calls(directory) if forbidden(words)]
    assert not bad, "the product ran:\n" + "\n".join(bad[:5])
