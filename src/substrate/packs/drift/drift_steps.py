"""Pair the steps of two packs, and describe how each pair differs.

Pairs are searched from the surest to the vaguest match, each time between the pairs found before:

    1  the same call with the same output      2  the same call
    3  the same call somewhere else: moved     4  the same tool: other parameters
    5  the same position: another tool         the remaining steps were added or removed
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

from substrate.model import Pair, common, gaps
from substrate.packs.drift.content_diff import diff_contents
from substrate.packs.drift.drift_types import Drift, compared
from substrate.packs.format import Step, canonical_bytes
from substrate.packs.store import Objects


class _Entry(NamedTuple):
    """A drift and its sort key: the position in A, then the order at that position."""

    at: tuple[int, int, int]
    drift: Drift


def step_drifts(objects: Objects, a: Sequence[Step], b: Sequence[Step]) -> list[Drift]:
    """Every difference between two lists of steps, in the order of the steps."""
    calls_a, calls_b = [_call(step) for step in a], [_call(step) for step in b]
    same = common(
        [(call, step.output_ref) for call, step in zip(calls_a, a, strict=True)],
        [(call, step.output_ref) for call, step in zip(calls_b, b, strict=True)],
    )
    pairs = _within_gaps(same, calls_a, calls_b)
    moved = _moved(pairs, calls_a, calls_b)
    taken_a, taken_b = {pair.a for pair in moved}, {pair.b for pair in moved}
    pairs = _within_gaps(
        pairs,
        [-1 - n if n in taken_a else step.tool for n, step in enumerate(a)],
        [None if n in taken_b else step.tool for n, step in enumerate(b)],
    )
    entries = [*_changed(objects, pairs, a, b), *_changed(objects, moved, a, b)]
    next_b, next_a = [pair.b for pair in pairs], [*(pair.a for pair in pairs), len(a)]
    for first, last in _runs(moved):
        where = min(first.a, next_a[bisect_left(next_b, first.b)])
        entries.append(_Entry((where, 0, first.b), _move(first, last, a, b)))
    for left, right in gaps(pairs, len(a), len(b)):
        rest_a = [n for n in left if n not in taken_a]
        rest_b = [n for n in right if n not in taken_b]
        entries += _left_over(rest_a, rest_b, left.stop, a, b)
    return [entry.drift for entry in sorted(entries, key=lambda entry: entry.at)]


def _call(step: Step) -> tuple[Hashable, ...]:
    return step.type, step.tool, canonical_bytes(compared(step.parameters)), step.deterministic


def _within_gaps(
    pairs: Sequence[Pair], keys_a: Sequence[Hashable], keys_b: Sequence[Hashable]
) -> list[Pair]:
    """`pairs`, plus the pairs between them that a vaguer key finds."""
    found = list(pairs)
    for left, right in gaps(pairs, len(keys_a), len(keys_b)):
        if left and right:
            inner = common([keys_a[n] for n in left], [keys_b[n] for n in right])
            found += [Pair(left[x], right[y]) for x, y in inner]
    return sorted(found)


def _moved(
    pairs: Sequence[Pair], calls_a: Sequence[Hashable], calls_b: Sequence[Hashable]
) -> list[Pair]:
    """Pair unpaired calls that are at another position on the other side."""
    paired_b = {pair.b for pair in pairs}
    places: dict[Hashable, list[int]] = {}
    for n in range(len(calls_b) - 1, -1, -1):
        if n not in paired_b:
            places.setdefault(calls_b[n], []).append(n)
    paired_a = {pair.a for pair in pairs}
    found = []
    for n, call in enumerate(calls_a):
        if n not in paired_a and places.get(call):
            found.append(Pair(n, places[call].pop()))
    return found


def _changed(
    objects: Objects, pairs: Sequence[Pair], a: Sequence[Step], b: Sequence[Step]
) -> Iterator[_Entry]:
    for x, y in pairs:
        for drift in _differences(objects, a[x], b[y]):
            yield _Entry((x, 1, y), drift)


def _differences(objects: Objects, old: Step, new: Step) -> Iterator[Drift]:
    step = old.index
    if old.type != new.type:
        said = f"step {step}: {old.tool} is of type {new.type}, not {old.type}"
        yield Drift("tool_drift", said, step, old.type, new.type)
    was, now = compared(old.parameters), compared(new.parameters)
    if canonical_bytes(was) != canonical_bytes(now):
        said = f"step {step}: {old.tool} called with other parameters ({_changed_names(was, now)})"
        yield Drift("param_drift", said, step, was, now)
    if old.deterministic != new.deterministic:
        said = f"step {step}: {old.tool} is {_how(new)}, not {_how(old)}"
        yield Drift("tool_drift", said, step, old.deterministic, new.deterministic)
    if old.output_ref != new.output_ref:
        said = f"step {step}: {old.tool} gave another output"
        content = diff_contents(objects, old.output_ref, new.output_ref)
        yield Drift("reasoning_drift", said, step, old.output_ref, new.output_ref, content)


def _runs(moved: Sequence[Pair]) -> Iterator[tuple[Pair, Pair]]:
    """First and last of each run of steps that moved together."""
    start = 0
    for n, pair in enumerate(moved):
        if n + 1 == len(moved) or moved[n + 1] != Pair(pair.a + 1, pair.b + 1):
            yield moved[start], pair
            start = n + 1


def _move(first: Pair, last: Pair, a: Sequence[Step], b: Sequence[Step]) -> Drift:
    start_a, start_b = a[first.a].index, b[first.b].index
    if first == last:
        said = f"step {start_a}: {a[first.a].tool} comes as step {start_b}"
    else:
        end_a, end_b = a[last.a].index, b[last.b].index
        said = f"steps {start_a} to {end_a} come as steps {start_b} to {end_b}"
    tools = [step.tool for step in a[first.a : last.a + 1]]
    return Drift(
        "tool_drift",
        said,
        min(start_a, start_b),
        {"index": start_a, "tools": tools},
        {"index": start_b, "tools": tools},
    )


def _left_over(
    left: Sequence[int], right: Sequence[int], end: int, a: Sequence[Step], b: Sequence[Step]
) -> Iterator[_Entry]:
    for x, y in zip(left, right, strict=False):
        step = a[x].index
        said = f"step {step}: {b[y].tool} instead of {a[x].tool}"
        yield _Entry((x, 1, y), Drift("tool_drift", said, step, _told(a[x]), _told(b[y])))
    for x in left[len(right) :]:
        step = a[x].index
        drift = Drift("tool_drift", f"step {step}: {a[x].tool} was removed", step, _told(a[x]))
        yield _Entry((x, 1, 0), drift)
    for y in right[len(left) :]:
        step = b[y].index
        said = f"step {step}: {b[y].tool} was added"
        yield _Entry((end, 0, y), Drift("tool_drift", said, step, None, _told(b[y])))


def _told(step: Step) -> dict[str, object]:
    return {"tool": step.tool, "type": step.type, "parameters": step.parameters}


def _changed_names(old: Mapping[str, object], new: Mapping[str, object]) -> str:
    names = [
        name
        for name in sorted({*old, *new})
        if (name in old) != (name in new)
        or canonical_bytes(old[name]) != canonical_bytes(new[name])
    ]
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


def _how(step: Step) -> str:
    return "deterministic" if step.deterministic else "not deterministic"
