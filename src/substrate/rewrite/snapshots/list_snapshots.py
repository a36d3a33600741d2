"""List the snapshots under ``refs/manifold/recovery``, from the repository alone."""

from __future__ import annotations

from typing import NamedTuple

from substrate.errors import DamagedStoreError, SubstrateError
from substrate.objects.snapshots import Snapshot
from substrate.objects.store import ObjectStore
from substrate.rewrite.execute import RECOVERY_PREFIX, WorkingCopy
from substrate.rewrite.snapshots import snapshot_metadata as metas
from substrate.rewrite.snapshots.snapshot_metadata import Meta


class Kept(NamedTuple):
    ref: str
    commit: bytes
    meta: Meta
    #: The working copy at that moment.
    state: Snapshot
    index_tree: bytes
    #: The index file itself, if a tree cannot represent it; else empty.
    index_file: bytes

    @property
    def name(self) -> str:
        return self.ref.removeprefix(RECOVERY_PREFIX)


def all_kept(
    copy: WorkingCopy, store: ObjectStore, unreadable: list[str] | None = None
) -> list[Kept]:
    """Newest first, of every working copy of the repository. A snapshot that cannot be read is
    skipped; the reason goes to `unreadable`."""
    found = []
    for ref, oid in recovery_refs(copy).items():
        try:
            found.append(read_kept(store, ref, oid))
        except SubstrateError as error:
            if unreadable is not None:
                unreadable.append(error.message)
    return sorted(found, key=lambda one: (one.meta.when_ns, one.ref), reverse=True)


def recovery_refs(copy: WorkingCopy) -> dict[str, bytes]:
    out = copy.git.run("for-each-ref", "--format=%(refname) %(objectname)", RECOVERY_PREFIX)
    pairs = (line.split(" ") for line in out.decode("utf-8", "surrogateescape").splitlines())
    return {ref: bytes.fromhex(oid) for ref, oid in pairs}


def read_kept(store: ObjectStore, ref: str, commit: bytes) -> Kept:
    try:
        parsed = store.read_commit(commit)
        side = store.read_tree(store.read_commit(parsed.parents[1]).tree)
        meta = metas.from_json(store.read_blob(side[b"meta.json"][1]))
        index_tree = side[b"index"][1]
    except (IndexError, KeyError, ValueError) as error:
        raise DamagedStoreError(
            f"{ref} is not a snapshot of ours", hint="`git log` shows what it is"
        ) from error
    except SubstrateError as error:
        raise DamagedStoreError(
            f"{ref} cannot be read: {error.message}", hint="`git fsck` tells what is missing"
        ) from error
    attrs = side.get(b"attrs", (0, b""))[1]
    index_file = side.get(b"index-file", (0, b""))[1]
    return Kept(ref, commit, meta, Snapshot(parsed.tree, attrs), index_tree, index_file)
