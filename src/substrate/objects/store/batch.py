"""Write objects: what one recorded command (or one baseline) adds to the store.

    add_* ──► memory ──► small_objects(): the caller logs them durably ──► publish(): loose files
       │
       ├─► a content over 256 KiB: a synced loose file at once
       └─► more than 200 objects or 8 MiB: all of it, and all that follows, into one synced pack

A batch deduplicates against the state of the store when the batch begins: create it after taking
the lock that prevents pruning.
"""

from __future__ import annotations

from types import TracebackType

from substrate.model import ReadyBlob
from substrate.objects.snapshots import (
    Commit,
    Tree,
    parse_commit,
    parse_tree,
    serialize_commit,
    serialize_tree,
)
from substrate.objects.store import loose
from substrate.objects.store.object_store import ObjectStore
from substrate.objects.store.packwriter import PackWriter, ready_blob
from substrate.workspace.paths import blob_id

LARGE_BYTES = 256 << 10
HELD_OBJECTS_MAX = 200
HELD_BYTES_MAX = 8 << 20


class Batch:
    """Collects new objects. Reads see its own objects first. Implements ``BlobWriter``.

    As a context manager it discards what was not published.
    """

    def __init__(self, store: ObjectStore, *, durable: bool = True) -> None:
        self.store = store
        self.durable = durable
        self._held: dict[bytes, tuple[str, bytes]] = {}
        self._held_bytes = 0
        self._pack: PackWriter | None = None
        self._large: dict[bytes, None] = {}
        self._unsynced: list[bytes] = []
        #: Content bytes of the objects that this batch added, before compression.
        self.added_bytes = 0
        store.reload()

    def add_blob(self, data: bytes) -> bytes:
        # The fast path for most contents of a large change: put them into the pack unless known.
        if self._pack is None or len(data) > LARGE_BYTES:
            return self.add("blob", data)
        oid = blob_id(data)
        if oid not in self._pack and oid not in self._large and not self.store.has_packed(oid):
            self.added_bytes += len(data)
            self._pack.add(oid, "blob", data)
            self.store.remember_blob(oid, data)
        return oid

    def add_blobs(self, contents: list[bytes], *, are_read_soon: bool = True) -> list[bytes]:
        """`add_blob` for many, in fewer steps."""
        oids = [blob_id(data) for data in contents]
        known, large = self.store.packed_among(oids), self._large
        new = [
            (oid, data)
            for oid, data in zip(oids, contents, strict=True)
            if oid not in known and oid not in large
        ]
        if self._pack is None and len(self._held) + len(new) > HELD_OBJECTS_MAX:
            self._spill()
        if self._pack is None or any(len(data) > LARGE_BYTES for _, data in new):
            for _, data in new:
                self.add("blob", data)
            return oids
        self.added_bytes += self._pack.add_blobs(new)
        if are_read_soon:
            for oid, data in new:
                self.store.remember_blob(oid, data)
        return oids

    def readied(self, contents: list[bytes]) -> list[ReadyBlob]:
        """The part of `add_blobs` that changes no state: for a forked child."""
        oids = [blob_id(data) for data in contents]
        known = self.store.packed_among(oids)
        return [
            (oid, b"", 0, len(data)) if oid in known else ready_blob(oid, data)
            for oid, data in zip(oids, contents, strict=True)
        ]

    def add_ready(self, blobs: list[ReadyBlob], contents: list[bytes]) -> None:
        """Add the result of `readied` for these contents, and cache the contents."""
        new = [one for one in blobs if one[1] and one[0] not in self._large]
        if new and self._pack is None:
            self._spill()
        if self._pack is not None:
            self.added_bytes += self._pack.add_ready(new)
        for (oid, *_), data in zip(blobs, contents, strict=False):
            self.store.remember_blob(oid, data)

    def add_tree(self, tree: Tree) -> bytes:
        """Write a tree. The mapping is kept in a cache: do not change it afterwards."""
        if not tree:
            return self.add("tree", b"")
        data = serialize_tree(tree)
        oid = self.add("tree", data)
        self.store.remember_tree(oid, tree, len(data))
        return oid

    def add_commit(self, commit: Commit) -> bytes:
        return self.add("commit", serialize_commit(commit))

    def add(self, kind: str, data: bytes) -> bytes:
        """Add an object of any kind, unless it exists already; returns its id."""
        oid = loose.object_id(kind, data)
        pack = self._pack
        if oid in self._held or oid in self._large or (pack is not None and oid in pack):
            return oid
        # A loose object may be a leftover that was never synced (or never logged), so a small one
        # is written and logged again; only packed objects are known to be durable.
        if self.store.has_packed(oid):
            return oid
        if len(data) > LARGE_BYTES and self.store.has_known(oid):
            self._unsynced.append(oid)
            return oid
        self.added_bytes += len(data)
        if pack is not None:
            pack.add(oid, kind, data)
            if kind == "blob":
                self.store.remember_blob(oid, data)
        elif len(data) > LARGE_BYTES:
            self.store.write_loose(oid, kind, data, durable=self.durable)
            self._large[oid] = None
            self._unsynced.append(oid)
        else:
            self._held[oid] = (kind, data)
            self._held_bytes += len(data)
            if len(self._held) > HELD_OBJECTS_MAX or self._held_bytes > HELD_BYTES_MAX:
                self._spill()
        return oid

    def _spill(self) -> None:
        pack = PackWriter(self.store.objects_dir)
        self._pack = pack
        for oid, (kind, data) in self._held.items():
            pack.add(oid, kind, data)
            if kind == "blob":
                self.store.remember_blob(oid, data)
        self._held.clear()
        self._held_bytes = 0

    def read(self, oid: bytes) -> tuple[str, bytes]:
        held = self._held.get(oid)
        if held is not None:
            return held
        if self._pack is not None and oid in self._pack:
            return self._pack.read(oid)
        return self.store.read(oid)

    def read_blob(self, oid: bytes) -> bytes:
        own = self._own(oid, "blob")
        return self.store.read_blob(oid) if own is None else own

    def read_tree(self, oid: bytes) -> Tree:
        own = self._own(oid, "tree")
        return parse_tree(own) if own is not None else self.store.read_tree(oid)

    def read_commit(self, oid: bytes) -> Commit:
        own = self._own(oid, "commit")
        return parse_commit(own) if own is not None else self.store.read_commit(oid)

    def _own(self, oid: bytes, wanted: str) -> bytes | None:
        if oid not in self._held and (self._pack is None or oid not in self._pack):
            return None
        kind, data = self.read(oid)
        if kind != wanted:
            raise loose.damaged(oid, f"is a {kind} where a {wanted} should be")
        return data

    def has(self, oid: bytes) -> bool:
        own = oid in self._held or (self._pack is not None and oid in self._pack)
        return own or self.store.has(oid)

    def seal(self) -> None:
        """Finish the pack and sync the large objects, so that only the small ones are at risk."""
        if self._pack is not None:
            pack, self._pack = self._pack, None
            try:
                pack.finish(durable=self.durable)
            except BaseException:
                pack.discard()
                raise
            self.store.reload()
        if self._unsynced and self.durable:
            self.store.sync_loose(self._unsynced)
        self._unsynced = []

    def small_objects(self) -> list[tuple[bytes, str, bytes]]:
        """``(oid, kind, data)`` of the objects in memory, for the caller to log durably.

        Everything else is durable on disk when this returns.
        """
        self.seal()
        return [(oid, kind, data) for oid, (kind, data) in self._held.items()]

    def publish(self) -> None:
        """Make every object visible to readers of the store; small ones without a sync."""
        self.seal()
        for oid, (kind, data) in self._held.items():
            loose.write_loose(self.store.objects_dir, oid, kind, data)
        self._held.clear()
        self._held_bytes = 0

    def discard(self) -> None:
        """Discard what was not published (pruning removes large contents already on disk)."""
        if self._pack is not None:
            self._pack.discard()
            self._pack = None
        self._held.clear()
        self._held_bytes = 0

    def __enter__(self) -> Batch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.discard()
