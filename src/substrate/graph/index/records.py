"""The records, one JSON object per line. Field order is fixed: equal records have equal bytes."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from msgspec import UNSET, Struct, UnsetType, json

from substrate.model import to_text


class Record(Struct, tag_field="type", gc=False):
    pass


class CommitRecord(Record, tag="commit"):
    repo: str
    sha: str
    parent_sha: str | None
    author: str
    message: str
    authored_at: str


class PathRecord(Record, tag="path"):
    path_id: str
    repo: str
    path: str
    first_seen_commit: str
    last_seen_commit: str | None
    #: The path is not UTF-8: see docs/commands.md.
    encoded: bool | UnsetType = UNSET


class FileRecord(Record, tag="file_snapshot"):
    path_id: str
    blob_oid: str
    content_sha256: str
    language: str
    byte_size: int
    loc: int
    is_generated: bool
    is_binary: bool
    path: str
    encoded: bool | UnsetType = UNSET
    #: Why symbols are missing or incomplete, if they are.
    trouble: str | UnsetType = UNSET


class SymbolRecord(Record, tag="symbol"):
    symbol_id: str
    path_id: str
    kind: str
    name: str
    fqname: str
    visibility: str
    language: str
    signature: str
    docstring: str
    symbol_hash: str
    def_region_id: str


class RegionRecord(Record, tag="region"):
    region_id: str
    path_id: str
    region_hash: str
    purpose: str
    start_line: int
    start_col: int
    end_line: int
    end_col: int


class ImportEdge(Record, tag="import_edge"):
    from_path_id: str
    import_region_id: str
    to_path_id: str | UnsetType = UNSET
    to_external_module: str | UnsetType = UNSET
    #: The names imported from it; ``*`` for all.
    names: list[str] | UnsetType = UNSET


class CallEdge(Record, tag="call_edge"):
    from_symbol_id: str
    call_region_id: str
    call_type: str
    confidence: float
    to_symbol_id: str | UnsetType = UNSET
    to_external_ref: str | UnsetType = UNSET


_ENCODER = json.Encoder()
encode_line = _ENCODER.encode


def encode_lines(records: Sequence[Record]) -> bytes:
    return _ENCODER.encode_lines(records)


def path_id(path: bytes) -> str:
    """The first 128 bits of the SHA-256 of the path: see docs/graph.md."""
    return sha256(path).hexdigest()[:32]


def path_fields(path: bytes) -> tuple[str, bool | UnsetType]:
    text, encoded = to_text(path)
    return text, True if encoded else UNSET
