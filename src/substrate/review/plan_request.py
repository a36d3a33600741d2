"""The body of `POST /v1/preview`, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from substrate.errors import UsageError
from substrate.model import RelPath, from_text, rel_path

VERBS = ("undo", "redo", "rollback", "apply", "discard")
_TAKES = ("ours", "theirs")
_BRANCHES = ("with-git", "files-only")
_FIELDS = ("verb", "scope", "paths", "hunks", "take", "skip_conflicts", "branches", "cwd")
_MOST = 10_000
_HUNK = re.compile(r"h-[0-9a-f]{1,64}")


class PlanRequest(NamedTuple):
    verb: str
    scope: str
    paths: tuple[RelPath, ...] = ()
    hunks: tuple[str, ...] = ()
    take: str = ""
    skip_conflicts: bool = False
    branches: str = ""


def plan_request(document: Mapping[str, object]) -> PlanRequest:
    unknown = sorted(set(document) - set(_FIELDS))
    if unknown:
        raise UsageError(
            f"unknown field: {unknown[0][:40]!r}", hint=f"fields: {', '.join(_FIELDS)}"
        )
    verb = _one_of(document, "verb", VERBS)
    scope = _text(document, "scope")
    if not verb or (not scope and verb != "redo"):
        raise UsageError("verb and scope are needed", hint=f"verb is one of {', '.join(VERBS)}")
    skip = document.get("skip_conflicts", False)
    if not isinstance(skip, bool):
        raise UsageError("skip_conflicts is true or false", hint="leave it out for false")
    wanted = PlanRequest(
        verb, scope,
        paths=tuple(path_named(one) for one in _list(document, "paths")),
        hunks=tuple(_hunk(one) for one in _list(document, "hunks")),
        take=_one_of(document, "take", _TAKES),
        skip_conflicts=skip,
        branches=_one_of(document, "branches", _BRANCHES),
    )  # fmt: skip
    _refuse_unused(wanted)
    return wanted


def _refuse_unused(wanted: PlanRequest) -> None:
    """A field that the verb does not take would seem to limit what it does."""
    whole = wanted.verb in ("apply", "discard")
    unused = {
        "hunks": bool(wanted.hunks) and wanted.verb not in ("undo", "apply"),
        "take": bool(wanted.take) and whole,
        "skip_conflicts": wanted.skip_conflicts and whole,
        "branches": bool(wanted.branches) and (whole or bool(wanted.hunks)),
    }
    for name, is_unused in unused.items():
        if is_unused:
            raise UsageError(f"{name} does not go with this {wanted.verb}", hint="leave it out")


def path_named(value: object) -> RelPath:
    """A path from the workspace's root: a text, or ``{"path", "encoded"}`` as answers have it."""
    encoded = False
    if isinstance(value, dict):
        encoded = value.get("encoded") is True
        value = value.get("path")
    if not isinstance(value, str) or not value or "\0" in value:
        raise UsageError("a path is a text that is not empty", hint="paths are as in answers")
    try:
        return rel_path(from_text(value, encoded=encoded))
    except ValueError:
        raise UsageError(f"not a path in the workspace: {value[:80]!r}", hint="") from None


def _hunk(value: object) -> str:
    if not isinstance(value, str) or not _HUNK.fullmatch(value):
        raise UsageError("a hunk is named by its id", hint="GET /v1/diff lists them")
    return value


def _text(document: Mapping[str, object], name: str) -> str:
    found = document.get(name, "")
    if not isinstance(found, str):
        raise UsageError(f"{name} is a text", hint="")
    return found


def _one_of(document: Mapping[str, object], name: str, known: tuple[str, ...]) -> str:
    found = _text(document, name)
    if found and found not in known:
        raise UsageError(f"{name}: not {found[:40]!r}", hint=f"one of {', '.join(known)}")
    return found


def _list(document: Mapping[str, object], name: str) -> list[object]:
    found = document.get(name, [])
    if not isinstance(found, list) or len(found) > _MOST:
        raise UsageError(f"{name} is a list of at most {_MOST}", hint="")
    return found
