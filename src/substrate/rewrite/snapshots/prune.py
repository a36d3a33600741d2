"""Remove snapshots: by their age, or because their content is kept elsewhere.

Each removed snapshot leaves a tombstone, written first: a line that says what it was, and when and
why it was removed, so that every name that was ever printed still resolves.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from substrate.errors import RefusedError
from substrate.model import ROOT, RelPath, display, join
from substrate.objects.snapshots import MODE_DIR, Reader
from substrate.objects.store import ObjectStore
from substrate.rewrite.execute import RECOVERY_PREFIX, WorkingCopy
from substrate.rewrite.snapshots.artifacts import artifacts_dir
from substrate.rewrite.snapshots.list_snapshots import Kept, all_kept
from substrate.system import clock
from substrate.system.files import fsync_dir, remove_tree, write_all

TOMBSTONES = "tombstones.jsonl"
_NAMED_PATHS = 200
_GITLINK = 0o160000
#: Prints every content that the commits on its stdin reach.
REV_LIST = ("rev-list", "--objects", "--filter=object:type=blob", "--filter-provided-objects",
            "--no-object-names", "--stdin")  # fmt: skip
#: `(stdin of rev-list) -> its output`: runs rev-list in the caller's repository.
RevList = Callable[[bytes], bytes]


class Policy(NamedTuple):
    #: Remove snapshots at least this old; None: not because of their age.
    min_age_ns: int | None
    #: Remove a snapshot of any age if all of its content is kept elsewhere.
    redundant: bool = False
    #: The age of something captured at a given time: see `own_days`.
    age_of: Callable[[int], int] = lambda when_ns: clock.now_ns() - when_ns


class Tombstone(NamedTuple):
    ref: str
    commit: str
    captured: str
    pruned: str
    operation: str
    why: str
    #: The names of the first contents that were nowhere else, and how many there were.
    lost: tuple[str, ...]
    lost_count: int


def reason_to_go(when_ns: int, lost_count: int, policy: Policy) -> str:
    """Why to remove it; empty: keep it. Its age counts from the capture, not from commit dates."""
    if policy.min_age_ns is not None and policy.age_of(when_ns) >= policy.min_age_ns:
        return f"captured {clock.iso(when_ns)}, past its time"
    if policy.redundant and not lost_count:
        return "all of its content is kept elsewhere"
    return ""


class Elsewhere:
    """What other refs keep: the permanent ones, read from git once, and the other snapshots."""

    def __init__(self, rev_list: RevList, refs: Iterable[bytes], reader: Reader) -> None:
        self._rev_list = rev_list
        self._refs = set(refs)
        self._reader = reader
        self._lasting: set[bytes] | None = None
        self._contents: dict[bytes, dict[bytes, RelPath]] = {}

    def lost_with(self, trees: tuple[bytes, ...], others: Iterable[bytes]) -> list[str]:
        """Names of contents below `trees` that neither a permanent ref nor `others` contain."""
        if self._lasting is None:
            stdin = b"".join(oid.hex().encode() + b"\n" for oid in self._refs)
            lines = self._rev_list(stdin).split(b"\n") if stdin else []
            self._lasting = {bytes.fromhex(line[:40].decode()) for line in lines if line}
        own = {oid: path for tree in trees for oid, path in self._below(tree).items()}
        left = own.keys() - self._lasting
        for tree in others:
            left -= self._below(tree).keys()
        return sorted(display(own[oid]) for oid in left)

    def _below(self, tree: bytes) -> dict[bytes, RelPath]:
        if tree not in self._contents:
            found: dict[bytes, RelPath] = {}
            stack = [(ROOT, tree)]
            while stack:
                path, at = stack.pop()
                for name, (mode, oid) in self._reader.read_tree(at).items():
                    if mode == MODE_DIR:
                        stack.append((join(path, name), oid))
                    elif mode != _GITLINK:
                        found.setdefault(oid, join(path, name))
            self._contents[tree] = found
        return self._contents[tree]


def write_tombstone(directory: Path, stone: Tombstone) -> None:
    """Append one line, durable before the ref is removed."""
    record = json.dumps(stone._asdict()).encode() + b"\n"
    fd = os.open(directory / TOMBSTONES, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        write_all(fd, record)
        os.fsync(fd)
    finally:
        os.close(fd)
    fsync_dir(directory)


def read_tombstones(directory: Path) -> list[Tombstone]:
    """The last tombstone of each ref; skips a line that a crash cut short."""
    try:
        text = (directory / TOMBSTONES).read_bytes()
    except FileNotFoundError:
        return []
    out: dict[str, Tombstone] = {}
    for line in text.split(b"\n"):
        try:
            record = json.loads(line)
            stone = Tombstone(**{**record, "lost": tuple(record["lost"])})
        except (ValueError, KeyError, TypeError):
            continue
        out[stone.ref] = stone
    return list(out.values())


def prune(copy: WorkingCopy, policy: Policy, *, dry_run: bool = False) -> list[Tombstone]:
    """Remove snapshots; returns what was (or would be) removed, oldest first."""
    store = ObjectStore(copy.common_dir)
    gone: list[Tombstone] = []
    with nullcontext() if dry_run else copy.locked("prune"):
        staying = {kept.ref: kept for kept in reversed(all_kept(copy, store))}
        elsewhere = Elsewhere(_rev_list(copy), _lasting_refs(copy), store)
        for kept in list(staying.values()):
            others = [t for ref, k in staying.items() if ref != kept.ref for t in _trees(k)]
            stone = _judge(kept, policy, elsewhere, others)
            if stone is None:
                continue
            if not dry_run:
                write_tombstone(copy.own_dir, stone)
                copy.git.run("update-ref", "--no-deref", "-d", kept.ref, kept.commit.hex())
                remove_tree(artifacts_dir(copy, kept.name))
            del staying[kept.ref]
            gone.append(stone)
    return gone


def _trees(kept: Kept) -> tuple[bytes, bytes]:
    return kept.state.tree, kept.index_tree


def _judge(
    kept: Kept, policy: Policy, elsewhere: Elsewhere, others: list[bytes]
) -> Tombstone | None:
    when_ns = kept.meta.when_ns
    if not policy.redundant and not reason_to_go(when_ns, 1, policy):
        return None
    lost = elsewhere.lost_with(_trees(kept), others)
    why = reason_to_go(when_ns, len(lost), policy)
    if not why:
        return None
    return tombstone(kept.ref, kept.commit, when_ns, kept.meta.operation, why, lost)


def tombstone(
    ref: str, commit: bytes, when_ns: int, operation: str, why: str, lost: list[str]
) -> Tombstone:
    now = clock.iso(clock.now_ns())
    named = tuple(lost[:_NAMED_PATHS])
    return Tombstone(
        ref, commit.hex(), clock.iso(when_ns), now, operation, why, named, len(lost)
    )  # fmt: skip


def _rev_list(copy: WorkingCopy) -> RevList:
    return lambda stdin: copy.git.run(*REV_LIST, input=stdin)


def _lasting_refs(copy: WorkingCopy) -> set[bytes]:
    """Every ref except the snapshots, plus HEAD."""
    out = copy.git.run("for-each-ref", "--format=%(objectname) %(refname)")
    pairs = (line.split(b" ", 1) for line in out.splitlines())
    prefix = RECOVERY_PREFIX.encode()
    lasting = {bytes.fromhex(oid.decode()) for oid, ref in pairs if not ref.startswith(prefix)}
    with suppress(RefusedError):  # a repository without a commit
        lasting.add(copy.head().commit)
    return lasting
