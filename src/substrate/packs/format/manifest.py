"""A Context Pack's manifest: its fields (docs/packs.md), and their canonical bytes.

The id of a pack is the SHA-256 of its stored manifest. A hash cannot contain itself, so `hash` and
`outputs[].context_pack` are stored as "" and filled in when a manifest is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from substrate.packs.format.canonical import canonical_bytes
from substrate.packs.format.content_address import ref_of

VERSION = "0.1"
#: An unrecorded time, written as Go's zero time so that the original `ctx` can read it.
NO_TIME = "0001-01-01T00:00:00Z"


class Model(NamedTuple):
    identifier: str
    parameters: Mapping[str, object] = {}


class Prompt(NamedTuple):
    role: str
    content_ref: str


class Input(NamedTuple):
    name: str
    content_ref: str
    size: int


@dataclass(frozen=True, slots=True)
class Step:
    """One step. Not a tuple, because a tuple has an `index` method."""

    index: int
    type: str
    tool: str
    parameters: Mapping[str, object]
    #: "" if no output was recorded; an empty output has the address of zero bytes.
    output_ref: str
    deterministic: bool
    timestamp: str = NO_TIME
    #: Besides the output, if recorded: ``exit``, and what the step changed. Left out if empty.
    result: Mapping[str, object] = field(default_factory=dict)


class Output(NamedTuple):
    name: str
    content_ref: str


class Environment(NamedTuple):
    os: str
    runtime: str
    tool_versions: Mapping[str, str] = {}


class Content(NamedTuple):
    """One content address in a manifest, and its position: ``steps[3].output``."""

    place: str
    ref: str


class Manifest(NamedTuple):
    """The contents of a pack's manifest. Its id is not part of it: see `Pack`."""

    created: str
    model: Model
    system_prompt: str
    prompts: tuple[Prompt, ...]
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Output, ...]
    environment: Environment
    parent: str = ""
    version: str = VERSION

    def contents(self) -> Iterator[Content]:
        """Every address the manifest names, in the order of its sections; not the parent."""
        yield Content("system_prompt", self.system_prompt)
        for n, prompt in enumerate(self.prompts):
            yield Content(f"prompts[{n}]", prompt.content_ref)
        for n, item in enumerate(self.inputs):
            yield Content(f"inputs[{n}] ({item.name})", item.content_ref)
        for n, step in enumerate(self.steps):
            if step.output_ref:
                yield Content(f"steps[{n}].output", step.output_ref)
        for n, output in enumerate(self.outputs):
            yield Content(f"outputs[{n}] ({output.name})", output.content_ref)


class Pack(NamedTuple):
    """A manifest together with the address of the bytes it was read from."""

    ref: str
    manifest: Manifest


def fields(manifest: Manifest, ref: str = "") -> dict[str, object]:
    """The manifest as a JSON object. `ref` fills the fields that are "" while hashing."""
    out: dict[str, object] = {
        "version": manifest.version,
        "hash": ref,
        "created": manifest.created,
        "model": manifest.model._asdict(),
        "system_prompt": manifest.system_prompt,
        "prompts": [prompt._asdict() for prompt in manifest.prompts],
        "inputs": [item._asdict() for item in manifest.inputs],
        "steps": [step_fields(step) for step in manifest.steps],
        "outputs": [output._asdict() | {"context_pack": ref} for output in manifest.outputs],
        "environment": manifest.environment._asdict(),
    }
    if manifest.parent:
        out["parent"] = manifest.parent
    return out


def step_fields(step: Step) -> dict[str, object]:
    told: dict[str, object] = {
        "index": step.index,
        "type": step.type,
        "tool": step.tool,
        "parameters": step.parameters,
        "output_ref": step.output_ref,
        "deterministic": step.deterministic,
        "timestamp": step.timestamp,
    }
    if step.result:
        told["result"] = step.result
    return told


def stored_bytes(manifest: Manifest) -> bytes:
    """The canonical bytes, as stored and hashed."""
    return canonical_bytes(fields(manifest))


def ref_of_manifest(manifest: Manifest) -> str:
    return ref_of(stored_bytes(manifest))
