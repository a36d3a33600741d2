"""Making the user's objects ours, so that their next amend and gc cannot take them away.

Whole packs are hard-linked where that is cheap for everybody: no byte is read or copied. Where it
is not possible, or would drag in a huge history, git copies just the objects that are needed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from substrate.errors import SubstrateError
from substrate.objects.git import Git
from substrate.objects.loose import loose_path
from substrate.objects.packfile import Pack
from substrate.objects.store import ObjectDir, ObjectStore, with_alternates
from substrate.system import clock
from substrate.system.files import fsync_dir, fsync_fd, remove_tree

#: Packs up to this size are linked whatever part of them is needed.
_SMALL_PACKS_BYTES = 64 << 20
_LINKED_PACKS_MAX_BYTES = 1 << 30
#: How many objects a linked pack may hold for each one that is needed.
_SURPLUS_MAX = 8
#: More loose objects than this become one pack: a link and a sync for each would take longer.
LINKED_LOOSE_MAX = 500
#: The kernel writes file data back on its own after 30 s; younger files are synced by us.
_WRITTEN_BACK_NS = 60_000_000_000
_CANNOT_LINK = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS)


class _CannotLinkError(Exception):
    """Another filesystem, or files that we may not link."""


def adopt_objects(user_objects: Path, store: ObjectStore, oids: Iterable[bytes]) -> set[bytes]:
    """Bring these objects of the user's repository into `store`; returns those that are missing.

    What is in an alternate of the user's repository is found as well. `user_objects` is only
    read. The objects survive a power cut when this returns.
    """
    wanted = store.missing(oids)
    if not wanted:
        return set()
    places = [ObjectDir(path) for path in with_alternates(str(user_objects))]
    packs, loose = _packs_holding(places, wanted)
    try:
        if not _is_cheap(packs):
            raise _CannotLinkError
        for pack in packs:
            _link_pack(pack, store)
        if len(loose) > LINKED_LOOSE_MAX:
            _copy(user_objects, store, _present(places, loose))
        else:
            _link_loose(places, store, loose)
    except _CannotLinkError:
        _copy(user_objects, store, _present(places, wanted))
        return store.missing(wanted)
    # What is in a pack that we have now is there; a pass over all of it would only say so again.
    vanished = [held for pack, held in packs.items() if not store.has_pack_like(pack)]
    return store.missing(loose.union(*vanished))


def _packs_holding(
    places: list[ObjectDir], wanted: set[bytes]
) -> tuple[dict[Pack, set[bytes]], set[bytes]]:
    """Packs that hold something wanted, and what none of them holds.

    Each object counts for the first pack that has it.
    """
    found: dict[Pack, set[bytes]] = {}
    left = wanted
    for pack in sorted((p for d in places for p in d.packs.values()), key=_size, reverse=True):
        held = pack.index.held(left)
        if held:
            found[pack] = held
            left = left - held if len(held) < len(left) else set()
    return found, left


def _is_cheap(packs: dict[Pack, set[bytes]]) -> bool:
    size_bytes = sum(_size(pack) for pack in packs)
    if size_bytes <= _SMALL_PACKS_BYTES:
        return True
    held = sum(pack.index.count for pack in packs)
    needed = sum(len(oids) for oids in packs.values())
    return size_bytes <= _LINKED_PACKS_MAX_BYTES and held <= _SURPLUS_MAX * needed


def _size(pack: Pack) -> int:
    try:
        return os.stat(pack.path).st_size
    except OSError:
        return 0


def _present(places: list[ObjectDir], wanted: set[bytes]) -> list[bytes]:
    return [oid for oid in wanted if any(d.in_packs(oid) or d.has_loose(oid) for d in places)]


def _link_pack(pack: Pack, store: ObjectStore) -> None:
    """The pack first: a reader looks for it as soon as it sees the idx."""
    pack_dir = Path(store.objects_dir, "pack")
    for source in (pack.path, pack.index.path):
        target = str(pack_dir / os.path.basename(source))
        _link(source, target)
        _sync_if_young(target, clock.now_ns())
    fsync_dir(pack_dir)


def _link_loose(places: list[ObjectDir], store: ObjectStore, oids: Iterable[bytes]) -> None:
    now_ns = clock.now_ns()
    directories = set()
    for oid in oids:
        place = next((d for d in places if d.has_loose(oid)), None)
        if place is None:
            continue
        target = loose_path(store.objects_dir, oid)
        directory = target.rpartition("/")[0]
        if directory not in directories:
            os.makedirs(directory, exist_ok=True)
            directories.add(directory)
        _link(loose_path(place.path, oid), target)
        _sync_if_young(target, now_ns)
    for directory in directories:
        fsync_dir(Path(directory))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileExistsError:
        pass
    except AttributeError as error:  # a system without hard links
        raise _CannotLinkError from error
    except FileNotFoundError:
        pass  # the user's gc was quicker; what is missing will be found out
    except OSError as error:
        if error.errno in _CANNOT_LINK:
            raise _CannotLinkError from error
        raise


def _sync_if_young(path: str, now_ns: int) -> None:
    """The user's git need not have synced what it wrote."""
    try:
        if os.stat(path).st_mtime_ns < now_ns - _WRITTEN_BACK_NS:
            return
        fd = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # it may be a FIFO
    except FileNotFoundError:
        return
    try:
        if os.name != "nt":  # there a descriptor opened for reading cannot be synced
            fsync_fd(fd)
    finally:
        os.close(fd)


def _copy(user_objects: Path, store: ObjectStore, oids: list[bytes]) -> None:
    """Let git write one new pack of just these objects, and move it in."""
    scratch = store.git_dir / f"tmp-substrate-pack-{os.urandom(8).hex()}"
    scratch.mkdir()
    try:
        made = Git(user_objects.parent).pack_exactly(oids, scratch)
        if made is not None:
            move_pack_in(made, store)
    except SubstrateError:
        pass  # an object the user's repository cannot give: the caller reads the files instead
    finally:
        remove_tree(scratch)


def move_pack_in(pack: Path, store: ObjectStore) -> None:
    """Sync a finished pack and its idx and give them their place in the store."""
    pack_dir = Path(store.objects_dir, "pack")
    for source in (pack, pack.with_suffix(".idx")):
        fd = os.open(source, os.O_RDONLY)
        try:
            if os.name != "nt":
                fsync_fd(fd)
        finally:
            os.close(fd)
        os.replace(source, pack_dir / source.name)
    fsync_dir(pack_dir)
