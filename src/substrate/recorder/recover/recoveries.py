"""All snapshots in one list: list, search, restore and prune them.

They are history's own snapshots, and those that rewrites left in the user's repository.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

from substrate.errors import AmbiguousError, DamagedStoreError, NotFoundError
from substrate.history.reversal import Recovery, recovery_refs
from substrate.history.store import HistoryStore
from substrate.model import Node, RelPath
from substrate.objects.git import UserGit
from substrate.objects.snapshots import Snapshot
from substrate.objects.snapshots import snapshot as snapshots
from substrate.objects.store import ObjectStore
from substrate.recorder.recover import trash_views
from substrate.recorder.recover.found_snapshot import Found
from substrate.recorder.session_context import Place
from substrate.recorder.working_copy_rewrite import history_waits
from substrate.rewrite.execute import WorkingCopy, carry_out, needs_settling, open_working_copy
from substrate.rewrite.snapshots import (
    REV_LIST,
    BroughtBack,
    Elsewhere,
    Kept,
    Match,
    Pattern,
    Policy,
    RestoreChoice,
    Tombstone,
    all_kept,
    files_of,
    search,
    tombstone,
    write_out,
)
from substrate.rewrite.snapshots import prune as pruning
from substrate.rewrite.snapshots import restore_snapshot as bringing
from substrate.system.sync import OwnDays, store_age


class Snapshots:
    """Open both stores with `opened`, which first finishes a rewrite that a crash interrupted."""

    def __init__(
        self, place: Place, history: HistoryStore | None, copy: WorkingCopy | None
    ) -> None:
        self.place = place
        self.history = history
        self.copy = copy
        self.notes: list[str] = []

    def all(self) -> list[Found]:
        """Newest first."""
        kept = self._of_history()
        found = [*kept, *self._of_trash(kept), *self._of_rewrites()]
        return sorted(found, key=lambda one: (one.ts_ns, one.ref), reverse=True)

    def find(self, text: str) -> Found:
        """Find one by ref, name, operation id, commit, or a unique prefix."""
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
        rows = recovery_refs.all_recoveries(store.ledger)
        states = {one.ref: store.snapshot_of(one.commit) for one in rows}
        nodes = {
            one.ref: [snapshots.lookup(store.objects, states[one.ref], p) for p in one.paths]
            for one in rows
        }
        oids = {node.oid for group in nodes.values() for node in group if node.oid}
        sizes = UserGit(store.git_dir, store.root).sizes(oids) if oids else {}
        return [
            trash_views.joined(
                store, _from_history(one, states[one.ref], store.objects, nodes[one.ref], sizes)
            )
            for one in rows
        ]

    def _of_trash(self, kept: list[Found]) -> list[Found]:
        if self.history is None:
            return []
        return trash_views.without_snapshot(self.history, {one.operation_id for one in kept})

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
        for one in found:
            yield from trash_views.search(one, wanted)

    def bring_back(self, one: Found, choice: RestoreChoice) -> BroughtBack:
        """Restore a rewrite's snapshot into place; history restores its own snapshots."""
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
        written += trash_views.write_out(one, directory, paths)
        if paths and not written:
            raise NotFoundError(
                f"{one.name} holds none of these paths",
                hint=f"`substrate recover show {one.name}` lists what it kept",
            )
        return written

    def rel_path(self, one: Found, text: str) -> RelPath:
        """A path as typed, relative to the root of the snapshot."""
        if one.source == "rewrite" and self.copy is not None:
            workspace = self.place.workspace._replace(root=self.copy.root)
            return self.place._replace(workspace=workspace).rel_path(text)
        return self.place.rel_path(text)

    def files(self, one: Found) -> Iterator[tuple[RelPath, Node]]:
        yield from files_of(one.reader, one.state)
        yield from trash_views.files(one)

    def _own_days(self) -> OwnDays:
        """The history's own days; without a history, those of the rewrites."""
        if self.history is not None or self.copy is None:
            assert self.history is not None, "one of the two is open"
            return self.history.own_days()
        return store_age.of_file(self.copy.own_dir / store_age.FILE)

    def prune(self, policy: Policy, *, dry_run: bool) -> list[Tombstone]:
        gone = []
        policy = policy._replace(age_of=self._own_days().age_of)
        if self.copy is not None:
            gone += pruning.prune(self.copy, policy, dry_run=dry_run)
        if self.history is not None:
            gone += _prune_history(self.history, policy, dry_run)
        return gone


@contextmanager
def opened(place: Place, *, settles: bool = True) -> Iterator[Snapshots]:
    """Raises `NotFoundError` if there is neither a history nor a repository.

    `settles`: finish an interrupted rewrite; not for a query or a dry run.
    """
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
        if settles and copy is not None and needs_settling(copy):
            try:
                with history_waits(lambda: place, copy, "recover"), copy.locked("recover"):
                    found.notes += carry_out.settle(copy)
            except DamagedStoreError as error:
                # `recover` is how the user gets the affected files back: do not fail here.
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
        staying = {one.ref: one for one in reversed(recovery_refs.all_recoveries(store.ledger))}
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
                    recovery_refs.forget(ledger, one.command_id)
            del staying[one.ref]
            gone.append(stone)
    return gone
