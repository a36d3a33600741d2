"""From a commit to its snapshot: believed if it is there, spliced from a neighbour, or made whole.

The work happens in a scratch directory beside the snapshots; the completion marker is its last
file, and a rename brings it in. One indexer at a time: the others wait, then find it done.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from substrate.errors import NotFoundError
from substrate.graph.layout import MARKER, Layout, Marker, read_marker, write_marker
from substrate.objects.repository import Repository, TreeChange
from substrate.system.files import remove_tree
from substrate.system.locks import FileLock

if TYPE_CHECKING:
    from substrate.graph.cache import Cache
    from substrate.graph.incremental import Update
    from substrate.graph.section import Section

# What parses, compresses and encodes is imported where it is used: "already indexed" is answered
# without any of it.

Progress = Callable[[str, int, int], None]

#: A cold index of a giant tree by somebody else may take minutes.
_LOCK_TIMEOUT_S = 900.0
#: How many first parents are looked at for a snapshot to start from.
_ANCESTORS = 50
#: With more changed files than this (or a third of all), the whole tree is done anew.
_MANY_CHANGES = 400


def quiet(label: str, done: int, total: int) -> None:
    """A progress report nobody reads."""


def ensure(
    layout: Layout, repository: Repository, commit: bytes, repo_name: str,
    progress: Progress = quiet,
) -> tuple[Marker, bool]:  # fmt: skip
    """Make sure that the commit's snapshot is there, plain. Returns its marker, and if it was."""
    directory = layout.snapshot(commit)
    marker = read_marker(directory)
    if marker is not None:
        with suppress(OSError):  # somebody else's, or on a disk that may only be read
            os.utime(directory / MARKER)
        return marker, True
    layout.make()
    lock = FileLock(layout.lock)
    lock.acquire(_LOCK_TIMEOUT_S, "index")
    try:
        marker = read_marker(directory)
        if marker is None:
            _sweep(layout)
            return _make(layout, repository, commit, repo_name, progress), False
        return marker, True
    finally:
        lock.release()


class _Made(NamedTuple):
    """How a snapshot came to be; for a spliced one, what its neighbour had instead."""

    added: list[bytes]
    gone: list[bytes]
    base: bytes = b""
    replaced: list[tuple[bytes, Section | None]] = []  # noqa: RUF012  a tuple: never changed
    base_counts: dict[str, int] = {}  # noqa: RUF012


def _import_msgspec() -> None:
    """Without `typing_extensions`, which it takes where others have installed it.

    That is a third of its import, for what Python has itself since 3.11.
    """
    extras = "typing_extensions"
    if "msgspec" in sys.modules or extras in sys.modules:
        return
    sys.modules[extras] = None  # type: ignore[assignment]  # "not there", to whoever asks
    try:
        import msgspec  # noqa: F401
    finally:
        del sys.modules[extras]


def _sweep(layout: Layout) -> None:
    """What a killed indexer left."""
    for leftover in layout.snapshots.glob(".tmp-*"):
        remove_tree(leftover)


def _make(
    layout: Layout, repository: Repository, commit: bytes, repo_name: str, progress: Progress
) -> Marker:
    _import_msgspec()
    from substrate.graph import fold

    scratch = layout.snapshots / f".tmp-{commit.hex()}"
    scratch.mkdir(mode=0o700)
    made: _Made | None = None
    try:
        if not fold.unfold(layout, commit, scratch):
            made = _index(layout, repository, commit, repo_name, scratch, progress)
        marker = read_marker(scratch)
        assert marker is not None
        remove_tree(layout.snapshot(commit))  # incomplete, or of another version
        os.rename(scratch, layout.snapshot(commit))
    except BaseException:
        remove_tree(scratch)
        raise
    # Only now: a fold must never stand on a snapshot that did not come to be.
    if made is not None and made.base and fold.read_fold(layout, made.base) is None:
        fold.write_fold(layout, made.base, commit, made.replaced, made.base_counts)
    fold.make_room(layout, commit)
    return marker


