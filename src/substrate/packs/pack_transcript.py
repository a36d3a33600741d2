"""From an agent's transcript to a stored pack."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, cast

from substrate.packs.canonical import canonical_bytes
from substrate.packs.create import publish
from substrate.packs.manifest import (
    NO_TIME,
    Environment,
    Input,
    Manifest,
    Model,
    Output,
    Pack,
    Prompt,
    Step,
)
from substrate.packs.objects import Objects, Stored
from substrate.packs.read_manifest import instant_ns
from substrate.packs.store import Store
from substrate.packs.transcript_lines import Json, Report, items, mapping, string
from substrate.packs.transcripts import read_transcript


class PackedTranscript(NamedTuple):
    pack: Pack
    report: Report


def pack_transcript(store: Store, agent: str, lines: Iterable[bytes]) -> PackedTranscript:
    """Keep what an agent wrote down as a pack. The same bytes always give the same pack."""
    transcript = read_transcript(agent, lines)
    with store.writing("packing a transcript"):
        manifest = _manifest(store.objects, transcript.log)
        return PackedTranscript(publish(store, manifest), transcript.report)


def _manifest(objects: Objects, log: Json) -> Manifest:
    def put(text: object) -> Stored:
        # An agent may cut a text in the middle of a character; its half is kept as it is.
        return objects.write(string(text).encode("utf-8", "surrogatepass"))

    model, environment = mapping(log["model"]), mapping(log["environment"])
    steps = tuple(
        _step(mapping(step), put(mapping(step)["output"])) for step in items(log["steps"])
    )
    inputs = []
    for item in map(mapping, items(log["inputs"])):
        stored = put(item["content"])
        inputs.append(Input(_clean(string(item["name"])), stored.ref, stored.size))
    return Manifest(
        created=next((s.timestamp for s in reversed(steps) if s.timestamp != NO_TIME), NO_TIME),
        model=Model(string(model["identifier"]), _json(model["parameters"])),
        system_prompt=put(log["system_prompt"]).ref,
        prompts=tuple(
            Prompt(string(prompt["role"]), put(prompt["content"]).ref)
            for prompt in map(mapping, items(log["prompts"]))
        ),
        inputs=tuple(inputs),
        steps=steps,
        outputs=tuple(
            Output(_clean(string(output["name"])), put(output["content"]).ref)
            for output in map(mapping, items(log["outputs"]))
        ),
        environment=Environment(
            string(environment["os"]),
            string(environment["runtime"]),
            cast("dict[str, str]", environment["tool_versions"]),
        ),
    )


def _step(step: Json, output: Stored) -> Step:
    return Step(
        index=cast(int, step["index"]),
        type=string(step["type"]),
        tool=_clean(string(step["tool"])),
        parameters=_json(step["parameters"]),
        output_ref=output.ref,
        deterministic=step["deterministic"] is True,
        timestamp=_time(step.get("timestamp")),
        result=mapping(step.get("result")),
    )


def _time(value: object) -> str:
    text = string(value)
    try:
        instant_ns(text)
    except ValueError:
        return NO_TIME
    return text


def _json(value: object) -> Json:
    """Parameters as a manifest can hold them: half a character becomes a replacement mark."""
    found = mapping(value)
    try:
        canonical_bytes(found)
    except ValueError:
        return cast(Json, _cleaned(found))
    return found


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, dict):
        return {_clean(str(key)): _cleaned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, float):
        return str(value)
    return value


def _clean(text: str) -> str:
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
