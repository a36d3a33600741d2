"""Outside edits that apply finds: the tree differs from history where a command worked.

They are recorded before the command's own change and never attributed to it. Whether the command
saw such an edit decides which base its own change has:

    ──edit──┬─ start ── command writes ──┬── apply      seen: the edit is its base
            └──────── edit ──────────────┘              not seen: merged three ways
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from substrate.errors import WorkspaceError
from substrate.history.record import count_files, edited
from substrate.history.store import Detail, Entry, Extension, HistoryStore, NewEntry
from substrate.model import (
    ABSENT,
    ROOT,
    BlobWriter,
    Change,
    Kind,
    Node,
    RelPath,
    ancestors,
    join,
    split,
)
from substrate.objects.snapshots import Reader, Snapshot
from substrate.objects.snapshots import snapshot as snapshots
from substrate.objects.store import Batch
from substrate.system import clock, ids
from substrate.workspace.apply import Op
from substrate.workspace.paths import Seen, Walker, is_shut, kind_of, look, node_at, observe

#: Paths that may have changed. True: with everything below; False: only the directory's own mode
#: and attributes.
Suspects = Mapping[RelPath, bool]

#: The longest tick of the clock that stamps files: 10 ms (100 Hz), and a little more.
_TICK_NS = 12_000_000


class Met(NamedTuple):
    changes: list[Change]
    #: Excluded things in directories that the command emptied: they go to the trash.
    to_trash: list[Op]


def look_below_emptied(store: HistoryStore, batch: Batch, emptied: Iterable[RelPath]) -> Met:
    """What these directories contain that history does not know."""
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
            continue  # gone or replaced: apply will see that it differs from history
        with directory:
            for name in directory.names() if directory.is_readable else ():
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
            shut = is_shut(parent, name, at)
    except OSError:
        return
    kind = kind_of(at)
    is_dir = kind is Kind.DIRECTORY
    if shut or store.exclusions.reason(path, is_dir=is_dir, size=at.st_size) is not None:
        met.to_trash.append(Op(path, Node(kind), ABSENT))
        return
    seen = observe(store.root, [path], store.exclusions, batch)
    met.changes.extend(Change(one, ABSENT, node) for one, node in seen.items() if node != ABSENT)
    if is_dir:
        # An unrecorded directory may hold excluded paths, too: they must go with it.
        met.to_trash.extend(excluded_below(store, path))


def excluded_below(store: HistoryStore, path: RelPath) -> list[Op]:
    """Excluded paths in the directory at `path`, each to be moved to the trash as a whole."""
    out: list[Op] = []
    pending, walker = [path], Walker(store.root)
    while pending:
        here = pending.pop()
        try:
            directory = walker.directory(here)
        except OSError:
            continue
        with directory:
            for name in directory.names() if directory.is_readable else ():
                below, at = join(here, name), directory.lstat(name)
                is_dir = kind_of(at) is Kind.DIRECTORY
                left_out = store.exclusions.own_reason(below, is_dir=is_dir, size=at.st_size)
                if left_out or is_shut(directory, name, at):
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
    """The paths, none of them a directory, that may differ from the tip.

    `seen`: the state of some of them, read a moment ago."""
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
    """The present state of these paths, which differ from the tip."""
    return differences(store, batch, batch, paths)


def differences(
    store: HistoryStore, reader: Reader, blobs: BlobWriter, paths: Iterable[RelPath]
) -> list[Change]:
    """Where these paths, and everything below them, differ from the tip."""
    tip = store.tip()
    out: dict[RelPath, Change] = {}
    for path in paths:
        scope = _highest_difference(store, reader, tip, path)
        stands = observe(store.root, [scope], store.exclusions, blobs)
        known = dict(snapshots.walk(reader, tip, scope))
        if scope not in stands and _is_other_directory(store, known.get(scope, ABSENT), scope):
            stands[scope] = ABSENT
        for one in sorted({*stands, *known}):
            # A path that could not be read, or is excluded, counts as unchanged.
            new = stands.get(one, ABSENT if scope in stands else known.get(one, ABSENT))
            if known.get(one, ABSENT) != new:
                out[one] = Change(one, known.get(one, ABSENT), new)
    return _possible(out)


def _is_other_directory(store: HistoryStore, known: Node, path: RelPath) -> bool:
    """Whether there is an excluded directory where history knows a file."""
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
            continue  # unreadable: it counts as unchanged
        if old.kind is not new.kind:
            deep.append(path)
        elif old != new and new.kind is Kind.DIRECTORY:
            alone.append(Change(path, old, new))
    found = {change.path: change for change in [*alone, *differences(store, reader, blobs, deep)]}
    return _possible(found)


def _possible(found: Mapping[RelPath, Change]) -> list[Change]:
    """Sorted, and consistent: a directory that became a file between two reads has no content.

    The caller looks again before it acts on this.
    """
    gone = {path for path, change in found.items() if change.new.kind is not Kind.DIRECTORY}
    return [
        found[path]
        for path in sorted(found)
        if found[path].new == ABSENT or gone.isdisjoint(ancestors(path))
    ]


def _highest_difference(
    store: HistoryStore, reader: Reader, tip: Snapshot, path: RelPath
) -> RelPath:
    """The path, or the directory above it that is no longer a directory."""
    for above in reversed(ancestors(path)):
        try:
            Walker(store.root).directory(above).close()
        except OSError:
            if snapshots.lookup(reader, tip, above).kind is Kind.DIRECTORY:
                return above
    return path


def record_met(
    store: HistoryStore, batch: Batch, changes: list[Change], detail: Detail | None = None
) -> Entry:
    """Record the outside edits as a commit of their own, before the command's commit."""
    new = NewEntry(
        ids.new_id("c"), "external", clock.now_ns(), "external-changes", detail=detail or {},
        changed_files=count_files(changes), added_bytes=batch.added_bytes,
    )  # fmt: skip
    extension = Extension(store, batch, edited(batch, store.tip(), changes), new)
    with store.commit_point(batch) as ledger:
        entry = ledger.add(new, extension.commit)
        extension.take_up(ledger)
    return entry


def seen_by_command(store: HistoryStore, changes: list[Change], start_ns: int) -> list[Change]:
    """The changes made before the command started, as far as file times can show."""
    with _Times(store, start_ns - _TICK_NS) as times:
        return [change for change in changes if times.stood(change)]


def written_by(store: HistoryStore, changes: list[Change], when_ns: int) -> list[Change]:
    """All changes made by `when_ns`, and perhaps some of the tick after it.

    A file's time is never later than the write, and up to a tick earlier.
    """
    with _Times(store, when_ns + 1) as times:
        return [change for change in changes if times.stood(change)]


class _Times:
    """Which paths already had their present state at a given moment."""

    def __init__(self, store: HistoryStore, when_ns: int) -> None:
        self._walker = Walker(store.root, keep=True)
        self._when_ns = when_ns
        #: Directory → whether it, or a directory above it, was moved there since.
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
        """Whether a directory above it was moved there since; the files inside do not show that.

        A rename gives the directory a new ctime, but not a new mtime as a new name in it would.
        """
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
