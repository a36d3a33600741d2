"""The snapshot: one commit in the user's repository with the working copy, byte for byte.

refs/manifold/recovery/<workspace>/<nanoseconds>
  commit        tree = every tracked and every untracked file at that moment
    parent 1    the base, so that ``git diff <ref>^ <ref>`` shows the user's work
    parent 2    tree: index/ (the staged state), attrs/ (exact modes, empty directories),
                meta.json, and index-file if entries are in conflict or intent-to-add
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from substrate.errors import WorkspaceError
from substrate.model import ABSENT, Kind, Node, RelPath, display
from substrate.objects.snapshots import MODE_DIR, MODE_FILE, Commit, Snapshot, signature
from substrate.objects.snapshots import snapshot as snapshots
from substrate.objects.store import Batch
from substrate.rewrite.execute import RECOVERY_PREFIX, WorkingCopy, list_directories
from substrate.rewrite.plan import Files, Survey, assumed_unchanged, entry_flags, is_as_recorded
from substrate.rewrite.snapshots import snapshot_metadata as metas
from substrate.rewrite.snapshots.snapshot_metadata import Meta
from substrate.system import clock
from substrate.system.files import fsync_dir
from substrate.system.process import Asked
from substrate.system.sync import store_age

_TRIES = 1000


class Captured(NamedTuple):
    ref: str
    commit: bytes
    meta: Meta
    index_tree: bytes
    #: The tracked files at that moment, without the untracked ones: the source of patches.
    tracked_tree: bytes
    #: What was read, to compare again before anything is overwritten.
    nodes: dict[RelPath, Node]
    skipped: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.ref.removeprefix(RECOVERY_PREFIX)


def capture(
    copy: WorkingCopy,
    survey: Survey,
    batch: Batch,
    meta: Meta,
    scratch: Path,
    planned: Mapping[RelPath, Node],
) -> Captured:
    """Write the objects and the ref, all durable. `planned`: paths that will change, including
    ignored ones, as they were read; their contents are in the batch or the repository."""
    flags, free = Asked(lambda: entry_flags(copy)), Asked(lambda: _free_ref(copy))
    directories = Asked(lambda: list_directories(copy))
    index_tree = _index_tree(copy, survey, scratch)
    files = Files(copy.root, batch, {node.oid for node in planned.values()})
    tracked = {*survey.dirty, *survey.intent_to_add, *survey.unmerged}
    tracked |= assumed_unchanged(flags.answer())
    tracked |= _converted(copy, survey, tracked)
    skipped: list[str] = []
    nodes = _read(files, [*tracked, *planned], skipped)
    tracked_state = snapshots.edit(batch, Snapshot(index_tree), _for_tree(nodes))
    untracked = _read(files, survey.untracked, skipped)
    # Git does not list a directory that replaced a tracked file among its untracked ones.
    tops = [*directories.answer(), *(p for p, n in nodes.items() if n.kind is Kind.DIRECTORY)]
    empty = _read(files, _empty_directories(copy, tops), skipped)
    everything = {**_for_tree(nodes), **untracked, **empty}
    state = snapshots.edit(batch, Snapshot(index_tree), everything)
    ref = free.answer()
    meta = meta._replace(
        when_ns=int(ref.rpartition("/")[2]),
        dirty=_with_work(survey, nodes),
        untracked=survey.untracked,
        size_bytes=batch.added_bytes,
    )
    side = {
        b"index": (MODE_DIR, index_tree),
        b"meta.json": (MODE_FILE, batch.add_blob(metas.to_json(meta))),
    }
    if state.attrs:
        side[b"attrs"] = (MODE_DIR, state.attrs)
    if survey.unmerged or survey.intent_to_add:
        side[b"index-file"] = (MODE_FILE, batch.add_blob(copy.index_file.read_bytes()))
    commit = _commit(batch, meta, state.tree, batch.add_tree(side), ref)
    make_durable(batch)
    # Only create the ref, never move it: two captures at the same instant cannot share one.
    copy.git.run("update-ref", "--no-deref", ref, commit.hex(), "0" * 40)
    _sync_names(copy.common_dir, ref)
    nodes.update(untracked)
    return Captured(ref, commit, meta, index_tree, tracked_state.tree, nodes, tuple(skipped))


def _with_work(survey: Survey, nodes: Mapping[RelPath, Node]) -> tuple[RelPath, ...]:
    """Tracked paths with changes; a file that was only touched has none."""
    changed = {
        path
        for path, recorded in survey.dirty.items()
        if path in nodes and (recorded is None or not is_as_recorded(nodes[path], recorded))
    }
    return tuple(sorted({*changed, *survey.intent_to_add, *survey.unmerged, *survey.staged}))


def _commit(batch: Batch, meta: Meta, tree: bytes, side: bytes, ref: str) -> bytes:
    who = signature("Substrate", "substrate@localhost", meta.when_ns // 1_000_000_000)
    base = bytes.fromhex(meta.base)
    aside = Commit(side, (base,), who, who, b"recovery: index and attributes\n")
    subject = f"recovery: before {meta.operation} to {meta.target}"
    message = f"{subject}\n\nSubstrate-Ref: {ref}\n".encode("utf-8", "surrogateescape")
    return batch.add_commit(Commit(tree, (base, batch.add_commit(aside)), who, who, message))


def make_durable(batch: Batch) -> None:
    """Publish everything in the batch to the repository, so that it survives a power cut."""
    small = [oid for oid, _, _ in batch.small_objects()]
    batch.publish()
    batch.store.sync_loose(small)
    batch.store.reload()


def _free_ref(copy: WorkingCopy) -> str:
    stamp = clock.now_ns()
    store_age.of_file(copy.own_dir / store_age.FILE)
    for _ in range(_TRIES):
        ref = f"{RECOVERY_PREFIX}{copy.name}/{stamp}"
        if copy.git.ask("show-ref", "--verify", "--quiet", ref) is None:
            return ref
        stamp += 1
    raise WorkspaceError("no free name for a recovery ref", hint="check the system's clock")


def _sync_names(common_dir: Path, ref: str) -> None:
    """Git syncs the ref's file, but not the directories above it."""
    for above in Path(ref).parents[:-1]:
        with suppress(FileNotFoundError):  # git packed the ref since then, and synced it
            fsync_dir(common_dir / above)


