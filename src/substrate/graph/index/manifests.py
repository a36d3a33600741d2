"""The two append-only lists: indexed commits, and known paths.

Written under the graph's lock. A line is added only if it is new; a last line that a kill left
torn is removed first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from substrate.graph.index.graph_paths import Layout
from substrate.graph.index.records import (
    CommitRecord,
    PathRecord,
    Record,
    encode_lines,
    path_fields,
    path_id,
)
from substrate.system import clock
from substrate.system.files import read_bytes_or_none, write_all

_PATH_ID = re.compile(rb'"path_id":"([0-9a-f]{32})"')
_PERSON = re.compile(rb"\A(.*?)\s*(?:<[^>]*>)?\s+(-?\d+) [+-]\d{4}\Z", re.DOTALL)


def commit_record(repo: str, commit: bytes, raw: bytes) -> CommitRecord:
    """The record of a commit, from the fields of its commit object."""
    head, _, message = raw.partition(b"\n\n")
    fields: dict[bytes, bytes] = {}
    for line in head.split(b"\n"):
        name, _, value = line.partition(b" ")
        fields.setdefault(name, value)
    author = fields.get(b"author", b"")
    person = _PERSON.match(author)
    parent = fields.get(b"parent")
    return CommitRecord(
        repo=repo,
        sha=commit.hex(),
        parent_sha=parent.decode() if parent else None,
        author=(author.rpartition(b">")[0] + b">").decode("utf-8", "replace").removesuffix("<>"),
        message=message.decode("utf-8", "replace").strip("\n"),
        authored_at=_when(person[2]) if person else "",
    )


def _when(seconds: bytes) -> str:
    """The time; empty if it is not valid: a commit may contain any text there."""
    try:
        return clock.iso(int(seconds) * 1_000_000_000)
    except (ValueError, OverflowError, OSError):
        return ""


def parents_of(raw: bytes) -> list[bytes]:
    head = raw.partition(b"\n\n")[0]
    return [
        bytes.fromhex(line[7:].decode()) for line in head.split(b"\n") if line[:7] == b"parent "
    ]


def add_commit(layout: Layout, record: CommitRecord) -> None:
    present = read_bytes_or_none(layout.commits) or b""
    if f'"sha":"{record.sha}"'.encode() not in present:
        _append(layout.commits, present, [record])


def add_paths(
    layout: Layout, repo: str, commit: bytes, added: Iterable[bytes],
    gone: Iterable[bytes] = (), last_seen: bytes = b"",
) -> None:  # fmt: skip
    """Record paths that are new, and those that `commit` no longer has."""
    added, gone = list(added), list(gone)
    if not added and not gone:
        return
    present = read_bytes_or_none(layout.paths) or b""
    known = set(_PATH_ID.findall(present)) if len(added) > 50 else None
    records: list[Record] = []
    for path in added:
        pid = path_id(path)
        is_known = pid.encode() in known if known is not None else _has(present, pid)
        if not is_known:
            text, encoded = path_fields(path)
            records.append(PathRecord(pid, repo, text, commit.hex(), None, encoded))
    for path in gone:
        pid = path_id(path)
        text, encoded = path_fields(path)
        first = _first_seen(present, pid)
        if first and present.count(f'"path_id":"{pid}"'.encode()) == 1:
            records.append(PathRecord(pid, repo, text, first, last_seen.hex(), encoded))
    _append(layout.paths, present, records)


def _has(present: bytes, pid: str) -> bool:
    return f'"path_id":"{pid}"'.encode() in present


def _first_seen(present: bytes, pid: str) -> str:
    at = present.find(f'"path_id":"{pid}"'.encode())
    if at < 0:
        return ""
    line = present[at : present.find(b"\n", at)]
    found = re.search(rb'"first_seen_commit":"([0-9a-f]+)"', line)
    return found[1].decode() if found else ""


def _append(path: Path, present: bytes, records: list[Record] | list[CommitRecord]) -> None:
    whole = present.rfind(b"\n") + 1
    if not records and whole == len(present):
        return
    fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        os.ftruncate(fd, whole)
        os.lseek(fd, 0, os.SEEK_END)
        write_all(fd, encode_lines(records))
    finally:
        os.close(fd)
