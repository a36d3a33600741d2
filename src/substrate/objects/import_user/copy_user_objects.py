"""Copy or link the user's objects into our store, so that a later amend and gc cannot remove them.

Whole packs are hard-linked where that is cheap: no byte is read or copied. Where linking is not
possible, or would include a huge history, git copies only the needed objects.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from substrate.errors import SubstrateError
from substrate.objects.git import Git
from substrate.objects.store import ObjectDir, ObjectStore, Pack, loose_path, with_alternates
from substrate.system import clock
from substrate.system.files import fsync_dir, fsync_fd, make_directory, remove_tree

#: Packs up to this size are linked, however few of their objects are needed.
_SMALL_PACKS_BYTES = 64 << 20
_LINKED_PACKS_MAX_BYTES = 1 << 30
#: How many objects a linked pack may contain for each needed one.
_SURPLUS_MAX = 8
#: More loose objects than this are packed: a link and a sync for each would take longer.
LINKED_LOOSE_MAX = 500
#: The kernel writes file data to disk by itself after 30 s; we sync younger files.
_WRITTEN_BACK_NS = 60_000_000_000
_CANNOT_LINK = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS)


class _CannotLinkError(Exception):
    """The objects are on another filesystem, or we may not link them."""


def adopt_objects(user_objects: Path, store: ObjectStore, oids: Iterable[bytes]) -> set[bytes]:
    """Bring these objects of the user's repository into `store`; returns those that are missing.

    This also finds objects in alternates of the user's repository. `user_objects` is only read.
    When this returns, the objects survive a power cut.
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
    # The objects of a pack that we have now need no check.
    vanished = [held for pack, held in packs.items() if not store.has_pack_like(pack)]
    return store.missing(loose.union(*vanished))


def _packs_holding(
    places: list[ObjectDir], wanted: set[bytes]
) -> tuple[dict[Pack, set[bytes]], set[bytes]]:
    """Packs with wanted objects, and the wanted objects that are in no pack.

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
    """Link the pack first: a reader opens it as soon as it sees the idx."""
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
            make_directory(directory)
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
        pass  # the user's gc removed it; a later check finds what is missing
    except OSError as error:
        if error.errno in _CANNOT_LINK:
            raise _CannotLinkError from error
        raise


def _sync_if_young(path: str, now_ns: int) -> None:
    """The user's git may not have synced what it wrote."""
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
    """Let git write one new pack of exactly these objects, and move it into the store."""
    scratch = store.git_dir / f"tmp-substrate-pack-{os.urandom(8).hex()}"
    scratch.mkdir()
    try:
        made = Git(user_objects.parent).pack_exactly(oids, scratch)
        if made is not None:
            move_pack_in(made, store)
    except SubstrateError:
        pass  # an object is missing in the user's repository: the caller reads the files instead
    finally:
        remove_tree(scratch)


def move_pack_in(pack: Path, store: ObjectStore) -> None:
    """Sync a finished pack and its idx and move them into the store."""
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
