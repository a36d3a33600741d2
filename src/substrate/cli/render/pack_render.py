"""Packs for people: `ctx show`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from substrate.cli.frame import Output, Piece, Styled, clip
from substrate.errors import DamagedStoreError
from substrate.recorder.packing import NO_TIME, Pack, Step, short, uri_of

if TYPE_CHECKING:
    from substrate.cli.frame import Context
    from substrate.recorder.packing import Found, Objects

_PREVIEW = 60
_SHOWN_PLACES = 8


def show_pack(output: Output, objects: Objects, pack: Pack, names: list[str]) -> None:
    manifest = pack.manifest
    created = "not recorded" if manifest.created == NO_TIME else manifest.created
    heading: list[tuple[str, Piece]] = [
        ("pack", Styled(uri_of(pack.ref), "cyan")),
        ("created", created),
        ("model", f"{manifest.model.identifier}{_told(manifest.model.parameters, '  ')}"),
        ("environment", f"{manifest.environment.os}, {manifest.environment.runtime}"),
    ]
    if manifest.environment.tool_versions:
        heading.append(("tools", _told(manifest.environment.tool_versions)))
    if manifest.parent:
        heading.append(("forked from", Styled(short(manifest.parent), "cyan")))
    if names:
        heading.append(("tags", Styled(", ".join(names), "yellow")))
    for label, piece in heading:
        output.line(Styled(f"{label:<13}", "dim"), piece)
    system = [("system", preview(objects, manifest.system_prompt, _PREVIEW))]
    prompts = [(p.role, preview(objects, p.content_ref, _PREVIEW)) for p in manifest.prompts]
    _section(output, "prompts", [*system, *prompts])
    inputs = [
        (i.name, f"{i.size:,} bytes", Styled(short(i.content_ref), "dim")) for i in manifest.inputs
    ]
    _section(output, "inputs", inputs)
    _section(output, "steps", [_step_row(step) for step in manifest.steps])
    outputs = [
        (o.name, _size(objects, o.content_ref), Styled(short(o.content_ref), "dim"))
        for o in manifest.outputs
    ]
    _section(output, "outputs", outputs)


def show_step(output: Output, objects: Objects, step: Step) -> None:
    rows: list[tuple[str, Piece]] = [
        ("step", str(step.index)),
        ("type", step.type),
        ("tool", Styled(step.tool, "bold")),
        ("time", "not recorded" if step.timestamp == NO_TIME else step.timestamp),
        ("deterministic", "yes" if step.deterministic else "no"),
        ("output", _size(objects, step.output_ref) if step.output_ref else "none recorded"),
    ]
    for label, piece in rows:
        output.line(Styled(f"{label:<15}", "dim"), piece)
    for name, value in step.parameters.items():
        for n, line in enumerate(_value(value).split("\n")):
            output.line("  ", Styled(f"{'' if n else name:<13}", "dim"), line)


def content_heading(place: str) -> Styled:
    return Styled(f"── {place} ──", "bold")


def preview(objects: Objects, ref: str, length: int) -> str:
    """The beginning of a content on one line, with its size if it is longer."""
    try:
        data = objects.read(ref, limit=4 * length)
        size = objects.size(ref)
    except DamagedStoreError as error:
        return error.message
    text = data.decode("utf-8", "replace")
    if "\0" in text:
        return f"{size:,} bytes, not text"
    flat = " ".join(text.split())
    if size <= len(data) and len(flat) <= length:
        return flat
    return f"{flat[:length]}… ({size:,} bytes)"


def _section(output: Output, title: str, rows: Sequence[tuple[str, *tuple[Piece, ...]]]) -> None:
    if rows:
        output.line("")
        output.line(Styled(f"{title} ({len(rows)})", "bold"))
        output.table([("  " + row[0], *row[1:]) for row in rows])


def _step_row(step: Step) -> tuple[str, str, str, str]:
    marks = "" if step.deterministic else "may differ"
    return str(step.index), step.tool, marks, _told(step.parameters, limit=_PREVIEW)


def _told(found: Mapping[str, object], before: str = "", limit: int | None = None) -> str:
    told = "  ".join(
        f"{name}={clip(_value(value), limit) if limit else _value(value)}"
        for name, value in found.items()
    )
    return before + told if told else ""


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _size(objects: Objects, ref: str) -> str:
    try:
        return f"{objects.size(ref):,} bytes"
    except DamagedStoreError:
        return "missing"


def secrets_json(found: Mapping[str, Sequence[Found]]) -> list[dict[str, object]]:
    """What looks like a secret, by pack and place; never the secret itself."""
    return [
        {"pack": ref, "place": one.place, "count": one.times, "file": one.is_file}
        for ref, places in found.items()
        for one in places
    ]


def tell_secrets(context: Context, found: Mapping[str, Sequence[Found]], fix: str) -> None:
    for ref, places in found.items():
        texts = [str(one) for one in places if not one.is_file]
        files = [str(one) for one in places if one.is_file]
        if texts:
            context.output.note(
                f"pack {short(ref)} seems to hold secrets in {_listed(texts)};"
                f" `{fix}` replaces them"
            )
        if files:
            context.output.note(
                f"pack {short(ref)} holds files with keys or tokens: {_listed(files)};"
                " --redact leaves files as they are"
            )


def _listed(places: Sequence[str]) -> str:
    more = f" and {len(places) - _SHOWN_PLACES} more" if len(places) > _SHOWN_PLACES else ""
    return ", ".join(places[:_SHOWN_PLACES]) + more
