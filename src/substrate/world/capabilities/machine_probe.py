"""What this machine can do, found by trying, and how to enable the rest.

The findings are kept for as long as the machine runs: `$SUBSTRATE_HOME/probe.json` names the
boot, the user and the kernel they were found under. If a feature that worlds need does not work,
they are kept for minutes only: the cause may have been a lack of space, memory or processes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from substrate import __version__
from substrate.errors import SubstrateError
from substrate.system import clock, environment
from substrate.system.files import files
from substrate.system.process import process_identity

#: Without these there is no world, or not the best one.
_WANTED = frozenset({"overlay", "network"})
_DOUBTED_AFTER_NS = 600 * 1_000_000_000


class Finding(NamedTuple):
    """One strategy or feature: whether it works here; if not, why, and the command that helps."""

    name: str
    works: bool
    why: str = ""
    fix: str = ""
    #: What else is worth knowing: a version, a variant.
    detail: str = ""


def probe(*, fresh: bool = False) -> list[Finding]:
    """Every finding, strategies first. `fresh` tries again instead of using the last findings."""
    home = environment.current().substrate_home
    if not fresh:
        known = _remembered(home)
        if known is not None:
            return known
    from substrate.world.capabilities import probes

    found = [_tried(look) for look in probes.ALL]
    _remember(home, found)
    return found


def _tried(look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except ImportError as error:  # a Python that was built without ctypes
        return Finding(look.__name__.replace("_", "-"), False, str(error))


def finding(name: str, findings: Iterable[Finding] | None = None) -> Finding:
    """The finding of that name; one that does not work if there is none."""
    for found in probe() if findings is None else findings:
        if found.name == name:
            return found
    return Finding(name, False, "not looked at yet")


def _key() -> dict[str, object]:
    return {
        "boot": process_identity.boot_id(),
        "uid": os.geteuid() if hasattr(os, "geteuid") else 0,
        "kernel": os.uname().release if hasattr(os, "uname") else sys.platform,
        "version": __version__,
        # A container shares the boot and the kernel with its host, but not its permissions.
        "root": _root_mount(),
    }


def _root_mount() -> list[int]:
    try:
        found = os.stat("/")
        user = os.stat("/proc/self/ns/user").st_ino
    except OSError:
        return []
    return [found.st_dev, found.st_ino, user]


def _remembered(home: Path) -> list[Finding] | None:
    try:
        data = files.read_bytes_or_none(home / "probe.json")
        if data is None:
            return None
        key, found, looked_ns = _parsed(data)
        if key != _key() or not key["boot"]:
            return None
        is_old = clock.monotonic_ns() - looked_ns > _DOUBTED_AFTER_NS
        return None if is_old and not _has_all(found) else [*found]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _has_all(found: list[Finding]) -> bool:
    return {one.name for one in found if one.works} >= _WANTED


@lru_cache(maxsize=1)
def _parsed(data: bytes) -> tuple[dict[str, object], list[Finding], int]:
    import json

    record = json.loads(data)
    return record["key"], [Finding(*row) for row in record["findings"]], int(record["looked_ns"])


def _remember(home: Path, found: list[Finding]) -> None:
    """Best effort: without it the next call tries again."""
    import json

    rows = [list(row) for row in found]
    record = {"key": _key(), "looked_ns": clock.monotonic_ns(), "findings": rows}
    try:
        os.makedirs(home, 0o700, exist_ok=True)
        files.write_atomic(home / "probe.json", json.dumps(record).encode(), durable=False)
    except (OSError, SubstrateError):
        pass


#: The type of the functions in `probes.ALL`.
Look = Callable[[], Finding]
