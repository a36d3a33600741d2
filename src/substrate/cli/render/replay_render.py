"""A replay, for people and for programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from substrate.cli.frame import Output, Style, Styled
from substrate.recorder.packing import (
    MATCHED,
    OutputReport,
    StepReport,
    first_divergence,
    short,
    uri_of,
)
from substrate.recorder.replay import Replayed

if TYPE_CHECKING:
    from substrate.recorder.replay import Drift

_COLORS: dict[str, Style] = {
    "exact": "green",
    "matched": "green",
    "degraded": "yellow",
    "diverged": "yellow",
    "failed": "red",
    "absent": "dim",
}
#: Further steps are only counted, unless the user asks for every step.
_SHOWN_STEPS = 40


def progress_of(output: Output, label: str) -> Callable[[int, int], None]:
    return lambda done, total: output.progress(label, done, total)


def replayed_json(replayed: Replayed) -> dict[str, object]:
    first = first_divergence(replayed.steps)
    document: dict[str, object] = {
        "pack": replayed.ref,
        "fidelity": replayed.fidelity,
        "steps": [_step_json(step) for step in replayed.steps],
        "first_divergence": None if first is None else {**_step_json(first), "diff": first.diff},
        "outputs": [_output_json(one) for one in replayed.outputs],
        "isolation": replayed.isolation._asdict(),
        "scopes_used": scopes_of(replayed),
        "environment_drift": [one._asdict() for one in replayed.drift],
        "not_checked": list(replayed.unchecked),
        "notes": list(replayed.notes),
    }
    if replayed.kept:
        document["tree"] = str(replayed.kept)
    return document


def scopes_of(replayed: Replayed) -> list[str]:
    return sorted({scope for step in replayed.steps for scope in step.scopes})


def _step_json(step: StepReport) -> dict[str, object]:
    fields: dict[str, object] = {
        "index": step.at,
        "type": step.type,
        "tool": step.tool,
        "status": step.status,
        "executed": step.ran,
        "deterministic": step.deterministic,
        "recorded_ref": step.recorded or None,
        "actual_ref": step.actual or None,
    }
    if step.about:
        fields["about"] = step.about
    if step.reason:
        fields["reason"] = step.reason
    if step.exit is not None:
        fields["exit"] = step.exit
    if step.recorded_exit is not None:
        fields["recorded_exit"] = step.recorded_exit
    return fields


def _output_json(one: OutputReport) -> dict[str, object]:
    fields: dict[str, object] = {"name": one.name, "status": one.status}
    if one.reason:
        fields["reason"] = one.reason
    if one.diff:
        fields["diff"] = one.diff
    return fields


def show_replayed(
    output: Output, replayed: Replayed, *, verbose: bool, one_line: bool = False
) -> None:
    if one_line and not verbose:
        output.line(*_headline(replayed))
        return
    shown = replayed.steps if verbose else replayed.steps[:_SHOWN_STEPS]
    output.table([_row(step) for step in shown])
    if len(shown) < len(replayed.steps):
        output.line(f"… and {len(replayed.steps) - len(shown)} more (--verbose shows all)")
    first = first_divergence(replayed.steps)
    for step in replayed.steps if verbose else [first]:
        if step is not None and step.diff and step.status != MATCHED:
            output.line()
            output.line(Styled(f"step {step.at}: {step.tool} {step.about}".rstrip(), "bold"))
            output.diff(step.diff.encode("utf-8", "surrogateescape") + b"\n")
    for one in replayed.outputs:
        if one.status == "diverged":
            output.line()
            output.line(Styled(f"output {one.name} differs: {one.reason}", "bold"))
            output.diff(one.diff.encode("utf-8", "surrogateescape") + b"\n")
    _show_around(output, replayed)
    output.line(*_headline(replayed, with_reason=first not in shown))


def _show_around(output: Output, replayed: Replayed) -> None:
    for one in replayed.drift:
        output.note(drift_text(one))
    for note in replayed.notes:
        output.note(note)
    isolation = replayed.isolation
    if any(step.exit is not None for step in replayed.steps):
        output.line(Styled(f"strategy: {isolation.strategy} ({isolation.reason})", "dim"))
    scopes = scopes_of(replayed)
    if scopes:
        output.line(Styled(f"scopes: {','.join(scopes)}", "dim"))
    if replayed.kept:
        output.line(f"the tree is left in {replayed.kept}")


def drift_text(one: Drift) -> str:
    return f"{one.name} was {one.recorded or 'unknown'}, here it is {one.present}"


def _row(step: StepReport) -> tuple[str | Styled, ...]:
    word = step.status if step.ran or step.status != MATCHED else "kept"
    what = (
        f"{step.about}  {step.reason}" if step.reason and step.about else step.about or step.reason
    )
    return (
        Styled(str(step.at), "dim"),
        Styled(word, _COLORS.get(step.status, "plain") if word != "kept" else "dim"),
        step.tool,
        what.replace("\n", " "),
    )


def _headline(replayed: Replayed, *, with_reason: bool = True) -> list[str | Styled]:
    steps = replayed.steps
    matched = sum(step.status == MATCHED and step.ran for step in steps)
    kept = sum(not step.ran and step.status == MATCHED for step in steps)
    pieces: list[str | Styled] = [
        Styled(replayed.fidelity, _COLORS[replayed.fidelity]),
        f"  {uri_of(replayed.ref)[: len('ctx://') + len(short(replayed.ref))]}",
        f"  {matched} of {len(steps)} steps matched",
    ]
    if kept:
        pieces.append(f", {kept} kept as recorded")
    first = first_divergence(steps)
    if first is not None:
        what = f"{first.tool} {first.about}".strip()
        pieces.append(f"; first: step {first.at} ({what}) {first.status}")
        if with_reason:
            pieces.append(f": {first.reason}")
    elif replayed.fidelity == "degraded":
        pieces.append("; an output differs")
    return pieces
