"""Gather the code that a task needs."""

from __future__ import annotations

from pathlib import Path

from substrate.graph.index import Snapshot
from substrate.graph.query import Context, fill
from substrate.recorder.code_graph.graph_location import Progress, open_graph


def gather(
    cwd: Path, task: str, token_cap: int, revision: str | None, progress: Progress
) -> Context:
    """The context for `task` as of a revision (default HEAD), indexed if necessary."""
    with open_graph(cwd, progress=progress) as graph:
        indexed = graph.index(graph.resolve(revision or "HEAD"))
        snapshot = Snapshot(indexed.commit, indexed.directory)
        known: dict[bytes, list[str]] = {}

        def read_lines(path: bytes) -> list[str]:
            if path not in known:
                oid = snapshot.sections.oids[snapshot.sections.find(path)]
                ((_, data),) = graph.repository.read_blobs([oid])
                text = data.decode("utf-8", "replace")
                known[path] = [line + "\n" for line in text.splitlines()]
            return known[path]

        return fill(snapshot, task, token_cap, read_lines)
