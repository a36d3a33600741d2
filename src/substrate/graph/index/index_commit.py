"""From a commit to its snapshot: use the existing one, splice a neighbour's, or index everything.

The work happens in a scratch directory beside the snapshots. The completion marker is written last
and a rename publishes the directory. One indexer runs at a time: the others wait, then find the
snapshot complete.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from substrate.errors import DamagedStoreError, NotFoundError
from substrate.graph.index.graph_paths import MARKER, Layout, Marker, read_marker, write_marker
from substrate.objects.git import Repository, TreeChange
from substrate.system.files import remove_tree
from substrate.system.process import uncollected
from substrate.system.sync import FileLock

if TYPE_CHECKING:
    from substrate.graph.index.path_section import Section
    from substrate.graph.index.update_index import Update
    from substrate.graph.parse import Cache

# Modules that parse, compress and encode are imported where they are used: the answer "already
# indexed" needs none of them.

Progress = Callable[[str, int, int], None]

#: Another process may need minutes for the first index of a giant tree.
_LOCK_TIMEOUT_S = 900.0
#: How many first parents to search for a snapshot to start from.
_ANCESTORS = 50
#: With more changed files than this (or a third of all), the whole tree is indexed again.
_MANY_CHANGES = 400


def quiet(label: str, done: int, total: int) -> None:
    """A progress callback that does nothing."""


def ensure(
    layout: Layout, repository: Repository, commit: bytes, repo_name: str,
    progress: Progress = quiet,
) -> tuple[Marker, bool]:  # fmt: skip
    """Make sure that the commit has a plain snapshot. Returns its marker, and if it existed."""
    directory = layout.snapshot(commit)
    marker = read_marker(directory)
    if marker is not None:
        with suppress(OSError):  # of another user, or on a read-only disk
            os.utime(directory / MARKER)
        return marker, True
    layout.make()
    lock = FileLock(layout.lock)
    lock.acquire(_LOCK_TIMEOUT_S, "index")
    try:
        marker = read_marker(directory)
        if marker is None:
            _sweep(layout)
            with uncollected():  # facts and names have no cycles
                return _make(layout, repository, commit, repo_name, progress), False
        return marker, True
    finally:
        lock.release()


class _Made(NamedTuple):
    """How a snapshot was made; for a spliced one, what its neighbour had instead."""

    added: list[bytes]
    gone: list[bytes]
    base: bytes = b""
    replaced: list[tuple[bytes, Section | None]] = []  # noqa: RUF012  a tuple: never changed
    base_counts: dict[str, int] = {}  # noqa: RUF012


def _import_msgspec() -> None:
    """Import msgspec without `typing_extensions`, which it uses if that is installed.

    That is a third of its import time, for features that Python has itself since 3.11.
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
    """Remove what a killed indexer left behind."""
    for leftover in layout.snapshots.glob(".tmp-*"):
        remove_tree(leftover)


def _make(
    layout: Layout, repository: Repository, commit: bytes, repo_name: str, progress: Progress
) -> Marker:
    _import_msgspec()
    from substrate.graph.index import compressed_snapshot

    scratch = layout.snapshots / f".tmp-{commit.hex()}"
    scratch.mkdir(mode=0o700)
    made: _Made | None = None
    try:
        if not compressed_snapshot.unfold(layout, commit, scratch):
            made = _index(layout, repository, commit, repo_name, scratch, progress)
        marker = read_marker(scratch)
        assert marker is not None
        remove_tree(layout.snapshot(commit))  # incomplete, or of another version
        os.rename(scratch, layout.snapshot(commit))
    except BaseException:
        remove_tree(scratch)
        raise
    # Only after the rename: a fold must never be based on a snapshot that does not exist.
    if made is not None and made.base and compressed_snapshot.read_fold(layout, made.base) is None:
        compressed_snapshot.write_fold(layout, made.base, commit, made.replaced, made.base_counts)
    compressed_snapshot.make_room(layout, commit)
    return marker


def _index(
    layout: Layout, repository: Repository, commit: bytes, repo_name: str,
    scratch: Path, progress: Progress,
) -> _Made:  # fmt: skip
    from substrate.graph.index import manifests
    from substrate.graph.parse import Cache

    _, raw = repository.read_commit(commit.hex())
    cache = Cache(layout.cache)
    try:
        try:
            near = _neighbour(layout, repository, commit, raw)
            if near is None:
                made = _whole(repository, cache, commit, scratch, progress)
            else:
                made = _update(layout, repository, cache, near[0], near[1], scratch)
        except DamagedStoreError:  # the neighbour is damaged: do without it
            for file in scratch.iterdir():
                file.unlink()
            made = _whole(repository, cache, commit, scratch, progress)
    finally:
        cache.close()
    manifests.add_commit(layout, manifests.commit_record(repo_name, commit, raw))
    manifests.add_paths(layout, repo_name, commit, made.added, made.gone, made.base)
    return made


def _whole(
    repository: Repository, cache: Cache, commit: bytes, scratch: Path, progress: Progress
) -> _Made:
    from substrate.graph.index.full_index import ColdIndex, DamagedCacheError

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
    """A plain snapshot of a commit near `commit`, and the differences."""
    from substrate.graph.index import compressed_snapshot

    plain = compressed_snapshot.plain_snapshots(layout)
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
    from substrate.graph.index.manifests import parents_of

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
    """The differences to a snapshot of another branch or repository, path by path."""
    from substrate.graph.index.splice import Sections

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
    from substrate.graph.index.splice import Sections, splice
    from substrate.graph.index.update_index import Update
    from substrate.graph.parse import FactSource

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
