"""A layered layout: users above, what they use below, few crossings. Simple and deterministic.

1  names that use each other in a cycle belong together
2  each cycle, or single name, goes one layer below the lowest of its users
3  a few sweeps order each layer by the average position of its neighbours
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

_SWEEPS = 8
_WIDEST = 6


class Spot(NamedTuple):
    layer: int
    place: int


def lay_out(names: list[str], edges: Iterable[tuple[str, str]]) -> dict[str, Spot]:
    """The position of each name: a layer from the top, and a place in it."""
    users: dict[str, list[str]] = {name: [] for name in names}
    used: dict[str, list[str]] = {name: [] for name in names}
    for source, target in sorted(set(edges)):
        if source != target:
            users[target].append(source)
            used[source].append(target)
    layers = _split_wide(_layers(names, used))
    for sweep in range(_SWEEPS):
        _order(layers, users if sweep % 2 == 0 else used, downwards=sweep % 2 == 0)
    return {
        name: Spot(depth, place)
        for depth, layer in enumerate(layers)
        for place, name in enumerate(layer)
    }


def _circles(names: list[str], used: dict[str, list[str]]) -> dict[str, str]:
    """Name -> the first name of its cycle (itself, if it is in none).

    Tarjan's algorithm, without recursion.
    """
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    circle: dict[str, str] = {}
    waiting: list[str] = []
    for root in names:
        walk = [(root, iter(used[root]))] if root not in number else []
        while walk:
            here, rest = walk[-1]
            if here not in number:
                number[here] = lowest[here] = len(number)
                waiting.append(here)
            there = next((n for n in rest if n not in circle), None)
            if there is not None:
                if there in number:
                    lowest[here] = min(lowest[here], number[there])
                else:
                    walk.append((there, iter(used[there])))
                continue
            walk.pop()
            if walk:
                above = walk[-1][0]
                lowest[above] = min(lowest[above], lowest[here])
            if lowest[here] == number[here]:
                members = waiting[waiting.index(here) :]
                del waiting[waiting.index(here) :]
                circle.update(dict.fromkeys(members, min(members)))
    return circle


def _layers(names: list[str], used: dict[str, list[str]]) -> list[list[str]]:
    circle = _circles(names, used)
    below: dict[str, set[str]] = {circle[name]: set() for name in names}
    for name in names:
        below[circle[name]] |= {circle[other] for other in used[name]} - {circle[name]}
    users = Counter(other for others in below.values() for other in others)
    depth = dict.fromkeys(below, 0)
    ready = sorted(name for name in below if not users[name])
    while ready:
        name = ready.pop(0)
        for other in sorted(below[name]):
            depth[other] = max(depth[other], depth[name] + 1)
            users[other] -= 1
            if not users[other]:
                ready.append(other)
    layers: list[list[str]] = [[] for _ in range(max(depth.values(), default=0) + 1)]
    for name in names:
        layers[depth[circle[name]]].append(name)
    return [layer for layer in layers if layer]


def _split_wide(layers: list[list[str]]) -> list[list[str]]:
    """Split a row of many boxes into several, so that it stays readable."""
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
