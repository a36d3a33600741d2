"""Compare a step's result with its record: by address, and if they differ, by line."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from substrate.packs.format import PREFIX, ref_of
from substrate.packs.store import Objects
from substrate.packs.tools import Produced, ToolResult

#: How much of two contents a diff compares.
_DIFF_CAP = 256 << 10
_DIFF_LINES = 200
#: Above this size only addresses are compared, not the formats in which agents record a result.
_FORMS_CAP = 4 << 20


class Difference(NamedTuple):
    #: In a few words, on one line.
    summary: str
    #: A unified diff, or a description for contents that are not text.
    diff: str


def address(produced: Produced) -> tuple[str, int]:
    """The address and the size of a tool's result."""
    digest, size = hashlib.sha256(), 0
    for chunk in produced.chunks():
        digest.update(chunk)
        size += len(chunk)
    return PREFIX + digest.hexdigest(), size


def head(produced: Produced, limit: int) -> bytes:
    """The first `limit` bytes of it."""
    found = b""
    for chunk in produced.chunks():
        found += chunk
        if len(found) >= limit:
            break
    return found[:limit]


def is_same(
    objects: Objects,
    recorded: str,
    result: ToolResult,
    mapped: Sequence[tuple[bytes, bytes]] = (),
    redacted: Callable[[bytes], bytes] = bytes,
) -> bool:
    """Whether a result equals the recorded one, in any of the formats that agents use.

    `mapped` are pairs (path now, path then) for a tree that is not at its original location;
    `redacted` turns an output into the form that a pack without secrets contains.
    """
    actual, size = address(result.produced)
    if actual == recorded:
        return True
    if size > _FORMS_CAP:
        return False
    forms = [head(result.produced, size), *result.also]
    for now, then in mapped:
        forms += [form.replace(now, then) for form in forms if now in form]
    if recorded in {ref_of(form) for form in forms}:
        return True
    if recorded in {ref_of(redacted(form)) for form in forms}:
        return True
    if not result.unordered or objects.size(recorded) > _FORMS_CAP:
        return False
    wanted = sorted(objects.read(recorded).split(b"\n"))
    return any(sorted(form.split(b"\n")) == wanted for form in forms)


def difference(objects: Objects, recorded: str, produced: Produced) -> Difference:
    """How a tool's result differs from the recorded content."""
    then = objects.read(recorded, limit=_DIFF_CAP)
    now = head(produced, _DIFF_CAP)
    sizes = (objects.size(recorded), address(produced)[1])
    return content_difference(then, now, sizes)


def content_difference(then: bytes, now: bytes, sizes: tuple[int, int]) -> Difference:
    if b"\0" in then[:8192] or b"\0" in now[:8192]:
        return Difference(f"{sizes[0]} bytes recorded, {sizes[1]} now", _first_byte(then, now))
    before = then.decode("utf-8", "backslashreplace").splitlines()
    after = now.decode("utf-8", "backslashreplace").splitlines()
    lines = list(difflib.unified_diff(before, after, "recorded", "replayed", lineterm="", n=3))
    if not lines:
        return Difference("line ends or the last newline differ", _first_byte(then, now))
    cut = lines[:_DIFF_LINES]
    if len(cut) < len(lines) or max(sizes) > _DIFF_CAP:
        cut.append("… (cut here)")
    added = sum(line.startswith("+") for line in lines[2:])
    removed = sum(line.startswith("-") for line in lines[2:])
    return Difference(f"+{added} -{removed} lines", "\n".join(cut))


def _first_byte(then: bytes, now: bytes) -> str:
    at = next((n for n, (a, b) in enumerate(zip(then, now, strict=False)) if a != b), None)
    if at is None:
        at = min(len(then), len(now))
    return (
        f"they differ from byte {at} on: recorded {then[at : at + 16]!r}, now {now[at : at + 16]!r}"
    )


def changes_difference(then: Sequence[object], now: Sequence[object]) -> list[str]:
    """Two lists of changed paths, as sentences; empty if they are the same."""
    before = {str(item["path"]): item for item in then if isinstance(item, Mapping)}
    after = {str(item["path"]): item for item in now if isinstance(item, Mapping)}
    out = []
    for path in sorted(before.keys() | after.keys()):
        if path not in after:
            out.append(f"{path} was {before[path].get('change', 'changed')} then, not now")
        elif path not in before:
            out.append(f"{path} is {after[path].get('change', 'changed')} now, not then")
        else:
            fields = ("change", "kind", "mode", "content")
            different = [f for f in fields if before[path].get(f) != after[path].get(f)]
            if different:
                out.append(f"{path} has another {' and '.join(different)}")
    return out
