"""From an agent's transcript to a stored pack."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, cast

from substrate.errors import UsageError
from substrate.packs.format import (
    NO_TIME,
    Environment,
    Input,
    Manifest,
    Model,
    Output,
    Pack,
    Prompt,
    Step,
    canonical_bytes,
    instant_ns,
)
from substrate.packs.replay import BASE_NAME
from substrate.packs.store import Objects, Store, Stored, publish
from substrate.packs.transcripts.claude import read_claude
from substrate.packs.transcripts.codex import read_codex
from substrate.packs.transcripts.gemini import read_gemini
from substrate.packs.transcripts.transcript_lines import (
    Attached,
    Json,
    Transcript,
    TranscriptReport,
    attached_in,
    items,
    mapping,
    string,
)

_NO_TREES = (
    "the base tree has only the files that the transcript shows: this project's history has"
    " nothing of the session"
)


class PackedTranscript(NamedTuple):
    pack: Pack
    report: TranscriptReport


class Trees(NamedTuple):
    """What the project's own history knows about a transcript's session."""

    #: The tree that it began with.
    inputs: tuple[Input, ...]
    #: The files that it changed, as they were at its end; None if this is not known.
    outputs: tuple[Output, ...] | None
    #: Whether `inputs` is exact. Otherwise a file as the transcript shows it is better.
    is_exact: bool
    note: str


class Session(NamedTuple):
    """Which session a transcript is of."""

    agent: str
    session_id: str
    #: The directory that it worked in.
    root: str
    #: The time of its first step, in nanoseconds; None if the transcript has no times.
    began_ns: int | None


#: Finds a session in a project's history; None if there is none of it.
FindTrees = Callable[[Session], Trees | None]


def pack_transcript(
    store: Store, agent: str, lines: Iterable[bytes], *,
    directory: Path | None = None, find_trees: FindTrees | None = None,
) -> PackedTranscript:  # fmt: skip
    """Store an agent's transcript as a pack.

    `directory` is the transcript's: outputs that the agent saved there are read.
    """
    transcript = read_transcript(agent, lines, attached_in(directory))
    report = transcript.report
    with store.writing("packing a transcript"):
        manifest = _manifest(store.objects, transcript.log)
        trees = find_trees(_session(agent, transcript.log)) if find_trees else None
        if trees is not None:
            manifest = _with_trees(manifest, trees)
            report = report._replace(notes=(*report.notes, trees.note))
        elif find_trees is not None:
            report = report._replace(notes=(*report.notes, _NO_TREES))
        return PackedTranscript(publish(store, manifest), report)


def _session(agent: str, log: Json) -> Session:
    parameters = mapping(mapping(log["model"])["parameters"])
    times = [_time(mapping(step).get("timestamp")) for step in items(log["steps"])]
    began = next((time for time in times if time != NO_TIME), None)
    return Session(
        agent, string(parameters.get("session_id")), string(log.get("root")),
        instant_ns(began) if began is not None else None,
    )  # fmt: skip


def _with_trees(manifest: Manifest, trees: Trees) -> Manifest:
    shown = {item.name: item for item in manifest.inputs if item.name != BASE_NAME}
    inputs = {item.name: item for item in trees.inputs}
    inputs = {**shown, **inputs} if trees.is_exact else {**inputs, **shown}
    base = inputs.pop(BASE_NAME)
    files = (inputs[name] for name in sorted(inputs))
    outputs = manifest.outputs if trees.outputs is None else trees.outputs
    return manifest._replace(inputs=(base, *files), outputs=outputs)


def _manifest(objects: Objects, log: Json) -> Manifest:
    def put(text: object) -> Stored:
        # An agent may cut a text in the middle of a surrogate pair; the half is kept unchanged.
        return objects.write(string(text).encode("utf-8", "surrogatepass"))

    model, environment = mapping(log["model"]), mapping(log["environment"])
    steps = tuple(
        _step(step, "" if step["output"] is None else put(step["output"]).ref)
        for step in map(mapping, items(log["steps"]))
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


def _step(step: Json, output_ref: str) -> Step:
    return Step(
        index=cast(int, step["index"]),
        type=string(step["type"]),
        tool=_clean(string(step["tool"])),
        parameters=_json(step["parameters"]),
        output_ref=output_ref,
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
    """Parameters as a manifest can contain them: half a character becomes a replacement mark."""
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


READERS: Mapping[str, Callable[[Iterable[bytes], Attached], Transcript]] = {
    "claude-code": read_claude,
    "codex": lambda lines, _: read_codex(lines),
    "gemini": lambda lines, _: read_gemini(lines),
}


def read_transcript(
    agent: str, lines: Iterable[bytes], attached: Attached | None = None
) -> Transcript:
    """An agent's transcript as an execution log. The same bytes give the same log."""
    reader = READERS.get(agent)
    if reader is None:
        raise UsageError(
            f"no transcripts of {agent!r} are known", hint=f"--from takes {', '.join(READERS)}"
        )
    return reader(lines, attached or attached_in(None))
