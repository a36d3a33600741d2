"""The impact of a change: of a revision, or of a command that Substrate recorded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from substrate.errors import NotFoundError
from substrate.graph.index import Delta, Snapshot, compare, parents_of
from substrate.history.query import resolve_id
from substrate.history.store import Entry
from substrate.recorder.code_graph.graph_location import Graph, Progress, open_graph
from substrate.recorder.session_context import Place

#: Arguments that can only be Substrate's ids: commands, sessions, spans, ``@~2``.
_RECORDED = re.compile(r"(?:c-|s-|spn_|@(?:~\d+)?\Z)")


class Impact(NamedTuple):
    #: None: the change left no trace in any file.
    delta: Delta | None
    #: The command, if the change is a recorded command.
    entry: Entry | None


def impact_of(cwd: Path, text: str, place: Place, progress: Progress) -> Impact:
    """What the change named by `text` did, and what it may break."""
    if _RECORDED.match(text):
        return _of_command(cwd, text, place, progress)
    try:
        return _of_revision(cwd, text, progress)
    except NotFoundError as error:
        try:
            return _of_command(cwd, text, place, progress)
        except NotFoundError:
            raise error from None


def delta_between(cwd: Path, base: str, head: str, progress: Progress) -> Delta:
    """The difference between two revisions; both are indexed if necessary."""
    with open_graph(cwd, progress=progress) as graph:
        return compare(_snapshot(graph, base), _snapshot(graph, head))


def _of_revision(cwd: Path, text: str, progress: Progress) -> Impact:
    with open_graph(cwd, progress=progress) as graph:
        head = _snapshot(graph, text)
        try:
            base = _snapshot(graph, f"{head.commit.hex()}^1")
        except NotFoundError:
            _, raw = graph.repository.read_commit(head.commit.hex())
            if parents_of(raw):
                raise NotFoundError(
                    f"the commit before {text} is not in this clone",
                    hint="`git fetch --unshallow` brings what came before",
                ) from None
            return Impact(None, None)  # the first commit: there was nothing to break
        return Impact(compare(base, head), None)


def _of_command(cwd: Path, text: str, place: Place, progress: Progress) -> Impact:
    with place.existing_history() as store:
        entry = resolve_id.resolve(store, text, place.session).present
        parents = store.objects.read_commit(entry.commit).parents if entry.commit else ()
        store.publish_refs()
    if entry.commit is None or not parents:
        return Impact(None, entry)
    with open_graph(cwd, history=True, progress=progress) as graph:
        base = _snapshot(graph, parents[0].hex())
        return Impact(compare(base, _snapshot(graph, entry.commit.hex())), entry)


def _snapshot(graph: Graph, revision: str) -> Snapshot:
    indexed = graph.index(graph.resolve(revision))
    return Snapshot(indexed.commit, indexed.directory)


def snapshot_at(cwd: Path, revision: str | None, progress: Progress) -> Snapshot:
    """The snapshot of a revision (default HEAD), indexed if necessary."""
    with open_graph(cwd, progress=progress) as graph:
        return _snapshot(graph, revision or "HEAD")
