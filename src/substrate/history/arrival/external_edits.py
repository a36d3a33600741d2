"""Outside edits that apply meets: the tree is not as history says where a command worked.

They are recorded before the command's own change, and never taken for it. Whether the command
had seen such an edit decides what its own change is a change *of*:

    ──edit──┬─ start ── command writes ──┬── apply      seen: the edit is its base
            └──────── edit ──────────────┘              not seen: merged three ways
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from substrate.errors import WorkspaceError
from substrate.history.ledger import NewEntry
from substrate.history.line import Extension
from substrate.history.observe import count_files, edited
from substrate.history.store import HistoryStore
from substrate.model.nodes import ABSENT, BlobWriter, Change, Kind, Node
from substrate.model.paths import ROOT, RelPath, ancestors, join, split
from substrate.objects import snapshot as snapshots
from substrate.objects.batch import Batch
from substrate.objects.snapshot import Reader, Snapshot
from substrate.system import clock, ids
from substrate.workspace.dirwalk import Walker
from substrate.workspace.plan import Op
from substrate.workspace.probe import Seen, kind_of, look
from substrate.workspace.scan import node_at, observe

#: Paths that something happened to. True: with all below it; False: the directory's own mode and
#: attributes alone.
Suspects = Mapping[RelPath, bool]

#: The clock that stamps files ticks this slowly at most: 100 Hz, and a little more.
_TICK_NS = 12_000_000


class Met(NamedTuple):
    changes: list[Change]
    #: Excluded things in directories that the command emptied: they go to the trash.
    to_trash: list[Op]


def look_below_emptied(store: HistoryStore, batch: Batch, emptied: Iterable[RelPath]) -> Met:
    """What stands in these directories that history does not know."""
    met = Met([], [])
    walker, tip = Walker(store.root), store.tip()
    pending = list(emptied)
    while pending:
        path = pending.pop()
        known_as = snapshots.lookup(batch, tip, path)
        if known_as == ABSENT:
            _unknown(store, batch, path, met)
        if known_as.kind is not Kind.DIRECTORY:
            continue
        known = snapshots.listing(batch, tip, path)
        try:
            directory = walker.directory(path)
        except OSError:
            continue  # gone or replaced: apply will see that it is not as history says
        with directory:
            for name in directory.names():
                below = join(path, name)
                node = known.get(name, ABSENT)
                if node.kind is Kind.DIRECTORY:
                    pending.append(below)
                elif node == ABSENT:
                    _unknown(store, batch, below, met)
    return met


def _unknown(store: HistoryStore, batch: Batch, path: RelPath, met: Met) -> None:
    try:
        parent, name = Walker(store.root).parent_of(path)
        with parent:
            at = parent.lstat(name)
    except OSError:
        return
    kind = kind_of(at)
    is_dir = kind is Kind.DIRECTORY
    if store.exclusions.reason(path, is_dir=is_dir, size=at.st_size) is not None:
        met.to_trash.append(Op(path, Node(kind), ABSENT))
        return
    seen = observe(store.root, [path], store.exclusions, batch)
    met.changes.extend(Change(one, ABSENT, node) for one, node in seen.items() if node != ABSENT)
    if is_dir:
        # In a directory that nobody recorded, too, what is left out must go with it.
        met.to_trash.extend(excluded_below(store, path))


def excluded_below(store: HistoryStore, path: RelPath) -> list[Op]:
    """What history leaves out in the directory at `path`, each to be moved to the trash whole."""
    out: list[Op] = []
    pending, walker = [path], Walker(store.root)
    while pending:
        here = pending.pop()
        try:
            directory = walker.directory(here)
        except OSError:
            continue
        with directory:
            for name in directory.names():
                below, at = join(here, name), directory.lstat(name)
                is_dir = kind_of(at) is Kind.DIRECTORY
                if store.exclusions.own_reason(below, is_dir=is_dir, size=at.st_size):
                    out.append(Op(below, Node(kind_of(at)), ABSENT))
                elif is_dir:
                    pending.append(below)
    return out


def not_as_known(
    store: HistoryStore,
    reader: Reader,
    paths: Iterable[RelPath],
    seen: Mapping[RelPath, Seen],
) -> list[RelPath]:
    """Those of many paths, not directories, that may not stand as the tip says.

    `seen`: some of them, looked at a moment ago."""
    tip, walker = store.tip(), Walker(store.root, keep=True)
    out: list[RelPath] = []
    above, known = None, None
    for path in paths:
        here, name = split(path)
        if here != above:
            above, known = here, snapshots.directory(reader, tip, here)
        found = seen.get(path)
        if found is None:
            try:
                place, _ = walker.parent_of(path)
                with place:
                    found = look(place, name)
            except OSError:
                found = None
        if found is None or known is None or found.node != known.node(name):
            out.append(path)
    walker.close()
    return out


def look_again(store: HistoryStore, batch: Batch, paths: Iterable[RelPath]) -> list[Change]:
    """How these paths, which are not as the tip says, really stand."""
    return differences(store, batch, batch, paths)


def differences(
    store: HistoryStore, reader: Reader, blobs: BlobWriter, paths: Iterable[RelPath]
) -> list[Change]:
    """Where these paths, and all below them, are not as the tip says."""
    tip = store.tip()
    out: dict[RelPath, Change] = {}
    for path in paths:
        scope = _highest_difference(store, reader, tip, path)
        stands = observe(store.root, [scope], store.exclusions, blobs)
        known = dict(snapshots.walk(reader, tip, scope))
        if scope not in stands and _is_other_directory(store, known.get(scope, ABSENT), scope):
            stands[scope] = ABSENT
        for one in sorted({*stands, *known}):
            # What could not be read (or is excluded) says nothing about itself.
            new = stands.get(one, ABSENT if scope in stands else known.get(one, ABSENT))
            if known.get(one, ABSENT) != new:
                out[one] = Change(one, known.get(one, ABSENT), new)
    return _possible(out)


def _is_other_directory(store: HistoryStore, known: Node, path: RelPath) -> bool:
    """Whether a directory that is left out stands where history knows a file."""
    if known.kind in (Kind.ABSENT, Kind.DIRECTORY):
        return False
    try:
        Walker(store.root).directory(path).close()
    except OSError:
        return False
    return store.exclusions.reason(path, is_dir=True, size=0) is not None


def compared(
    store: HistoryStore, reader: Reader, blobs: BlobWriter, suspects: Suspects
) -> list[Change]:
    """Where they differ from the tip, sorted."""
    deep = [path for path, is_deep in suspects.items() if is_deep]
    tip = store.tip()
    alone = []
    for path, is_deep in suspects.items():
        if is_deep:
            continue
        try:
            old, new = snapshots.lookup(reader, tip, path), node_at(store.root, path, blobs)
        except WorkspaceError:
            continue  # shut to us: it says nothing about itself
        if old.kind is not new.kind:
            deep.append(path)
        elif old != new and new.kind is Kind.DIRECTORY:
            alone.append(Change(path, old, new))
    found = {change.path: change for change in [*alone, *differences(store, reader, blobs, deep)]}
    return _possible(found)


def _possible(found: Mapping[RelPath, Change]) -> list[Change]:
    """Sorted; a directory that became a file between two looks does not hold what the first saw.
    Whoever acts on this looks again."""
    gone = {path for path, change in found.items() if change.new.kind is not Kind.DIRECTORY}
    return [
        found[path]
        for path in sorted(found)
        if found[path].new == ABSENT or gone.isdisjoint(ancestors(path))
    ]


def _highest_difference(
    store: HistoryStore, reader: Reader, tip: Snapshot, path: RelPath
) -> RelPath:
    """The path, or the directory above it that is none any more."""
    for above in reversed(ancestors(path)):
        try:
            Walker(store.root).directory(above).close()
        except OSError:
            if snapshots.lookup(reader, tip, above).kind is Kind.DIRECTORY:
                return above
    return path


def record_met(store: HistoryStore, batch: Batch, changes: list[Change]) -> None:
    """They become a commit of their own, before the command's."""
    new = NewEntry(
        ids.new_id("c"), "external", clock.now_ns(), "external-changes",
        changed_files=count_files(changes), added_bytes=batch.added_bytes,
    )  # fmt: skip
    extension = Extension(store, batch, edited(batch, store.tip(), changes), new)
    with store.commit_point(batch) as ledger:
        ledger.add(new, extension.commit)
        extension.take_up(ledger)


