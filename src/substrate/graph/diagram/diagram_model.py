"""What a picture shows: modules and their imports, or a change and what it can break.

A picture is for looking at: at most `MOST_NODES` boxes. Files are drawn one by one while they fit,
and gathered by directory when they do not.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from substrate.graph.delta import Delta
from substrate.graph.gather import MOST_NODES, gathered
from substrate.graph.snapshot import Snapshot
from substrate.model.paths import display


class Node(NamedTuple):
    #: The path of a file, or a directory with a slash at its end.
    name: str
    files: int
    #: "", "changed" or "impacted".
    state: str = ""
    #: Lines for the one who points at it.
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
    """Who imports whom, over the whole project or below `scope`."""
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
    """The changed files and those that use what changed, with an arrow from user to used."""
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
