"""What a diagram shows: modules and their imports, or a change and what it can break.

A diagram must be readable: it has at most `MOST_NODES` boxes. Each file has its own box if that
fits; otherwise directories are folded one by one, and only as many as necessary: first those that
use others but are not used themselves (tests, examples, scripts), then the largest of the deepest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from substrate.graph.index import Delta, Snapshot
from substrate.model import display

MOST_NODES = 40
#: Beyond this many boxes whole levels are folded, so that the selection below stays fast.
_MANY = 400
#: How many other boxes must remain when an unused directory is folded.
_LEFT = 5


class Node(NamedTuple):
    #: The path of a file, or a directory with a slash at its end.
    name: str
    files: int
    #: "", "changed" or "impacted".
    state: str = ""
    #: Lines of the tooltip.
    notes: tuple[str, ...] = ()


class Edge(NamedTuple):
    source: str
    target: str
    weight: int


class Picture(NamedTuple):
    title: str
    nodes: list[Node]
    edges: list[Edge]


def of_modules(snapshot: Snapshot, scope: str = "") -> Picture:
    """The imports between modules, in the whole project or below `scope`."""
    paths = {
        row.path_id: row.path
        for row in snapshot.files.values()
        if row.path_id in snapshot.modules and row.path.startswith(scope)
    }
    pairs = Counter(
        (paths[edge.from_path_id], paths[edge.to_path_id])
        for edge in snapshot.imports
        if edge.from_path_id in paths and edge.to_path_id in paths
    )
    groups = gathered(list(paths.values()), pairs)
    sizes = Counter(groups.values())
    edges = Counter[tuple[str, str]]()
    for (source, target), count in pairs.items():
        if groups[source] != groups[target]:
            edges[groups[source], groups[target]] += count
    users = Counter(target for _, target in edges)
    imports = plural(sum(pairs.values()), "import")
    title = f"{plural(len(paths), 'module')}, {imports} between them"
    return Picture(
        title,
        [Node(name, sizes[name]) for name in sorted(sizes, key=lambda n: (-users[n], n))],
        [Edge(*pair, count) for pair, count in sorted(edges.items())],
    )


def of_change(delta: Delta) -> Picture:
    """The changed files and the files that use what changed, with an arrow from user to used."""
    head = delta.head
    notes: dict[str, list[str]] = {}
    for sign, symbols in (("+", delta.symbols_added), ("~", delta.symbols_changed)):
        for symbol in symbols:
            notes.setdefault(head.path_of(symbol), []).append(f"{sign} {symbol.fqname}")
    for symbol in delta.symbols_deleted:
        notes.setdefault(delta.base.path_of(symbol), []).append(f"- {symbol.fqname}")
    changed = {display(p) for p in (*delta.files_added, *delta.files_changed, *delta.files_deleted)}
    changed |= {display(new) for _, new in delta.files_renamed}
    edges = Counter[tuple[str, str]]()
    for symbol_id, reason in delta.invalidated.items():
        user = head.symbol(symbol_id)
        assert user is not None
        used = head.symbol(reason.uses) or delta.base.symbol(reason.uses)
        path = head.path_of(user)
        words = f"{user.fqname} {reason.how} {used.fqname if used else '?'}"
        notes.setdefault(path, []).append(words)
        if used is not None:
            home = head if head.symbol(reason.uses) is not None else delta.base
            edges[path, home.path_of(used)] += 1
    names = sorted(changed | notes.keys())
    kept = _most_telling(names, changed, edges)
    nodes = [
        Node(n, 1, "changed" if n in changed else "impacted", tuple(notes.get(n, ())))
        for n in names
        if n in kept
    ]
    shown = [
        Edge(*pair, count)
        for pair, count in sorted(edges.items())
        if pair[0] != pair[1] and set(pair) <= kept
    ]
    others = len(set(names) - changed)
    title = f"{plural(len(changed), 'file')} changed, {others} more can break"
    if len(kept) < len(names):
        title += f" ({len(kept)} shown)"
    return Picture(title, nodes, shown)


def plural(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _most_telling(names: list[str], changed: set[str], edges: Counter[tuple[str, str]]) -> set[str]:
    weight: Counter[str] = Counter()
    for (source, target), count in edges.items():
        weight[source] += count
        weight[target] += count
    order = sorted(names, key=lambda n: (n not in changed, -weight[n], n))
    return set(order[:MOST_NODES])


def gathered(paths: list[str], uses: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Path -> the box it is drawn in. `uses`: pairs (importing file, imported file)."""
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
    """Hundreds of files in one directory: group by top directory, files of the root together."""
    tops = {path: path.partition("/")[0] + "/" if "/" in path else "./" for path in boxes}
    biggest = {name for name, _ in Counter(tops.values()).most_common(MOST_NODES - 1)}
    return {path: name if name in biggest else "(others)/" for path, name in tops.items()}


def _above(box: str) -> list[str]:
    """The directories above a box, each with a slash at its end; not the root."""
    parts = box.removesuffix("/").split("/")[:-1]
    return ["/".join(parts[: n + 1]) + "/" for n in range(len(parts))]


def _folded(box: str, directory: str) -> str:
    return directory if box.startswith(directory) else box


def _cut(path: str, depth: int) -> str:
    parts = path.split("/")
    return path if len(parts) <= depth else "/".join(parts[:depth]) + "/"
