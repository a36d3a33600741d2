"""What a step changed in the tree: detected like in history, with contents named by SHA-256.

The same rules exclude the same paths (caches, `node_modules`, files above the size limit), so that
a recorded step can be compared with its replay.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from substrate.model import ABSENT, Change, Kind, Node, RelPath, to_text
from substrate.packs.format import PREFIX
from substrate.workspace import Exclusions
from substrate.workspace.scan import StatCache, scan

#: One changed path in the form of a manifest.
ChangeJson = dict[str, object]


class TreeState:
    """Tracks a tree from now on: `changes` returns the differences since its last call."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._cache = StatCache()
        self._nodes: dict[RelPath, Node] = {}
        self.changes()

    def changes(self) -> list[Change]:
        found = scan(self._root, self._cache, Exclusions.load(self._root), _Sha256())
        out = []
        for path, node in sorted(found.seen.items()):
            before = self._nodes.get(path, ABSENT)
            if node == before:
                continue
            out.append(Change(path, before, node))
            if node.kind is Kind.ABSENT:
                self._nodes.pop(path, None)
            else:
                self._nodes[path] = node
        return out

    def node(self, path: RelPath) -> Node:
        return self._nodes.get(path, ABSENT)


class _Sha256:
    """Hashes contents like packs do, and stores none."""

    def add_blob(self, data: bytes) -> bytes:
        return hashlib.sha256(data).digest()


def leaves(changes: Iterable[Change]) -> list[Change]:
    """Files, links and so on; of directories only those created or removed empty."""
    found = list(changes)
    above: set[bytes] = set()
    for change in found:
        parent = change.path.rpartition(b"/")[0]
        while parent and parent not in above:
            above.add(parent)
            parent = parent.rpartition(b"/")[0]
    return [change for change in found if not _is_only_directory(change) or _is_news(change, above)]


def _is_only_directory(change: Change) -> bool:
    return {change.old.kind, change.new.kind} <= {Kind.DIRECTORY, Kind.ABSENT}


def _is_news(change: Change, above: set[bytes]) -> bool:
    came_or_went = Kind.ABSENT in (change.old.kind, change.new.kind)
    return came_or_went and change.path not in above


def change_json(change: Change, sha256: Mapping[bytes, str] | None = None) -> ChangeJson:
    """A changed path for a step's `result`; `sha256` translates the ids of another store."""
    path, encoded = to_text(change.path)
    out: ChangeJson = {"path": path, "change": _word(change)}
    if encoded:
        out["encoded"] = True
    new = change.new
    if new.kind is Kind.ABSENT:
        return out
    out["kind"] = new.kind.value
    if new.kind is not Kind.SYMLINK:
        out["mode"] = f"{stat.S_IMODE(new.mode):04o}"
    if new.has_content:
        out["content"] = sha256[new.oid] if sha256 is not None else PREFIX + new.oid.hex()
    return out


def _word(change: Change) -> str:
    if change.old.kind is Kind.ABSENT:
        return "added"
    if change.new.kind is Kind.ABSENT:
        return "deleted"
    if change.old.kind is not change.new.kind:
        return "type"
    return "mode" if change.old.oid == change.new.oid else "modified"
