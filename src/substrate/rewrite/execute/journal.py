"""The write-ahead journal of an operation: enough to finish it after any crash."""

from __future__ import annotations

import base64
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from substrate.errors import DamagedStoreError
from substrate.model import Kind, Node, RelPath
from substrate.objects.index import Stages
from substrate.rewrite.execute.working_copy import WorkingCopy
from substrate.system.files import fsync_dir, read_bytes_or_none, remove_tree, write_atomic
from substrate.workspace.apply import Plan

_INTENT = "intent.json"
#: The name of an index that a restore laid out in the journal; empty: none.
_PLAIN_NAME = re.compile(r"([a-z]+(\.[a-z]+)*)?")
_FORMAT = 1
IndexWish = dict[RelPath, "Node | Stages"]


class HeadMove(NamedTuple):
    """The new HEAD: a branch's full name, else a commit; both empty: HEAD does not move."""

    ref: str = ""
    commit: str = ""
    #: The previous HEAD, to detect a later move by another process.
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
    #: By path the entry before and after: for files that changed during the rewrite.
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
        """Holds the new index's fingerprint, written just before that index is put in place."""
        return self.directory / "index.vouched"


def announce(intent: Intent) -> None:
    """From here on the operation will be finished, by this process or by the next one."""
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
    """Remove the intent first: a directory without one counts as litter."""
    (intent.directory / _INTENT).unlink(missing_ok=True)
    fsync_dir(intent.directory)
    remove_tree(intent.directory)


def announced(copy: WorkingCopy) -> Iterator[Intent]:
    """Operations announced and not finished, oldest first. Changes nothing."""
    for directory in _directories(copy):
        if (directory / _INTENT).exists():
            yield _read(directory)


def pending(copy: WorkingCopy) -> Iterator[Intent]:
    """The same, to finish them. Also removes litter of operations that never began."""
    for directory in _directories(copy):
        if (directory / _INTENT).exists():
            yield _read(directory)
        else:
            remove_tree(directory)


def _directories(copy: WorkingCopy) -> list[Path]:
    """The journal is in the workspace, where a command or a cloned repository can write.

    So only a real directory of this user counts: a link would lead outside, and root must not carry
    out what another user has written.
    """
    if not (_is_own_directory(copy.own_dir) and _is_own_directory(copy.journal_dir)):
        return []
    return sorted(p for p in copy.journal_dir.iterdir() if _is_own_directory(p))


def _is_own_directory(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    owns = not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
    return stat.S_ISDIR(found.st_mode) and owns


def _read(directory: Path) -> Intent:
    try:
        record = json.loads(read_bytes_or_none(directory / _INTENT) or b"")
        if record["format"] != _FORMAT:
            raise ValueError(f"format {record['format']!r}")
        _refuse_forged(directory, record)
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
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise DamagedStoreError(
            f"the journal in {directory} cannot be read: {error}",
            hint="bring back what you miss with `substrate recover`, then remove that directory",
        ) from error


def _refuse_forged(directory: Path, record: Mapping[str, object]) -> None:
    """`ValueError` for what no rewrite of ours writes, and what would lead out of the workspace."""
    name = record["index_file"]
    if not isinstance(name, str) or not _PLAIN_NAME.fullmatch(name):
        raise ValueError(f"index_file {name!r}")
    if json.loads(str(record["plan"])).get("beyond_history"):
        raise ValueError("the plan of a rewrite never changes a .git directory")
    for one in directory.iterdir():
        if one.is_symlink():
            raise ValueError(f"{one.name} is a link")


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
