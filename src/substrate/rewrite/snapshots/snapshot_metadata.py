"""A snapshot's metadata: the operation, its two commits, and the paths."""

from __future__ import annotations

import json
from typing import NamedTuple

from substrate.model import RelPath, display


class Meta(NamedTuple):
    operation: str
    operation_id: str
    workspace: str
    #: Full commit ids, as text; `target` is what the user named.
    base: str
    target: str
    target_commit: str
    head_ref: str
    head_commit: str
    when_ns: int = 0
    #: Paths that the operation was about to change.
    planned: tuple[RelPath, ...] = ()
    #: Tracked paths with staged or unstaged work.
    dirty: tuple[RelPath, ...] = ()
    untracked: tuple[RelPath, ...] = ()
    size_bytes: int = 0

    @property
    def paths(self) -> tuple[RelPath, ...]:
        """The paths that restoring the snapshot writes."""
        return tuple(sorted({*self.planned, *self.dirty, *self.untracked}))


_PATHS = ("planned", "dirty", "untracked")


def to_json(meta: Meta) -> bytes:
    record: dict[str, object] = meta._asdict()
    for field in _PATHS:
        paths: tuple[RelPath, ...] = getattr(meta, field)
        record[field] = [path.hex() for path in paths]
    return json.dumps(record, indent=1).encode() + b"\n"


def from_json(data: bytes) -> Meta:
    record = json.loads(data)
    known = {name: record[name] for name in Meta._fields if name in record}
    for field in _PATHS:
        known[field] = tuple(RelPath(bytes.fromhex(text)) for text in known.get(field, ()))
    return Meta(**known)


def shown(paths: tuple[RelPath, ...]) -> list[str]:
    return [display(path) for path in paths]
