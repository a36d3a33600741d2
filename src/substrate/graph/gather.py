"""Which files share a box, when there are more than a picture can show.

Directories are folded one by one, and only as many as need be: first whole ones that use others and
that nobody uses (tests, examples, scripts), then the largest of the deepest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

MOST_NODES = 40
#: Beyond this many boxes whole levels are folded, so that the choice below stays quick.
_MANY = 400
#: So many others must be left when a directory is folded for being used by nobody.
_LEFT = 5


def gathered(paths: list[str], uses: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Path -> the box it is drawn in. `uses`: who imports whom."""
    boxes = {path: path for path in paths}
    depth = max((path.count("/") for path in paths), default=0)
    while len(set(boxes.values())) > _MANY and depth > 0:
        boxes = {path: _cut(path, depth) for path in paths}
        depth -= 1
    edges = {(boxes[source], boxes[target]) for source, target in uses}
    while len(set(boxes.values())) > MOST_NODES:
        directory = _next_to_fold(set(boxes.values()), edges)
        if directory is None:
            return _by_size(boxes)
        boxes = {path: _folded(box, directory) for path, box in boxes.items()}
        edges = {(_folded(a, directory), _folded(b, directory)) for a, b in edges}
    return boxes


def _next_to_fold(boxes: set[str], edges: set[tuple[str, str]]) -> str | None:
    below: Counter[str] = Counter(outer for box in boxes for outer in _above(box))
    candidates = {name for name, count in below.items() if count > 1}
    used = {outer for a, b in edges for outer in _above(b) if not a.startswith(outer)}
    users = {outer for a, b in edges for outer in _above(a) if not b.startswith(outer)}
    only_users = [n for n in candidates & users - used if len(boxes) - below[n] >= _LEFT]
    if only_users:
        return min(only_users, key=lambda name: (-below[name], name))
    outer = {above for name in candidates for above in _above(name.removesuffix("/"))}
    return min(candidates - outer, key=lambda name: (-below[name], name), default=None)


def _by_size(boxes: dict[str, str]) -> dict[str, str]:
    """Hundreds of files side by side: those of the root stay together."""
    tops = {path: path.partition("/")[0] + "/" if "/" in path else "./" for path in boxes}
    biggest = {name for name, _ in Counter(tops.values()).most_common(MOST_NODES - 1)}
    return {path: name if name in biggest else "(others)/" for path, name in tops.items()}


def _above(box: str) -> list[str]:
    """The directories that a box lies in, each with a slash at its end; not the root."""
    parts = box.removesuffix("/").split("/")[:-1]
    return ["/".join(parts[: n + 1]) + "/" for n in range(len(parts))]


def _folded(box: str, directory: str) -> str:
    return directory if box.startswith(directory) else box


def _cut(path: str, depth: int) -> str:
    parts = path.split("/")
    return path if len(parts) <= depth else "/".join(parts[:depth]) + "/"
