"""A layered drawing: users above, what they use below, few crossings. Plain and deterministic.

1  cycles are broken by turning round the edges that close them
2  each node goes one layer below the lowest of its users
3  a few sweeps order each layer by the average place of its neighbours
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

_SWEEPS = 8
_WIDEST = 6


class Spot(NamedTuple):
    layer: int
    place: int


def lay_out(names: list[str], edges: Iterable[tuple[str, str]]) -> dict[str, Spot]:
    """Where each name goes: a layer from the top, and a place in it."""
    down = _acyclic(names, sorted(set(edges)))
    users: dict[str, list[str]] = {name: [] for name in names}
    used: dict[str, list[str]] = {name: [] for name in names}
    for source, target in down:
        users[target].append(source)
        used[source].append(target)
    layers = _split_wide(_layers(names, users, used))
    for sweep in range(_SWEEPS):
        _order(layers, users if sweep % 2 == 0 else used, downwards=sweep % 2 == 0)
    return {
        name: Spot(depth, place)
        for depth, layer in enumerate(layers)
        for place, name in enumerate(layer)
    }


def _acyclic(names: list[str], edges: list[tuple[str, str]]) -> list[tuple[str, str]]:
    out: dict[str, list[str]] = {name: [] for name in names}
    for source, target in edges:
        if source != target:
            out[source].append(target)
    state: dict[str, int] = {}
    kept: list[tuple[str, str]] = []
    for root in names:
        if root in state:
            continue
        state[root] = 1
        stack = [(root, iter(out[root]))]
        while stack:
            here, rest = stack[-1]
            there = next(rest, None)
            if there is None:
                state[here] = 2
                stack.pop()
            elif state.get(there) == 1:
                kept.append((there, here))  # closes a cycle: turned round
            else:
                kept.append((here, there))
                if there not in state:
                    state[there] = 1
                    stack.append((there, iter(out[there])))
    return sorted(set(kept))


def _layers(
    names: list[str], users: dict[str, list[str]], used: dict[str, list[str]]
) -> list[list[str]]:
    waiting = {name: len(set(users[name])) for name in names}
    depth = dict.fromkeys(names, 0)
    ready = [name for name in names if not waiting[name]]
    while ready:
        name = ready.pop(0)
        for below in sorted(set(used[name])):
            depth[below] = max(depth[below], depth[name] + 1)
            waiting[below] -= 1
            if not waiting[below]:
                ready.append(below)
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=0) + 1)]
    for name in names:
        layers[depth[name]].append(name)
    return [layer for layer in layers if layer]


def _split_wide(layers: list[list[str]]) -> list[list[str]]:
    """A row of thirty boxes cannot be read: it becomes several."""
    return [layer[at : at + _WIDEST] for layer in layers for at in range(0, len(layer), _WIDEST)]


def _order(layers: list[list[str]], near: dict[str, list[str]], *, downwards: bool) -> None:
    place = {name: p / max(1, len(layer) - 1) for layer in layers for p, name in enumerate(layer)}
    for layer in layers if downwards else reversed(layers):

        def wanted(name: str) -> tuple[float, str]:
            around = near[name]
            mean = sum(place[other] for other in around) / len(around) if around else place[name]
            return mean, name

        layer.sort(key=wanted)
        for p, name in enumerate(layer):
            place[name] = p / max(1, len(layer) - 1)
