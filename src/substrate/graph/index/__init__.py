"""Snapshots of the graph, one for each commit: make, splice, compress, compare."""

from __future__ import annotations

from substrate.room_door import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:  # what other rooms may use
    from substrate.graph.index import compressed_snapshot as compressed_snapshot
    from substrate.graph.index import index_commit as index_commit
    from substrate.graph.index.delta import Delta as Delta
    from substrate.graph.index.delta import compare as compare
    from substrate.graph.index.graph_paths import FILES as FILES
    from substrate.graph.index.graph_paths import MARKER as MARKER
    from substrate.graph.index.graph_paths import SECTIONS as SECTIONS
    from substrate.graph.index.graph_paths import Layout as Layout
    from substrate.graph.index.graph_paths import is_other_version as is_other_version
    from substrate.graph.index.graph_paths import read_marker as read_marker
    from substrate.graph.index.manifests import parents_of as parents_of
    from substrate.graph.index.path_section import PREFIX_CHARS as PREFIX_CHARS
    from substrate.graph.index.path_section import region_id as region_id
    from substrate.graph.index.path_section import symbol_id as symbol_id
    from substrate.graph.index.records import CallEdge as CallEdge
    from substrate.graph.index.records import ImportEdge as ImportEdge
    from substrate.graph.index.records import SymbolRecord as SymbolRecord
    from substrate.graph.index.records import encode_lines as encode_lines
    from substrate.graph.index.records import path_id as path_id
    from substrate.graph.index.snapshot import TRUSTED as TRUSTED
    from substrate.graph.index.snapshot import Call as Call
    from substrate.graph.index.snapshot import Place as Place
    from substrate.graph.index.snapshot import Snapshot as Snapshot
    from substrate.graph.index.splice import Sections as Sections

__getattr__ = lazy_names(
    __name__,
    {
        "delta": "Delta, compare",
        "graph_paths": "FILES, Layout, MARKER, SECTIONS, is_other_version, read_marker",
        "manifests": "parents_of",
        "path_section": "PREFIX_CHARS, region_id, symbol_id",
        "records": "CallEdge, ImportEdge, SymbolRecord, encode_lines, path_id",
        "snapshot": "Call, Place, Snapshot, TRUSTED",
        "splice": "Sections",
    },
)
