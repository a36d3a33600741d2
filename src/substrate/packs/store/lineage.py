"""All packs of a store as a tree: which pack was forked from which."""

from __future__ import annotations

import heapq
import os
from collections.abc import Sequence
from typing import NamedTuple

from substrate.errors import SubstrateError
from substrate.packs.format import NO_TIME, hex_of, instant_ns
from substrate.packs.store.ctx_store import Store


class Entry(NamedTuple):
    """One pack in a list of packs."""

    ref: str
    created: str
    model: str
    steps: int
    outputs: int
    parent: str
    #: Empty, or why the manifest cannot be read.
    damage: str
    #: When it was made; if that was not recorded, when it was packed here.
    at_ns: int


class Row(NamedTuple):
    """A line of the drawing; a line without an entry only connects columns."""

    drawing: str
    entry: Entry | None


def entries(store: Store) -> list[Entry]:
    """Every pack, newest first, but each pack after all of its forks."""
    found = {ref: _entry(store, ref) for ref in store.packs()}
    waiting_for = dict.fromkeys(found, 0)
    for entry in found.values():
        if entry.parent in waiting_for:
            waiting_for[entry.parent] += 1
    ready = [(-entry.at_ns, ref) for ref, entry in found.items() if not waiting_for[ref]]
    heapq.heapify(ready)
    out = []
    while ready:
        _, ref = heapq.heappop(ready)
        out.append(found[ref])
        parent = found[ref].parent
        if parent in waiting_for:
            waiting_for[parent] -= 1
            if not waiting_for[parent]:
                heapq.heappush(ready, (-found[parent].at_ns, parent))
    return out


def draw(listed: Sequence[Entry]) -> list[Row]:
    """The tree beside the list, like `git log --graph`.

    Each column is a line down to a pack further below: the parent of the forks above.
    """
    there = {entry.ref for entry in listed}
    columns: list[str] = []
    rows: list[Row] = []
    for entry in listed:
        mine = [n for n, wanted in enumerate(columns) if wanted == entry.ref]
        if len(mine) > 1:
            rows.append(Row(_join(len(columns), mine), None))
            columns = [wanted for n, wanted in enumerate(columns) if n not in mine[1:]]
        if not mine:
            columns.append(entry.ref)
        here = columns.index(entry.ref)
        rows.append(Row(" ".join("*" if n == here else "│" for n in range(len(columns))), entry))
        if entry.parent in there:
            columns[here] = entry.parent
        else:
            del columns[here]
            if here < len(columns):
                rows.append(Row(_close(len(columns), here), None))
    return rows


def _join(width: int, mine: Sequence[int]) -> str:
    """Several forks lead to one parent:  │ │ │  ->  ├─┴─┘"""
    out = []
    for n in range(width):
        inside = mine[0] < n < mine[-1]
        if n == mine[0]:
            mark = "├"
        elif n == mine[-1]:
            mark = "┘"
        elif inside:
            mark = "┴" if n in mine else "┼"
        else:
            mark = "│"
        out.append(mark)
        if n + 1 < width:
            out.append("─" if mine[0] <= n < mine[-1] else " ")
    return "".join(out)


def _close(width: int, gone: int) -> str:
    """A line ends and the lines to its right move left:  * │ │  ->  ╭─╯"""
    kept = " ".join("│" * gone)
    moved = " ".join("╱" * (width - gone))
    return f"{kept} {moved}".strip() if gone else moved


def _entry(store: Store, ref: str) -> Entry:
    packed_ns = _packed_ns(store, ref)
    try:
        manifest = store.load(ref).manifest
    except SubstrateError as error:
        return Entry(ref, "", "", 0, 0, "", error.message, packed_ns)
    at_ns = packed_ns if manifest.created == NO_TIME else instant_ns(manifest.created)
    return Entry(
        ref,
        "" if manifest.created == NO_TIME else manifest.created,
        manifest.model.identifier,
        len(manifest.steps),
        len(manifest.outputs),
        manifest.parent,
        "",
        at_ns,
    )


def _packed_ns(store: Store, ref: str) -> int:
    try:
        return os.stat(store.packs_dir / hex_of(ref)).st_mtime_ns
    except FileNotFoundError:
        return 0
