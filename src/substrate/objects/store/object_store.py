"""The object store: an ordinary git repository, read and written without running git.

Everything that is read is hashed again and compared with its name, so that damage is always
reported. Loose objects, packs and alternates are searched, in that order.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from substrate.errors import DamagedStoreError
from substrate.objects.snapshots import EMPTY_TREE, Commit, Tree, parse_commit, parse_tree
from substrate.objects.store import loose
from substrate.objects.store.packed_ids import PackedIds
from substrate.objects.store.packfile import DamagedPackError, Pack
from substrate.objects.store.repo_skeleton import create_repository
from substrate.system.files import read_bytes_or_none, remove_tree

_TREE_CACHE_BYTES = 64 << 20
_BLOB_CACHE_BYTES = 16 << 20
#: For attrs records and other small blobs that are read repeatedly, and for new blobs that are
#: soon written to the tree.
_CACHED_BLOB_MAX_BYTES = 16 << 10
#: The approximate memory of a parsed tree entry relative to its bytes in the object.
_TREE_OVERHEAD = 5
_ALTERNATES_DEPTH = 5


class ObjectDir:
    """One ``objects`` directory: its loose objects and its packs."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.packs: dict[str, Pack] = {}
        #: Packs that cannot be used at all, and why; the others still work.
        self.broken: dict[str, DamagedPackError] = {}
        #: The pack that had the last object: it often has the next one, too.
        self.answered: Pack | None = None
        self._pack_dir_mtime = -1
        self._packed = PackedIds(())
        self.refresh()

    def refresh(self, *, force: bool = False) -> bool:
        """Check for new and removed packs if the directory changed; returns if any changed."""
        pack_dir = f"{self.path}/pack"
        try:
            mtime = os.stat(pack_dir).st_mtime_ns
            if mtime == self._pack_dir_mtime and not force:
                return False
            names = os.listdir(pack_dir)
        except OSError:
            mtime, names = -1, []
        self._pack_dir_mtime = mtime
        present = set(names)
        wanted = {name for name in names if name.endswith(".idx") and name[:-3] + "pack" in present}
        for name in [name for name in self.packs if name not in wanted]:
            self.packs.pop(name).close()
        self.broken = {name: error for name, error in self.broken.items() if name in wanted}
        new = wanted - self.packs.keys() - self.broken.keys()
        for name in sorted(new):
            try:
                self.packs[name] = Pack(f"{pack_dir}/{name}")
            except DamagedPackError as error:
                self.broken[name] = error
        self._packed = PackedIds(pack.index for pack in self.packs.values())
        return True

    def packs_to_ask(self) -> list[Pack]:
        packs = list(self.packs.values())
        if self.answered in packs:
            packs.remove(self.answered)
            packs.insert(0, self.answered)
        return packs

    def in_packs(self, oid: bytes) -> bool:
        return self._packed.has(oid)

    def packed_among(self, oids: Collection[bytes]) -> set[bytes]:
        """Those of `oids` that are in a pack."""
        return self._packed.among(oids) if self.packs else set()

    def has_loose(self, oid: bytes) -> bool:
        return os.path.exists(loose.loose_path(self.path, oid))

    def has_many_loose(self) -> bool:
        """Whether there are about a thousand or more, estimated from some of 256 directories."""
        return sum(len(_names(f"{self.path}/{number:02x}")) for number in range(0, 256, 32)) > 32

    def loose_oids(self) -> Iterator[bytes]:
        for number in range(256):
            for name in _names(f"{self.path}/{number:02x}"):
                if len(name) == 38:
                    try:
                        yield bytes.fromhex(f"{number:02x}{name}")
                    except ValueError:
                        continue


