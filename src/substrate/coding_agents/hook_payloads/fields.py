"""Reading fields of a hook's input without trusting their types."""

from __future__ import annotations

from collections.abc import Mapping

from substrate.model import Content

Payload = Mapping[str, object]
_NOTHING: Payload = {}


def text(payload: Payload, *names: str) -> str:
    """The first of these fields that is a text and not empty."""
    for name in names:
        value = payload.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def mapping(payload: Payload, name: str) -> Payload:
    value = payload.get(name)
    return value if isinstance(value, dict) else _NOTHING


def content(value: object) -> Content | None:
    """A file's content in a report; None if it is not a text."""
    return Content(value.encode("utf-8", "surrogatepass")) if isinstance(value, str) else None
