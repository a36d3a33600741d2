"""Every snapshot there is, in one list: history's own, and those that rewrites left in the
user's repository. Listed, searched, brought back, and let go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from substrate.errors import AmbiguousError, DamagedStoreError, NotFoundError
from substrate.history import recovery
from substrate.history.recovery import Recovery
from substrate.history.store import HistoryStore
from substrate.model.nodes import Node
from substrate.model.paths import RelPath
from substrate.objects import snapshot as snapshots
from substrate.objects.git import UserGit
from substrate.objects.snapshot import Snapshot
from substrate.objects.store import ObjectStore
from substrate.recorder.place import Place
from substrate.recorder.rewrite_working_copy import history_waits
from substrate.rewrite import bring_back as bringing
from substrate.rewrite import prune as pruning
from substrate.rewrite import transition
from substrate.rewrite.bring_back import BroughtBack, Choice
from substrate.rewrite.kept import Kept, all_kept
from substrate.rewrite.prune import REV_LIST, Elsewhere, Policy, Tombstone, tombstone
from substrate.rewrite.search import Match, Pattern, search
from substrate.rewrite.tree_files import files_of, write_out
from substrate.rewrite.under_way import needs_settling
from substrate.rewrite.working_copy import WorkingCopy, open_working_copy


class Found(NamedTuple):
    """One snapshot, wherever it is kept."""

    #: ``history`` or ``rewrite``.
    source: str
    ref: str
    name: str
    commit: bytes
    ts_ns: int
    operation: str
    operation_id: str
    #: What bringing it back puts into place.
    paths: tuple[RelPath, ...]
    #: Paths with somebody's work in them; for history, all that the operation replaced.
    dirty_files: int
    size_bytes: int
    state: Snapshot
    reader: ObjectStore
    kept: Kept | None = None


class Snapshots:
    """Open both stores with `opened`; what a crash left of a rewrite is finished first."""

    def __init__(
        self, place: Place, history: HistoryStore | None, copy: WorkingCopy | None
    ) -> None:
        self.place = place
        self.history = history
        self.copy = copy
        self.notes: list[str] = []

    def all(self) -> list[Found]:
        """Newest first."""
        found = [*self._of_history(), *self._of_rewrites()]
        return sorted(found, key=lambda one: (one.ts_ns, one.ref), reverse=True)

    def find(self, text: str) -> Found:
        """By ref, name, operation id, commit, or a prefix that only one has."""
        found = self.all()
        for one in found:
            short = one.name.rpartition("/")[2]
            if text in (one.ref, one.name, short, one.operation_id, one.commit.hex()):
                return one
        starts = [
            one
            for one in found
            if any(
                name.startswith(text)
                for name in (one.ref, one.name, one.name.rpartition("/")[2], one.commit.hex())
            )
        ]
        if len(starts) == 1:
            return starts[0]
        if starts:
            names = ", ".join(one.name for one in starts[:5])
            raise AmbiguousError(f"several snapshots answer to {text!r}", hint=f"one of: {names}")
        raise self._not_there(text)

    def _not_there(self, text: str) -> NotFoundError:
        for stone in self.tombstones():
            if text and (text in stone.ref or stone.commit.startswith(text)):
                gone = f"{stone.lost_count} content(s) went with it" if stone.lost_count else (
                    "nothing was lost with it"
                )  # fmt: skip
                return NotFoundError(
                    f"{stone.ref} was pruned at {stone.pruned}: {stone.why}; {gone}",
                    hint="`substrate recover list --pruned` says what went",
                )
        return NotFoundError(f"no snapshot {text}", hint="see `substrate recover list`")

    def tombstones(self) -> list[Tombstone]:
        out = []
        if self.history is not None:
            out += pruning.read_tombstones(self.history.dir)
        if self.copy is not None:
            out += pruning.read_tombstones(self.copy.own_dir)
        return out

    def _of_history(self) -> list[Found]:
        store = self.history
        if store is None:
            return []
        rows = recovery.all_recoveries(store.ledger)
        states = {one.ref: store.snapshot_of(one.commit) for one in rows}
        nodes = {
            one.ref: [snapshots.lookup(store.objects, states[one.ref], p) for p in one.paths]
            for one in rows
        }
        oids = {node.oid for group in nodes.values() for node in group if node.oid}
        sizes = UserGit(store.git_dir, store.root).sizes(oids) if oids else {}
        return [
            _from_history(one, states[one.ref], store.objects, nodes[one.ref], sizes)
            for one in rows
        ]

    def _of_rewrites(self) -> list[Found]:
        if self.copy is None:
            return []
        reader = ObjectStore(self.copy.common_dir)
        damaged: list[str] = []
        found = [_from_rewrite(one, reader) for one in all_kept(self.copy, reader, damaged)]
        self.notes += [text for text in damaged if text not in self.notes]
        return found

    # -- what can be done with them -------------------------------------------------------------

    def search(self, wanted: Pattern, only: str | None = None) -> Iterator[Match]:
        found = [self.find(only)] if only else self.all()
        for source in ("history", "rewrite"):
            trees = {one.name: one.state.tree for one in found if one.source == source}
            reader = next((one.reader for one in found if one.source == source), None)
            if reader is not None:
                yield from search(reader, trees, wanted)

    def bring_back(self, one: Found, choice: Choice) -> BroughtBack:
        """Into place, of a rewrite's snapshot; history's come back through history."""
        assert one.kept is not None and self.copy is not None
        waits = (
            nullcontext()
            if choice.dry_run
            else history_waits(lambda: self.place, self.copy, "restore")
        )
        with waits:
            return bringing.bring_back(self.copy, one.kept, choice)

    def write_out(self, one: Found, directory: Path, paths: tuple[RelPath, ...]) -> list[RelPath]:
        written = write_out(one.reader, one.state, directory, paths)
        if paths and not written:
            raise NotFoundError(
                f"{one.name} holds none of these paths",
                hint=f"`substrate recover show {one.name}` lists what it kept",
            )
        return written

    def rel_path(self, one: Found, text: str) -> RelPath:
        """A path as typed, below the root that the snapshot is of."""
        if one.source == "rewrite" and self.copy is not None:
            workspace = self.place.workspace._replace(root=self.copy.root)
            return self.place._replace(workspace=workspace).rel_path(text)
        return self.place.rel_path(text)

    def files(self, one: Found) -> Iterator[tuple[RelPath, Node]]:
        return files_of(one.reader, one.state)

    def prune(self, policy: Policy, *, dry_run: bool) -> list[Tombstone]:
        gone = []
        if self.copy is not None:
            gone += pruning.prune(self.copy, policy, dry_run=dry_run)
        if self.history is not None:
            gone += _prune_history(self.history, policy, dry_run)
        return gone


@contextmanager
def opened(place: Place) -> Iterator[Snapshots]:
    """`NotFoundError` where there is neither a history nor a repository."""
    with ExitStack() as stack:
        history = problem = None
        try:
            history = stack.enter_context(place.existing_history())
        except NotFoundError as error:
            problem = error
        try:
            copy = open_working_copy(place.cwd)
        except NotFoundError:
            if problem is not None:
                raise problem from None
            copy = None
        found = Snapshots(place, history, copy)
        if copy is not None and needs_settling(copy):
            try:
                with history_waits(lambda: place, copy, "recover"), copy.locked("recover"):
                    found.notes += transition.settle(copy)
            except DamagedStoreError as error:
                # Here is where what it was about can be found: this must not stand in the way.
                found.notes.append(f"{error.message} ({error.hint})")
        yield found


def _from_history(
    one: Recovery, state: Snapshot, reader: ObjectStore, nodes: list[Node], sizes: dict[bytes, int]
) -> Found:
    size = sum(sizes.get(node.oid, 0) for node in nodes)
    return Found(
        "history", one.ref, one.name, one.commit, one.ts_ns, one.operation, one.command_id,
        one.paths, len(one.paths), size, state, reader,
    )  # fmt: skip


def _from_rewrite(one: Kept, reader: ObjectStore) -> Found:
    meta = one.meta
    dirty = len({*meta.dirty, *meta.untracked})
    return Found(
        "rewrite", one.ref, one.name, one.commit, meta.when_ns, meta.operation, meta.operation_id,
        meta.paths, dirty, meta.size_bytes, one.state, reader, one,
    )  # fmt: skip


def _prune_history(store: HistoryStore, policy: Policy, dry_run: bool) -> list[Tombstone]:
    gone: list[Tombstone] = []
    with nullcontext() if dry_run else store.writing("prune"):
        staying = {one.ref: one for one in reversed(recovery.all_recoveries(store.ledger))}
        trees = {ref: store.snapshot_of(one.commit).tree for ref, one in staying.items()}
        refs = store.ledger.refs().items()
        lasting = {oid for ref, oid in refs if oid is not None and ref not in staying}
        elsewhere = Elsewhere(
            lambda stdin: store.git.run(*REV_LIST, input=stdin).stdout, lasting, store.objects
        )
        for one in list(staying.values()):
            others = [trees[ref] for ref in staying if ref != one.ref]
            lost = elsewhere.lost_with((trees[one.ref],), others)
            why = pruning.reason_to_go(one.ts_ns, len(lost), policy)
            if not why:
                continue
            stone = tombstone(one.ref, one.commit, one.ts_ns, one.operation, why, lost)
            if not dry_run:
                pruning.write_tombstone(store.dir, stone)
                with store.commit_point() as ledger:
                    recovery.forget(ledger, one.command_id)
            del staying[one.ref]
            gone.append(stone)
    return gone
