"""What is about to be done, written down before it is: enough to finish it after any crash."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from substrate.errors import DamagedStoreError
from substrate.model.nodes import Kind, Node
from substrate.model.paths import RelPath
from substrate.rewrite.replay import Stages
from substrate.rewrite.working_copy import WorkingCopy
from substrate.system.files import fsync_dir, remove_tree, write_atomic
from substrate.workspace.plan import Plan

_INTENT = "intent.json"
_FORMAT = 1
IndexWish = dict[RelPath, "Node | Stages"]


class HeadMove(NamedTuple):
    """HEAD as it shall be: a branch's full name, else a commit; both empty: it stays."""

    ref: str = ""
    commit: str = ""
    #: What HEAD was, so that somebody else's later move is noticed.
    old_ref: str = ""
    old_commit: str = ""
    message: str = ""

    @property
    def is_move(self) -> bool:
        return bool(self.ref or self.commit)


class Intent(NamedTuple):
    """One announced operation; its directory also holds the scratch files and the old index."""

    directory: Path
    operation_id: str
    operation: str
    plan: Plan
    entries: IndexWish
    #: By path the entry before and after: for files that changed while we were at it.
    late: dict[RelPath, tuple[Node, Node]]
    head: HeadMove
    #: `index_file.fingerprint` of the index this was planned from.
    old_index: str
    #: A whole index file to put in place instead of `index`, by name in `directory`.
    index_file: str = ""

    @property
    def scratch(self) -> Path:
        return self.directory / "scratch"

    @property
    def old_index_file(self) -> Path:
        return self.directory / "index.old"

    @property
    def new_index_file(self) -> Path:
        return self.directory / "index.new"

    @property
    def vouched_file(self) -> Path:
        """Holds the fingerprint of the index that is put in place, from just before that."""
        return self.directory / "index.vouched"


def announce(intent: Intent) -> None:
    """From here on the operation will be finished, by us or by whoever comes next."""
    document = {
        "format": _FORMAT,
        "operation_id": intent.operation_id,
        "operation": intent.operation,
        "plan": intent.plan.to_json(),
        "index": [[_text(p), _entry_json(e)] for p, e in intent.entries.items()],
        "late": [[_text(p), _node_json(a), _node_json(b)] for p, (a, b) in intent.late.items()],
        "head": intent.head._asdict(),
        "old_index": intent.old_index,
        "index_file": intent.index_file,
    }
    fsync_dir(intent.directory.parent)
    write_atomic(intent.directory / _INTENT, json.dumps(document).encode())


def forget(intent: Intent) -> None:
    """The record goes first: a directory without one is only litter."""
    (intent.directory / _INTENT).unlink(missing_ok=True)
    fsync_dir(intent.directory)
    remove_tree(intent.directory)


def pending(copy: WorkingCopy) -> Iterator[Intent]:
    """Announced and not finished, oldest first. Litter of operations that never began goes."""
    try:
        found = sorted(p for p in copy.journal_dir.iterdir() if p.is_dir())
    except FileNotFoundError:
        return
    for directory in found:
        if (directory / _INTENT).exists():
            yield _read(directory)
        else:
            remove_tree(directory)


def _read(directory: Path) -> Intent:
    try:
        record = json.loads((directory / _INTENT).read_bytes())
        if record["format"] != _FORMAT:
            raise ValueError(f"format {record['format']!r}")
        return Intent(
            directory=directory,
            operation_id=record["operation_id"],
            operation=record["operation"],
            plan=Plan.from_json(record["plan"]),
            entries={_path(p): _entry(e) for p, e in record["index"]},
            late={_path(p): (_node(a), _node(b)) for p, a, b in record["late"]},
            head=HeadMove(**record["head"]),
            old_index=record["old_index"],
            index_file=record["index_file"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedStoreError(
            f"the journal in {directory} cannot be read: {error}",
            hint="bring back what you miss with `substrate recover`, then remove that directory",
        ) from error


def _entry_json(entry: Node | Stages) -> object:
    if isinstance(entry, Stages):
        return {"stages": [_node_json(node) for node in entry]}
    return _node_json(entry)


def _entry(record: Mapping[str, list[object]]) -> Node | Stages:
    if "stages" in record:
        return Stages(*(_node(item) for item in record["stages"]))
    return _node(record)


def _node_json(node: Node) -> object:
    return {"kind": node.kind.value, "mode": node.mode, "oid": node.oid.hex()}


def _node(record: object) -> Node:
    assert isinstance(record, dict)
    return Node(Kind(record["kind"]), int(record["mode"]), bytes.fromhex(record["oid"]))


def _text(path: RelPath) -> str:
    return base64.b64encode(path).decode("ascii")


def _path(text: str) -> RelPath:
    return RelPath(base64.b64decode(text))
