"""Carry out the decision in an order that lets the next process finish it after any crash:

    stage (tree untouched) ─► announce ─► files ─► index ─► HEAD ─► forget

Before the announcement a failure leaves everything unchanged. After it the operation is always
completed, by this process or, if it dies, by the next process that opens the working copy.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from substrate.errors import ChangedMeanwhileError, HalfAppliedError, SubstrateError
from substrate.model import ABSENT, BlobReader, Node, RelPath, display
from substrate.objects.index import IndexLock, Stages, index_file, index_splice
from substrate.objects.store import Batch, ObjectStore
from substrate.rewrite.execute import journal
from substrate.rewrite.execute.journal import Intent
from substrate.rewrite.execute.operation_scope import lock_of
from substrate.rewrite.execute.working_copy import WorkingCopy
from substrate.rewrite.plan import Files, is_as_recorded
from substrate.rewrite.snapshots import make_durable
from substrate.system.files import fsync_dir, fsync_file, read_bytes_or_none, write_atomic
from substrate.workspace.apply import Applier, Report, Trash
from substrate.workspace.paths import blob_id, node_at


class Done(NamedTuple):
    """What happened beyond the decision."""

    #: Paths left alone because they changed during the rewrite; now conflicts in the index.
    late: dict[RelPath, str]
    notes: list[str]


def carry_out(copy: WorkingCopy, intent: Intent, blobs: BlobReader, lock: IndexLock) -> Done:
    """`ChangedMeanwhileError`, with nothing changed, if a planned path is not as it was read."""
    applier = _applier(copy, intent, blobs)
    staged = applier.stage(intent.plan)
    if staged.conflicts:
        applier.discard(staged)
        names = ", ".join(display(c.path) for c in staged.conflicts[:3])
        raise ChangedMeanwhileError(
            f"files changed while this ran ({names}); nothing was changed", hint="try again"
        )
    _keep_old_index(copy, intent)
    journal.announce(intent)
    try:
        report = applier.carry_out(staged)
    except HalfAppliedError:
        raise  # the journal stays, and so does the lock: the next call finishes it
    except BaseException:
        journal.forget(intent)
        raise
    try:
        return _finish(copy, intent, report, lock)
    except (OSError, SubstrateError) as error:
        raise HalfAppliedError(
            f"the files are in place, but not the index and HEAD: {error}",
            hint="the next `substrate rewrite` or `substrate recover` finishes it",
        ) from error


def _keep_old_index(copy: WorkingCopy, intent: Intent) -> None:
    """Keep the old index, by a hard link if possible: the index is only ever replaced whole.

    The copy is synced because git does not sync its index: a power cut must not lose the index
    that the plan was made from.
    """
    try:
        os.link(copy.index_file, intent.old_index_file)
    except OSError:
        write_atomic(intent.old_index_file, copy.index_file.read_bytes())
    else:
        fsync_file(intent.old_index_file)


def settle(copy: WorkingCopy) -> list[str]:
    """Finish what a crash left behind; call inside the working copy's lock. Returns notes."""
    said = []
    for intent in journal.pending(copy):
        lock = lock_of(copy)
        lock.adopt("recovery")
        blobs = ObjectStore(copy.common_dir)
        report = _applier(copy, intent, blobs).resume(intent.plan)
        done = _finish(copy, intent, report, lock)
        lock.release()
        left = "".join(f"; {display(path)}: {why}" for path, why in done.late.items())
        said.append(f"finished an interrupted {intent.operation} ({intent.operation_id}){left}")
        said += done.notes
    # We hold the working copy's lock: both are unused.
    for stale in index_file.left_behind(copy.git_dir):
        stale.unlink(missing_ok=True)
    lock_of(copy).clear_left()
    return said


def _applier(copy: WorkingCopy, intent: Intent, blobs: BlobReader) -> Applier:
    trash = Trash(copy.own_dir / "trash")
    return Applier(copy.root, intent.scratch, blobs, trash, under=intent.operation_id)


def _finish(copy: WorkingCopy, intent: Intent, report: Report, lock: IndexLock) -> Done:
    late = {c.path: "changed while this ran; left as it is" for c in report.conflicts}
    notes = _notes(report)
    notes += _finish_index(copy, intent, late, lock)
    notes += _finish_head(copy, intent)
    journal.forget(intent)
    lock.release()
    return Done(late, notes)


# -- the index ----------------------------------------------------------------------------------


