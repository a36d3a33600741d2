"""Secrets in packs: found by the rules that redact the trace, reported, replaced on request.

The texts of a run are checked: prompts, the parameters and the output of every step. Files (inputs
and outputs) are only checked for tokens and keys with a known shape, because code is full of names
such as `password = …`. Files are reported but never changed: a replay needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from substrate.packs.format import Manifest, Pack
from substrate.packs.store import Objects, Store, publish
from substrate.trace.redact import REDACTED, redact, redact_shapes

#: Only this many bytes of a content are checked.
_MOST_BYTES = 16 << 20
_SNIFFED = 8192


class Found(NamedTuple):
    """Secrets in one place of a pack, such as ``steps[3].output``."""

    place: str
    times: int
    #: A file in the pack: redacting does not change it.
    is_file: bool = False

    def __str__(self) -> str:
        return f"{self.place} ({self.times})" if self.times > 1 else self.place


def find_secrets(objects: Objects, manifest: Manifest) -> list[Found]:
    """Every place of a pack that contains something that looks like a secret."""
    return [
        Found(place, count, is_file)
        for place, text, is_file in _texts(objects, manifest)
        if (count := _count(text, redact_shapes if is_file else redact))
    ]


def redacted_pack(store: Store, pack: Pack) -> Pack:
    """The same run with its secrets replaced, as a pack of its own; its parents as well.

    Returns the pack itself if it contains none. Call inside `store.writing`.
    """
    manifest = _redacted(store.objects, pack.manifest)
    if manifest.parent and manifest.parent in store.objects:
        above = redacted_pack(store, store.load(manifest.parent))
        manifest = manifest._replace(parent=above.ref)
    return pack if manifest == pack.manifest else store.add(manifest)


def publish_redacted(store: Store, pack: Pack) -> Pack:
    """Publish the `redacted_pack` as the latest."""
    found = redacted_pack(store, pack)
    return publish(store, found.manifest)


def redacted_bytes(data: bytes) -> bytes:
    """For a replay: what a step prints now, redacted like the pack's recorded output."""
    text = _text(data)
    return data if text is None else redact(text).encode("utf-8", "surrogateescape")


def _texts(objects: Objects, manifest: Manifest) -> Iterator[tuple[str, str, bool]]:
    for content in manifest.contents():
        text = _text(objects.read(content.ref, limit=_MOST_BYTES))
        if text is not None:
            yield content.place, text, content.place.startswith(("inputs[", "outputs["))
    for n, step in enumerate(manifest.steps):
        for where, text in _strings(step.parameters):
            yield f"steps[{n}].parameters{where}", text, False


def _strings(value: object, where: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _strings(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for n, item in enumerate(value):
            yield from _strings(item, f"{where}[{n}]")


def _text(data: bytes) -> str | None:
    """The decoded text; None for binary data."""
    return None if b"\0" in data[:_SNIFFED] else data.decode("utf-8", "surrogateescape")


def _count(text: str, rules: Callable[[str], str]) -> int:
    return max(0, rules(text).count(REDACTED) - text.count(REDACTED))


def _redacted(objects: Objects, manifest: Manifest) -> Manifest:
    def content(ref: str) -> str:
        data = objects.read(ref)
        new = redacted_bytes(data)
        return ref if new == data else objects.write(new).ref

    return manifest._replace(
        system_prompt=content(manifest.system_prompt),
        prompts=tuple(
            prompt._replace(content_ref=content(prompt.content_ref)) for prompt in manifest.prompts
        ),
        steps=tuple(
            replace(
                step,
                parameters=_redacted_fields(step.parameters),
                output_ref=content(step.output_ref) if step.output_ref else "",
            )
            for step in manifest.steps
        ),
    )


def _redacted_fields(fields: Mapping[str, object]) -> dict[str, object]:
    return {key: _redacted_value(item) for key, item in fields.items()}


def _redacted_value(value: object) -> object:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return _redacted_fields(value)
    if isinstance(value, list | tuple):
        return [_redacted_value(item) for item in value]
    return value
