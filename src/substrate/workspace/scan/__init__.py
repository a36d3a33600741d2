"""Finding what differs on disk from the last scan."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.workspace.scan import stat_listing as stat_listing
    from substrate.workspace.scan.compare import ScanResult as ScanResult
    from substrate.workspace.scan.stat_cache import MARSHAL_VERSION as MARSHAL_VERSION
    from substrate.workspace.scan.stat_cache import UNSIGNED as UNSIGNED
    from substrate.workspace.scan.stat_cache import CacheDamagedError as CacheDamagedError
    from substrate.workspace.scan.stat_cache import DirRecord as DirRecord
    from substrate.workspace.scan.stat_cache import Entry as Entry
    from substrate.workspace.scan.stat_cache import Payload as Payload
    from substrate.workspace.scan.stat_cache import StatCache as StatCache
    from substrate.workspace.scan.stat_cache import Xattrs as Xattrs
    from substrate.workspace.scan.stat_cache import cached_node as cached_node
    from substrate.workspace.scan.stat_cache import node_of as node_of
    from substrate.workspace.scan.stat_cache import pack_payload as pack_payload
    from substrate.workspace.scan.stat_listing import MOST_ENTRIES as MOST_ENTRIES
    from substrate.workspace.scan.stat_listing import Listing as Listing
    from substrate.workspace.scan.tree_scan import scan as scan

__getattr__ = lazy_names(
    __name__,
    {
        "compare": "ScanResult",
        "stat_cache": (
            "CacheDamagedError, DirRecord, Entry, MARSHAL_VERSION, Payload, StatCache, "
            "UNSIGNED, Xattrs, cached_node, node_of, pack_payload"
        ),
        "stat_listing": "Listing, MOST_ENTRIES",
        "tree_scan": "scan",
    },
)