def verify(copy: WorkingCopy, captured: Captured, batch: Batch) -> list[RelPath]:
    """The paths that changed since the capture; also reads every captured content back."""
    for node in captured.nodes.values():
        if node.has_content:
            batch.read_blob(node.oid)
    again = Files(copy.root, batch, {node.oid for node in captured.nodes.values()})
    return [path for path, node in captured.nodes.items() if again.node(path) != node]


# -- what to read -------------------------------------------------------------------------------


def _read(files: Files, paths: Iterable[RelPath], skipped: list[str]) -> dict[RelPath, Node]:
    out = {}
    for path in paths:
        try:
            node = files.node(path)
        except WorkspaceError as error:
            # An unreadable path cannot be lost: no plan touches it.
            skipped.append(error.message)
            continue
        if node.kind in (Kind.SOCKET, Kind.CHAR_DEVICE, Kind.BLOCK_DEVICE):
            skipped.append(f"{display(path)} is a {node.kind.value}: it has no content to keep")
        out[path] = node
    return out


def _for_tree(nodes: dict[RelPath, Node]) -> dict[RelPath, Node]:
    """ABSENT for a directory in place of a tracked file: its contents have their own paths."""
    return {p: ABSENT if n.kind is Kind.DIRECTORY else n for p, n in nodes.items()}


def _index_tree(copy: WorkingCopy, survey: Survey, scratch: Path) -> bytes:
    """The staged state as a tree, without entries in conflict: those are in the index file."""
    temporary = scratch / "index-for-tree"
    temporary.write_bytes(copy.index_file.read_bytes())
    try:
        if survey.unmerged:
            stdin = b"".join(path + b"\0" for path in survey.unmerged)
            copy.git.run(
                "update-index", "--force-remove", "-z", "--stdin", input=stdin, index=temporary
            )
        out = copy.git.run("write-tree", index=temporary)
    finally:
        temporary.unlink(missing_ok=True)
    return bytes.fromhex(out.decode("ascii").strip())


def _converted(copy: WorkingCopy, survey: Survey, known: set[RelPath]) -> set[RelPath]:
    """Tracked files whose bytes may differ from their blobs: line endings, encodings, filters."""
    if not survey.converts:
        return set()
    from substrate.objects.import_user import (  # imports the scan; rarely needed
        borrow_index,
    )

    vouched = borrow_index(copy.git_dir, copy.common_dir, copy.root)
    listed = copy.git.run("ls-files", "-z", "--stage").split(b"\0")
    files = (line.partition(b"\t")[2] for line in listed if line[:6] in (b"100644", b"100755"))
    return {RelPath(p) for p in files if p not in vouched and p not in known}


def _empty_directories(copy: WorkingCopy, tops: Iterable[bytes]) -> list[RelPath]:
    """Completely empty directories among these and below them."""
    root = os.fsencode(copy.root)
    out = []
    for top in tops:
        for directory, names, files in os.walk(os.path.join(root, top)):
            if b".git" in names or b".git" in files:
                names.clear()  # a repository of its own
            elif not names and not files:
                out.append(RelPath(os.path.relpath(directory, root)))
    return out