class ObjectStore:
    """Read access to the objects of `git_dir`; `Batch` writes. Implements ``BlobReader``."""

    def __init__(self, git_dir: Path, objects_dir: Path | None = None) -> None:
        """`objects_dir`: where new objects go instead, see `scratch_store`."""
        self.git_dir = git_dir
        self.objects_dir = str(objects_dir or git_dir / "objects")
        self._dirs: list[ObjectDir] | None = None
        self._trees: OrderedDict[bytes, tuple[int, Tree]] = OrderedDict()
        self._tree_bytes = 0
        self._blobs: OrderedDict[bytes, bytes] = OrderedDict()
        self._blob_bytes = 0
        self._resolving: set[bytes] = set()

    def init(self) -> None:
        """Make `git_dir` an ordinary repository; a no-op if it is one already."""
        create_repository(self.git_dir)
        self._dirs = None

    def read(self, oid: bytes) -> tuple[str, bytes]:
        """Kind and content, verified; `DamagedStoreError` when missing or damaged."""
        problem: DamagedStoreError | None = None
        for attempt in range(2):
            for directory in self._directories():
                try:
                    found = self._read_in(directory, oid)
                except DamagedStoreError as error:
                    # Another copy may be intact: remember the error and continue.
                    problem = problem or error
                    continue
                if found is not None:
                    return found
            # Another process may have packed since then, and removed the loose file.
            if attempt == 0:
                for directory in self._directories():
                    directory.refresh(force=True)
        raise problem or self._missing(oid)

    def _read_in(self, directory: ObjectDir, oid: bytes) -> tuple[str, bytes] | None:
        problem: DamagedStoreError | None = None
        try:
            found = loose.read_loose(directory.path, oid)
        except DamagedStoreError as error:
            found, problem = None, error
        if found is not None:
            return found
        for pack in directory.packs_to_ask():
            try:
                found = pack.read(oid, self._read_base)
            except DamagedStoreError as error:
                problem = problem or error
                continue
            if found is not None:
                directory.answered = pack
                return found
        if problem is not None:
            raise problem
        return None

    def _read_base(self, oid: bytes) -> tuple[str, bytes]:
        """The base of a delta from elsewhere; damaged packs may refer to each other in a cycle."""
        if oid in self._resolving:
            raise loose.damaged(oid, "is stored as a delta of itself")
        self._resolving.add(oid)
        try:
            return self.read(oid)
        finally:
            self._resolving.discard(oid)

    def _missing(self, oid: bytes) -> DamagedStoreError:
        broken = [error for d in self._directories() for error in d.broken.values()]
        if broken:
            return loose.damaged(oid, f"is missing; it may be in a damaged pack: {broken[0]}")
        return loose.damaged(oid, "is missing")

    def read_blob(self, oid: bytes) -> bytes:
        cached = self._blobs.get(oid)
        if cached is not None:
            return cached
        data = self._read_kind(oid, "blob")
        self.remember_blob(oid, data)
        return data

    def remember_blob(self, oid: bytes, data: bytes) -> None:
        """Put a small blob that was just read or written into the cache."""
        if len(data) > _CACHED_BLOB_MAX_BYTES or oid in self._blobs:
            return
        self._blobs[oid] = data
        self._blob_bytes += len(data) + 64
        while self._blob_bytes > _BLOB_CACHE_BYTES:
            self._blob_bytes -= len(self._blobs.popitem(last=False)[1]) + 64

    def read_tree(self, oid: bytes) -> Tree:
        """The parsed tree, shared with others through a cache: never change it in place."""
        cached = self._trees.get(oid)
        if cached is not None:
            self._trees.move_to_end(oid)
            return cached[1]
        # Git knows the empty tree without storing it.
        data = b"" if oid == EMPTY_TREE else self._read_kind(oid, "tree")
        try:
            tree = parse_tree(data)
        except DamagedStoreError as error:
            raise loose.damaged(oid, "is a malformed tree") from error
        self.remember_tree(oid, tree, len(data))
        return tree

    def remember_tree(self, oid: bytes, tree: Tree, size_bytes: int) -> None:
        """Put a tree that was just parsed or written into the cache."""
        if oid in self._trees:
            return
        cost = 256 + _TREE_OVERHEAD * size_bytes
        self._trees[oid] = (cost, tree)
        self._tree_bytes += cost
        while self._tree_bytes > _TREE_CACHE_BYTES:
            self._tree_bytes -= self._trees.popitem(last=False)[1][0]

    def read_commit(self, oid: bytes) -> Commit:
        data = self._read_kind(oid, "commit")
        try:
            return parse_commit(data)
        except DamagedStoreError as error:
            raise loose.damaged(oid, "is a malformed commit") from error

    def _read_kind(self, oid: bytes, wanted: str) -> bytes:
        kind, data = self.read(oid)
        if kind != wanted:
            raise loose.damaged(oid, f"is a {kind} where a {wanted} should be")
        return data

    def has(self, oid: bytes) -> bool:
        """Whether the object exists (not whether it is intact). Checks for new packs."""
        if self.has_known(oid):
            return True
        changed = [d for d in self._directories() if d.refresh()]
        return any(d.in_packs(oid) for d in changed)

    def has_known(self, oid: bytes) -> bool:
        """`has` without a check for new packs: for many calls in a row, after `reload`."""
        return any(d.in_packs(oid) or d.has_loose(oid) for d in self._directories())

    def has_packed(self, oid: bytes) -> bool:
        """Whether it is in a pack; packs are synced, loose objects may not be."""
        for directory in self._directories():  # noqa: SIM110 - asked for every object
            if directory.in_packs(oid):
                return True
        return False

    def packed_among(self, oids: Collection[bytes]) -> set[bytes]:
        """`has_packed` for many: those of `oids` that are in a pack."""
        return set().union(*(one.packed_among(oids) for one in self._directories()))

    def pack_count(self) -> int:
        return len(self._directories()[0].packs)

    def loose_oids(self) -> Iterator[bytes]:
        """The loose objects of this store itself."""
        return self._directories()[0].loose_oids()

    def has_pack_like(self, pack: Pack) -> bool:
        """Whether this store now has a complete copy of a pack of another store."""
        own = self._directories()[0]
        own.refresh(force=True)
        found = own.packs.get(os.path.basename(pack.index.path))
        return found is not None and found.index.is_same_as(pack.index)

    def missing(self, oids: Iterable[bytes]) -> set[bytes]:
        """Those of many objects that are missing, by one pass over each idx."""
        self.reload()
        left = set(oids)
        for directory in self._directories():
            for pack in directory.packs.values():
                left -= pack.index.held(left)
            if len(left) > 1000:  # listing 256 directories is faster than so many lookups
                left.difference_update(directory.loose_oids())
            else:
                left = {oid for oid in left if not directory.has_loose(oid)}
        return left

    def reload(self) -> None:
        """Check now for packs that were added or removed."""
        for directory in self._directories():
            directory.refresh(force=True)

    def all_oids(self) -> Iterator[bytes]:
        """Every object of this store itself (not of alternates); some may be repeated."""
        own = self._directories()[0]
        yield from own.loose_oids()
        for pack in list(own.packs.values()):
            yield from pack.index.oids()

    def write_loose(self, oid: bytes, kind: str, data: bytes, *, durable: bool = False) -> None:
        """Write one object, replacing an existing file; to replay a log after a crash."""
        loose.check_id(oid, kind, data)
        loose.write_loose(self.objects_dir, oid, kind, data, durable=durable)

    def sync_loose(self, oids: Iterable[bytes]) -> list[bytes]:
        """Make these loose objects survive a power cut; returns those that are not loose."""
        return loose.sync_loose(self.objects_dir, list(oids))

    def remove_leftovers(self) -> list[str]:
        """Remove temporaries of killed writers; call with the lock held."""
        found = [
            f"{self.objects_dir}/pack/{name}"
            for name in _names(f"{self.objects_dir}/pack")
            if name.startswith(("tmp-substrate-", "tmp_pack_", "tmp_idx_"))
        ]
        for number in range(256):
            directory = f"{self.objects_dir}/{number:02x}"
            found += [f"{directory}/{n}" for n in _names(directory) if n.startswith("tmp_obj_")]
        top = str(self.git_dir)
        found += [f"{top}/{n}" for n in _names(top) if n.startswith("tmp-substrate-")]
        for path in found:
            remove_tree(Path(path))
        return found

    def damaged_packs(self) -> dict[str, str]:
        """Packs that cannot be opened, and why: ``{"pack-….idx": reason}``."""
        self.reload()
        return {name: e.message for d in self._directories() for name, e in d.broken.items()}

    def _directories(self) -> list[ObjectDir]:
        if self._dirs is None:
            self._dirs = [ObjectDir(path) for path in with_alternates(self.objects_dir)]
        return self._dirs

    def close(self) -> None:
        """Close open pack files; the store stays usable."""
        for directory in self._dirs or []:
            for pack in directory.packs.values():
                pack.close()


def _names(directory: str) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:
        return []


def with_alternates(objects_dir: str) -> list[str]:
    """`objects_dir` and the directories its ``info/alternates`` names, each once."""
    found = [objects_dir]
    pending = [(objects_dir, 0)]
    while pending:
        path, depth = pending.pop(0)
        for line in _read_alternates(path):
            other = os.path.normpath(os.path.join(path, line))
            if other not in found and depth < _ALTERNATES_DEPTH:
                found.append(other)
                pending.append((other, depth + 1))
    return found


def _read_alternates(objects_dir: str) -> list[str]:
    try:
        text = read_bytes_or_none(Path(objects_dir, "info/alternates")) or b""
    except OSError:
        return []
    lines = (os.fsdecode(line) for line in text.split(b"\n"))
    return [line for line in lines if line and not line.startswith("#")]
