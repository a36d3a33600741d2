"""Drift for people: `ctx diff --human`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from substrate.cli.frame import Output, Style, Styled, clip, safe, width
from substrate.recorder.packing import is_ref, short

if TYPE_CHECKING:
    from substrate.recorder.packing import ContentDiff, Drift, DriftReport, Line

#: The width for two columns of text and the line between them.
_SIDE_BY_SIDE = 110
_STYLES: dict[str, Style] = {"-": "red", "+": "green", " ": "plain"}


def show_report(output: Output, report: DriftReport) -> None:
    output.line(
        "a ", Styled(short(report.ref_a), "cyan"), "   b ", Styled(short(report.ref_b), "cyan")
    )
    if not report.has_drift:
        output.line(Styled("no drift", "green"))
        return
    count = len(report.entries)
    output.line(f"{count} difference" + ("" if count == 1 else "s"))
    for drift in report.entries:
        output.line("")
        output.line(Styled(f"{drift.type:<18}", "yellow"), Styled(drift.description, "bold"))
        _show_sides(output, drift)


def _show_sides(output: Output, drift: Drift) -> None:
    if drift.content is not None:
        _show_content(output, drift.content)
        return
    old, new = drift.a, drift.b
    if drift.type == "param_drift" and isinstance(old, Mapping) and isinstance(new, Mapping):
        same = {name for name in old if name in new and old[name] == new[name]}
        old = {name: value for name, value in old.items() if name not in same}
        new = {name: value for name, value in new.items() if name not in same}
    for sign, value in (("-", old), ("+", new)):
        if value is not None:
            output.line("  ", Styled(f"{sign} {_value(value)}", _STYLES[sign]))


def _show_content(output: Output, content: ContentDiff) -> None:
    columns = output.columns
    for hunk in content.hunks:
        output.line("  ", Styled(f"{_where(hunk)}", "cyan"))
        if output.is_terminal and columns >= _SIDE_BY_SIDE:
            _side_by_side(output, hunk, (columns - 7) // 2)
        else:
            for line in hunk:
                output.line("  ", Styled(line.sign + line.text, _STYLES[line.sign]))
    if content.summary:
        output.line("  ", Styled(content.summary, "dim"))


def _side_by_side(output: Output, hunk: Sequence[Line], room: int) -> None:
    """Show removed lines beside the added lines that follow them."""
    at = 0
    while at < len(hunk):
        if hunk[at].sign == " ":
            text = _fit(hunk[at].text, room)
            output.line("  ", text, " │ ", text.rstrip())
            at += 1
            continue
        removed = _run(hunk, at, "-")
        added = _run(hunk, at + len(removed), "+")
        for old, new in zip_longest(removed, added):
            left = Styled(_fit(old.text if old else "", room), "red")
            right = Styled(clip(safe(new.text), room) if new else "", "green")
            output.line("  ", left, " │ ", right)
        at += len(removed) + len(added)


def _run(hunk: Sequence[Line], at: int, sign: str) -> list[Line]:
    found = []
    while at < len(hunk) and hunk[at].sign == sign:
        found.append(hunk[at])
        at += 1
    return found


def _fit(text: str, room: int) -> str:
    cut = clip(safe(text), room)
    return cut + " " * (room - width(cut))


def _where(hunk: Sequence[Line]) -> str:
    a = next((line.a for line in hunk if line.a), 0)
    b = next((line.b for line in hunk if line.b), 0)
    return f"@@ a: line {a}, b: line {b} @@"


def _value(value: object) -> str:
    if isinstance(value, str):
        return short(value) if is_ref(value) else value
    return json.dumps(value, ensure_ascii=False)
