"""One `.ctx` directory: objects, packs, names, garbage collection, forks."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.packs.store import forget as forget
    from substrate.packs.store import lineage as lineage
    from substrate.packs.store import pack_refs as pack_refs
    from substrate.packs.store.content_intake import LogFile as LogFile
    from substrate.packs.store.ctx_store import Store as Store
    from substrate.packs.store.ctx_store import find_store as find_store
    from substrate.packs.store.ctx_store import make_store as make_store
    from substrate.packs.store.ctx_store import open_store as open_store
    from substrate.packs.store.forks import drafts as drafts
    from substrate.packs.store.forks import finalize as finalize
    from substrate.packs.store.forks import find_draft as find_draft
    from substrate.packs.store.forks import fork as fork
    from substrate.packs.store.fsck import StoreFinding as StoreFinding
    from substrate.packs.store.fsck import check_store as check_store
    from substrate.packs.store.gc import collect as collect
    from substrate.packs.store.log_to_pack import pack_log as pack_log
    from substrate.packs.store.log_to_pack import publish as publish
    from substrate.packs.store.object_files import CHUNK as CHUNK
    from substrate.packs.store.object_files import MissingObjectError as MissingObjectError
    from substrate.packs.store.object_files import Objects as Objects
    from substrate.packs.store.object_files import Stored as Stored
    from substrate.packs.store.object_files import open_regular as open_regular
    from substrate.packs.store.pack_refs import latest as latest
    from substrate.packs.store.pack_refs import load as load
    from substrate.packs.store.pack_refs import set_latest as set_latest
    from substrate.packs.store.reachability import mentions as mentions
    from substrate.packs.store.reachability import read_if_manifest as read_if_manifest

__getattr__ = lazy_names(
    __name__,
    {
        "content_intake": "LogFile",
        "ctx_store": "Store, find_store, make_store, open_store",
        "forks": "drafts, finalize, find_draft, fork",
        "fsck": "StoreFinding, check_store",
        "gc": "collect",
        "log_to_pack": "pack_log, publish",
        "object_files": "CHUNK, MissingObjectError, Objects, Stored, open_regular",
        "pack_refs": "latest, load, set_latest",
        "reachability": "mentions, read_if_manifest",
    },
)
