"""Compare two packs, section by section: inputs, steps, outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from substrate.errors import DamagedStoreError
from substrate.model import common, gaps
from substrate.packs.drift.content_diff import diff_contents
from substrate.packs.drift.drift_steps import step_drifts
from substrate.packs.drift.drift_types import Drift, DriftReport, DriftType
from substrate.packs.exchange import is_sidecar
from substrate.packs.format import Input, Manifest, Output, Pack, canonical_bytes
from substrate.packs.replay import BASE_NAME, read_base
from substrate.packs.store import Objects


def compare(objects: Objects, a: Pack, b: Pack) -> DriftReport:
    """Every difference that could explain another result.

    The time of a run, its recorded ids and sidecars of earlier packs do not count. The order is
    prompts, model, inputs, environment, steps, outputs: an earlier difference may have caused a
    later one.
    """
    entries: list[Drift] = []
    if a.ref != b.ref:
        one, two = a.manifest, b.manifest
        entries += _prompts(objects, one, two)
        entries += _model(one, two)
        inputs = [_without_sidecars(objects, manifest.inputs) for manifest in (one, two)]
        entries += _named("input_drift", "input", objects, *inputs)
        entries += _environment(one, two)
        entries += step_drifts(objects, one.steps, two.steps)
        entries += _named("output_drift", "output", objects, one.outputs, two.outputs)
    return DriftReport(a.ref, b.ref, tuple(entries))


def _prompts(objects: Objects, a: Manifest, b: Manifest) -> Iterator[Drift]:
    if a.system_prompt != b.system_prompt:
        content = diff_contents(objects, a.system_prompt, b.system_prompt)
        said = "the system prompt differs"
        yield Drift("prompt_drift", said, None, a.system_prompt, b.system_prompt, content)
    pairs = common(a.prompts, b.prompts)
    for left, right in gaps(pairs, len(a.prompts), len(b.prompts)):
        for x, y in zip(left, right, strict=False):
            old, new = a.prompts[x], b.prompts[y]
            if old.role != new.role:
                said = f"prompt {x}: the role is {new.role}, not {old.role}"
                yield Drift("prompt_drift", said, None, old.role, new.role)
            if old.content_ref != new.content_ref:
                content = diff_contents(objects, old.content_ref, new.content_ref)
                said = f"prompt {x} ({old.role}) differs"
                yield Drift("prompt_drift", said, None, old.content_ref, new.content_ref, content)
        for x in left[len(right) :]:
            old = a.prompts[x]
            said = f"prompt {x} ({old.role}) was removed"
            yield Drift("prompt_drift", said, None, old.content_ref, None)
        for y in right[len(left) :]:
            new = b.prompts[y]
            said = f"prompt {y} ({new.role}) was added"
            yield Drift("prompt_drift", said, None, None, new.content_ref)


def _model(a: Manifest, b: Manifest) -> Iterator[Drift]:
    if a.model.identifier != b.model.identifier:
        said = f"the model is {b.model.identifier}, not {a.model.identifier}"
        yield Drift("model_drift", said, None, a.model.identifier, b.model.identifier)
    # The session id identifies the run; it is not a setting of the model.
    old, new = (
        {name: value for name, value in manifest.model.parameters.items() if name != "session_id"}
        for manifest in (a, b)
    )
    yield from _mapped("model_drift", "the model's parameter", old, new)


def _environment(a: Manifest, b: Manifest) -> Iterator[Drift]:
    old, new = a.environment, b.environment
    for name, was, now in (("os", old.os, new.os), ("runtime", old.runtime, new.runtime)):
        if was != now:
            yield Drift("environment_drift", f"the {name} is {now}, not {was}", None, was, now)
    yield from _mapped("environment_drift", "the version of", old.tool_versions, new.tool_versions)


def _mapped(
    kind: DriftType, what: str, a: Mapping[str, object], b: Mapping[str, object]
) -> Iterator[Drift]:
    for name in sorted({*a, *b}):
        if name not in a:
            yield Drift(kind, f"{what} {name} was added", None, None, b[name])
        elif name not in b:
            yield Drift(kind, f"{what} {name} was removed", None, a[name], None)
        elif canonical_bytes(a[name]) != canonical_bytes(b[name]):
            yield Drift(kind, f"{what} {name} differs", None, a[name], b[name])


def _named(
    kind: DriftType,
    what: str,
    objects: Objects,
    a: Sequence[Input] | Sequence[Output],
    b: Sequence[Input] | Sequence[Output],
) -> Iterator[Drift]:
    """Pair contents by name; the second of a name with the second of the same name."""
    old, new = _by_name(a), _by_name(b)
    for key in dict.fromkeys((*old, *new)):
        label = f"{what} {key[0]}" + (f" (number {key[1] + 1})" if key[1] else "")
        if key not in old:
            yield Drift(kind, f"{label} was added", None, None, new[key])
        elif key not in new:
            yield Drift(kind, f"{label} was removed", None, old[key], None)
        elif old[key] != new[key] and not _same_base(objects, key[0], old[key], new[key]):
            content = diff_contents(objects, old[key], new[key])
            yield Drift(kind, f"{label} differs", None, old[key], new[key], content)
    if list(old) != list(new) and set(old) == set(new):
        yield Drift(
            kind,
            f"the {what}s come in another order",
            None,
            [name for name, _ in old],
            [name for name, _ in new],
        )


def _without_sidecars(objects: Objects, inputs: Sequence[Input]) -> list[Input]:
    """`ctx pack --sidecars` writes them into the project, where the next session starts."""
    return [one for one in inputs if not is_sidecar(one.name, partial(_read, objects, one))]


def _read(objects: Objects, item: Input) -> bytes:
    try:
        return objects.read(item.content_ref)
    except DamagedStoreError:
        return b""  # an input like any other


def _same_base(objects: Objects, name: str, a: str, b: str) -> bool:
    """Whether two records describe the same tree; the ids of their commits may differ."""
    if name != BASE_NAME:
        return False
    try:
        old, new = (read_base(objects.read(ref))._replace(commit="") for ref in (a, b))
    except (ValueError, TypeError, KeyError, AttributeError, DamagedStoreError):
        return False  # not a valid record: an input like any other
    return old == new


def _by_name(items: Sequence[Input] | Sequence[Output]) -> dict[tuple[str, int], str]:
    found: dict[tuple[str, int], str] = {}
    count: dict[str, int] = {}
    for item in items:
        found[item.name, count.get(item.name, 0)] = item.content_ref
        count[item.name] = count.get(item.name, 0) + 1
    return found