def _finish_index(
    copy: WorkingCopy, intent: Intent, late: dict[RelPath, str], lock: IndexLock
) -> list[str]:
    if not intent.entries and not late and not intent.index_file:
        return []
    now = index_file.fingerprint(copy.index_file)
    if now != intent.old_index:
        if now.encode() == read_bytes_or_none(intent.vouched_file):
            return []  # an earlier attempt got this far
        return ["another process changed the index at the same time; it is left as it is"]
    base = intent.directory / intent.index_file if intent.index_file else intent.old_index_file
    wanted = {**intent.entries, **_late_entries(copy, intent, late)}
    content = None if intent.index_file else _spliced(copy, intent, base.read_bytes(), wanted)
    if content is None:
        index_file.build(copy.git, base, wanted, intent.new_index_file)
        settled = [p for p, entry in wanted.items() if isinstance(entry, Node) and entry != ABSENT]
        index_file.refresh(copy.git, intent.new_index_file, None if intent.index_file else settled)
        content = intent.new_index_file.read_bytes()
    index_file.replace_durably(copy.index_file, content, lambda new: _vouch(intent, new))
    lock.release()
    return []


def _vouch(intent: Intent, new: Path) -> None:
    """Record the fingerprint: the process that finishes after a crash recognises our index."""
    write_atomic(intent.vouched_file, index_file.fingerprint(new).encode())


def _spliced(
    copy: WorkingCopy, intent: Intent, data: bytes, wanted: Mapping[RelPath, Node | Stages]
) -> bytes | None:
    """Replace entries without git; None unless each change replaces one plain entry by another."""
    if not index_splice.is_plain(data):
        return None
    changes = {}
    for path, entry in wanted.items():
        if not isinstance(entry, Node) or path not in intent.late:
            return None
        changes[path] = index_splice.Change(
            intent.late[path][0], entry, _vouched(copy, path, entry)
        )
    return index_splice.splice(data, changes)


def _vouched(copy: WorkingCopy, path: RelPath, entry: Node) -> os.stat_result | None:
    """The stat of the file if its content matches this entry; None: git must compare."""
    file = os.path.join(os.fsencode(copy.root), path)
    try:
        before = os.lstat(file)
        node = node_at(copy.root, path, _HashOnly())
        after = os.lstat(file)
    except (OSError, SubstrateError):
        return None
    same = before.st_mtime_ns == after.st_mtime_ns and before.st_ino == after.st_ino
    return after if same and is_as_recorded(node, entry) else None


class _HashOnly:
    def add_blob(self, data: bytes) -> bytes:
        return blob_id(data)


def _late_entries(
    copy: WorkingCopy, intent: Intent, late: dict[RelPath, str]
) -> dict[RelPath, Node | Stages]:
    """A file written at the last moment becomes a third conflict side, so that it does not look
    as if it reverted the target's change."""
    out: dict[RelPath, Node | Stages] = {}
    with Batch(ObjectStore(copy.common_dir)) as batch:
        files = Files(copy.root, batch)
        for path in late:
            if path in intent.late:
                before, after = intent.late[path]
                now = files.node(path)
                theirs = Node(now.kind, now.mode, now.oid) if now.has_content else ABSENT
                out[path] = Stages(before, after, theirs)
        make_durable(batch)
    return out


# -- HEAD ---------------------------------------------------------------------------------------


def _finish_head(copy: WorkingCopy, intent: Intent) -> list[str]:
    """Make HEAD name a branch or a commit; the branch itself never moves."""
    wanted = intent.head
    if not wanted.is_move:
        return []
    now = copy.head()
    if now.ref == wanted.ref and (wanted.ref or now.commit.hex() == wanted.commit):
        return []
    if (now.ref or now.commit.hex()) != (wanted.old_ref or wanted.old_commit):
        return [
            f"another process moved HEAD at the same time, to {now.describe()}, and stays there"
        ]
    if wanted.ref:
        copy.git.run("symbolic-ref", "-m", wanted.message, "HEAD", wanted.ref)
    else:
        args = ("update-ref", "--no-deref", "-m", wanted.message)
        copy.git.run(*args, "HEAD", wanted.commit, now.commit.hex())
    # Git does not sync a symbolic ref, and without a readable HEAD there is no repository.
    fsync_file(copy.git_dir / "HEAD")
    fsync_dir(copy.git_dir)
    return []


def _notes(report: Report) -> list[str]:
    notes = [f"kept directory {display(path)}: {why}" for path, why in report.kept_directories]
    notes += [
        f"{display(path)} was a hard link; the link is now broken" for path in report.broken_links
    ]
    notes += [f"cannot make {display(path)}: {why}" for path, why in report.cannot_restore]
    return notes + [f"kept in .manifold/trash: {display(path)}" for path in report.trashed]