def seen_by_command(store: HistoryStore, changes: list[Change], start_ns: int) -> list[Change]:
    """Those that had been made when the command started, as far as times can tell."""
    with _Times(store, start_ns - _TICK_NS) as times:
        return [change for change in changes if times.stood(change)]


class _Times:
    """What had its present state at one moment."""

    def __init__(self, store: HistoryStore, when_ns: int) -> None:
        self._walker = Walker(store.root, keep=True)
        self._when_ns = when_ns
        #: Directories by whether they, or one above, have come there since.
        self._moved: dict[RelPath, bool] = {ROOT: False}

    def __enter__(self) -> _Times:
        return self

    def __exit__(self, *_: object) -> None:
        self._walker.close()

    def stood(self, change: Change) -> bool:
        try:
            if change.new != ABSENT:
                parent, name = self._walker.parent_of(change.path)
                with parent:
                    stood = parent.lstat(name).st_ctime_ns < self._when_ns
                return stood and not self._was_moved(change.path)
            for above in [*ancestors(change.path), ROOT]:
                try:
                    with self._walker.directory(above) as directory:
                        return directory.own_stat().st_ctime_ns < self._when_ns
                except (FileNotFoundError, NotADirectoryError):
                    continue
        except OSError:
            pass
        return False

    def _was_moved(self, path: RelPath) -> bool:
        """Whether a directory above it has come there since: nothing in it tells. A directory that
        is renamed gets a new time of change, and no new time of content as by a new name in it."""
        unknown = []
        for above in ancestors(path):
            if above in self._moved:
                break
            unknown.append(above)
        for above in reversed(unknown):
            with self._walker.directory(above) as directory:
                at = directory.own_stat()
            is_new_here = at.st_ctime_ns >= self._when_ns > at.st_mtime_ns
            self._moved[above] = is_new_here or self._moved[split(above)[0]]
        return self._moved[split(path)[0]]
