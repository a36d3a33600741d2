"""Remove a text from spans that are already written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from substrate.model import ForgetRule
from substrate.system.files import write_atomic
from substrate.system.sync import FileLock
from substrate.trace.writer import KEPT_FILES, encode, lock_file

_PATIENCE_S = 10.0


def forget(trace: Path, rule: ForgetRule, *, dry_run: bool) -> int:
    """Replace the secret in the trace and its rotated files; return how many spans had it."""
    rotation = FileLock(trace.with_name(trace.name + ".lock"))
    rotation.acquire(_PATIENCE_S, "forgetting")
    try:
        return sum(_forget_in(path, rule, dry_run=dry_run) for path in _files(trace))
    finally:
        rotation.release()


def _files(trace: Path) -> Iterable[Path]:
    names = [trace, *(trace.with_name(f"{trace.name}.{n}") for n in range(1, KEPT_FILES + 1))]
    return [path for path in names if path.is_file()]


def _forget_in(path: Path, rule: ForgetRule, *, dry_run: bool) -> int:
    """Writers wait for the lock, then notice that the file was replaced and open the new one."""
    fd = os.open(path, os.O_RDWR)
    try:
        lock_file(fd)
        with open(fd, "rb", closefd=False) as file:
            lines = file.readlines()
        found = [n for n, line in enumerate(lines) if rule.is_in_json(line)]
        if found and not dry_run:
            for n in found:
                lines[n] = _scrubbed(lines[n], rule)
            write_atomic(path, b"".join(lines))
        return len(found)
    finally:
        os.close(fd)


def _scrubbed(line: bytes, rule: ForgetRule) -> bytes:
    try:
        span = json.loads(line)
    except ValueError:  # torn by a kill
        return rule.scrubbed(line)
    changed = rule.scrubbed_json(span)
    return encode(changed) if isinstance(changed, dict) else rule.scrubbed(line)
