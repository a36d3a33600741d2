"""Parse stored bytes into a manifest: our own, and those of the original `ctx`.

The original omits `context_pack`, writes null for an empty map, and does not sort the keys of a
finalized draft. The bytes are accepted as they are; the id is the hash of the bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from substrate.packs.format.canonical import MAX_DEPTH
from substrate.packs.format.content_address import is_ref
from substrate.packs.format.manifest import (
    NO_TIME,
    Environment,
    Input,
    Manifest,
    Model,
    Output,
    Prompt,
    Step,
)

_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?(Z|[+-]\d\d:\d\d)\Z"
)


class NotAManifestError(ValueError):
    """The bytes are not a manifest: the message names the wrong field."""


def read_manifest(data: bytes) -> Manifest:
    """Parse `data` as a manifest; `NotAManifestError` if it is not one."""
    try:
        found = json.loads(data, parse_constant=_no_number, parse_float=_number)
        if b"\\u" in data:
            json.dumps(found, ensure_ascii=False).encode()  # fails for half a surrogate pair
    except (ValueError, RecursionError):
        raise NotAManifestError("it is not JSON") from None
    if not isinstance(found, dict) or "version" not in found or "steps" not in found:
        raise NotAManifestError("it is not the manifest of a pack")
    return manifest_of(found)


def manifest_of(found: Mapping[str, object]) -> Manifest:
    """The same from parsed JSON."""
    model = _map(found, "model", "model")
    environment = _map(found, "environment", "environment")
    return Manifest(
        version=_text(found, "version", "version"),
        created=_time(found, "created", "created"),
        model=Model(
            _text(model, "identifier", "model.identifier"),
            _map(model, "parameters", "model.parameters"),
        ),
        system_prompt=_ref(found, "system_prompt", "system_prompt"),
        prompts=tuple(_prompt(item, at) for at, item in _items(found, "prompts")),
        inputs=tuple(_input(item, at) for at, item in _items(found, "inputs")),
        steps=tuple(_step(item, at) for at, item in _items(found, "steps")),
        outputs=tuple(_output(item, at) for at, item in _items(found, "outputs")),
        environment=Environment(
            _text(environment, "os", "environment.os"),
            _text(environment, "runtime", "environment.runtime"),
            _versions(environment),
        ),
        parent=_ref(found, "parent", "parent", optional=True),
    )


def instant_ns(timestamp: str) -> int:
    """Nanoseconds since 1970 of an RFC 3339 time; ``ValueError`` if it is not one."""
    match = _RFC3339.match(timestamp)
    if match is None:
        raise ValueError(f"not an RFC 3339 time such as 2026-02-10T14:30:00Z: {timestamp!r}")
    *clock, fraction, zone = match.groups()
    try:
        at = datetime(*map(int, clock), tzinfo=UTC)  # type: ignore[arg-type, misc]
    except ValueError as error:
        raise ValueError(f"no such time: {timestamp!r} ({error})") from None
    seconds = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
    if zone != "Z":
        hours, minutes = int(zone[1:3]), int(zone[4:6])
        if hours > 23 or minutes > 59:
            raise ValueError(f"no such offset from UTC: {timestamp!r}")
        seconds -= (hours * 3600 + minutes * 60) * (-1 if zone[0] == "-" else 1)
    return seconds * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))


def _prompt(item: Mapping[str, object], at: str) -> Prompt:
    return Prompt(_text(item, "role", f"{at}.role"), _ref(item, "content_ref", f"{at}.content_ref"))


def _input(item: Mapping[str, object], at: str) -> Input:
    return Input(
        _text(item, "name", f"{at}.name"),
        _ref(item, "content_ref", f"{at}.content_ref"),
        _integer(item, "size", f"{at}.size"),
    )


def _step(item: Mapping[str, object], at: str) -> Step:
    return Step(
        _integer(item, "index", f"{at}.index"),
        _text(item, "type", f"{at}.type"),
        _text(item, "tool", f"{at}.tool"),
        _map(item, "parameters", f"{at}.parameters"),
        _ref(item, "output_ref", f"{at}.output_ref", optional=True),
        item.get("deterministic") is True,
        _time(item, "timestamp", f"{at}.timestamp"),
        _map(item, "result", f"{at}.result"),
    )


def _output(item: Mapping[str, object], at: str) -> Output:
    return Output(_text(item, "name", f"{at}.name"), _ref(item, "content_ref", f"{at}.content_ref"))


def _text(found: Mapping[str, object], key: str, at: str) -> str:
    value = found.get(key, "")
    if not isinstance(value, str):
        raise NotAManifestError(f"{at} is not a string")
    return value


def _time(found: Mapping[str, object], key: str, at: str) -> str:
    text = _text(found, key, at) or NO_TIME
    try:
        instant_ns(text)
    except ValueError as error:
        raise NotAManifestError(f"{at}: {error}") from None
    return text


def _ref(found: Mapping[str, object], key: str, at: str, *, optional: bool = False) -> str:
    value = _text(found, key, at)
    if not is_ref(value) and not (optional and not value):
        raise NotAManifestError(f"{at} is not a content address (sha256:…)")
    return value


def _integer(found: Mapping[str, object], key: str, at: str) -> int:
    value = found.get(key, 0)
    if not isinstance(value, int) or isinstance(value, bool):
        raise NotAManifestError(f"{at} is not an integer")
    return value


def _map(found: Mapping[str, object], key: str, at: str) -> Mapping[str, object]:
    value = found.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise NotAManifestError(f"{at} is not an object")
    if _is_deep(value):
        raise NotAManifestError(f"{at} is nested more than {MAX_DEPTH} deep")
    return value


def _is_deep(value: object) -> bool:
    """Whether it is nested too deep to be written again; checked input never is."""
    level = [value]
    for _ in range(MAX_DEPTH - 8):
        below: list[object] = []
        for item in level:
            if isinstance(item, (dict, list)):
                inner = item.values() if isinstance(item, dict) else item
                below += [child for child in inner if isinstance(child, (dict, list))]
        if not below:
            return False
        level = below
    return True


def _number(text: str) -> float:
    found = float(text)
    if found in (float("inf"), float("-inf")):
        raise ValueError("too large")
    return found


def _no_number(text: str) -> object:
    raise ValueError(f"{text} is not JSON")


def _versions(environment: Mapping[str, object]) -> Mapping[str, str]:
    at = "environment.tool_versions"
    found = _map(environment, "tool_versions", at)
    return {key: _text(found, key, f"{at}.{key}") for key in found}


def _items(found: Mapping[str, object], key: str) -> list[tuple[str, Mapping[str, object]]]:
    value = found.get(key)
    if value is None:
        return []
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise NotAManifestError(f"{key} is not a list")
    out: list[tuple[str, Mapping[str, object]]] = []
    for n, item in enumerate(value):
        if not isinstance(item, dict):
            raise NotAManifestError(f"{key}[{n}] is not an object")
        out.append((f"{key}[{n}]", item))
    return out