def _index(
    layout: Layout, repository: Repository, commit: bytes, repo_name: str,
    scratch: Path, progress: Progress,
) -> _Made:  # fmt: skip
    from substrate.graph import manifests
    from substrate.graph.cache import Cache

    _, raw = repository.read_commit(commit.hex())
    cache = Cache(layout.cache)
    try:
        near = _neighbour(layout, repository, commit, raw)
        if near is not None:
            made = _update(layout, repository, cache, near[0], near[1], scratch)
        else:
            made = _whole(repository, cache, commit, scratch, progress)
    finally:
        cache.close()
    manifests.add_commit(layout, manifests.commit_record(repo_name, commit, raw))
    manifests.add_paths(layout, repo_name, commit, made.added, made.gone, made.base)
    return made


def _whole(
    repository: Repository, cache: Cache, commit: bytes, scratch: Path, progress: Progress
) -> _Made:
    from substrate.graph.cold import ColdIndex, DamagedCacheError

    entries = repository.list_tree(commit)
    cold = ColdIndex(repository, cache, scratch)
    try:
        sections = cold.run(entries, progress)
    except DamagedCacheError:
        cache.clear()
        cold = ColdIndex(repository, cache, scratch)
        sections = cold.run(entries, progress)
    write_marker(scratch, cold.counts)
    return _Made(sections.paths, [])


def _neighbour(
    layout: Layout, repository: Repository, commit: bytes, raw: bytes
) -> tuple[bytes, list[TreeChange]] | None:
    """A plain snapshot not far from `commit`, and what differs."""
    from substrate.graph import fold

    plain = fold.plain_snapshots(layout)
    if not plain:
        return None
    base = _ancestor(repository, set(plain), raw)
    marker = read_marker(layout.snapshot(base or plain[0]))
    if base is not None:
        changes = repository.tree_changes(base, commit)
    else:
        base = plain[0]
        changes = _compared(layout, repository, base, commit)
    files = marker.counts.get("files", 0) if marker else 0
    return (base, changes) if len(changes) <= max(_MANY_CHANGES, files // 3) else None


def _ancestor(repository: Repository, plain: set[bytes], raw: bytes) -> bytes | None:
    from substrate.graph.manifests import parents_of

    for _ in range(_ANCESTORS):
        parents = parents_of(raw)
        if not parents:
            return None
        for parent in parents:
            if parent in plain:
                return parent
        try:
            _, raw = repository.read_commit(parents[0].hex())
        except NotFoundError:  # a shallow clone
            return None
    return None


def _compared(
    layout: Layout, repository: Repository, base: bytes, commit: bytes
) -> list[TreeChange]:
    """For a snapshot of another line, or of another repository: path by path."""
    from substrate.graph.sections import Sections

    table = Sections.load(layout.snapshot(base))
    before = dict(zip(table.paths, table.oids, strict=True))
    links = {path for path, key in zip(table.paths, table.keys, strict=True) if key == "@link"}
    changes = []
    for entry in repository.list_tree(commit):
        same_kind = (entry.mode == b"120000") == (entry.path in links)
        if before.pop(entry.path, None) != entry.oid or not same_kind:
            changes.append(TreeChange(entry.path, entry.mode, entry.oid))
    return changes + [TreeChange(path, b"000000", b"") for path in before]


def _update(
    layout: Layout, repository: Repository, cache: Cache, base: bytes,
    changes: list[TreeChange], scratch: Path,
) -> _Made:  # fmt: skip
    from substrate.graph.fact_source import FactSource
    from substrate.graph.incremental import Update
    from substrate.graph.sections import Sections, splice

    directory = layout.snapshot(base)
    table = Sections.load(directory)
    update = Update(directory, table, changes, FactSource(cache, repository))
    update.run()
    new = splice(directory, table, update.edits, scratch, share=layout.shares)
    marker = read_marker(directory)
    before = marker.counts if marker else {}
    write_marker(scratch, _counts(before, update) | {"troubles": sum(new.troubles)})
    return _Made(update.added, update.gone, base, update.replaced, before)


def _counts(before: dict[str, int], update: Update) -> dict[str, int]:
    counts = dict(before)
    for at, name in enumerate(("files", "symbols", "regions", "imports", "calls")):
        for path, old in update.replaced:
            new = update.edits[path]
            counts[name] = (
                counts.get(name, 0)
                + (new.chunks[at].count(b"\n") if new else 0)
                - (old.chunks[at].count(b"\n") if old else 0)
            )
    return counts
