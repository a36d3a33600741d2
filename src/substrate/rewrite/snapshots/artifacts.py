"""Files beside a snapshot that people and programs can read without knowing about its commit."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from substrate.model.paths import RelPath, display
from substrate.objects.worktree_git import PATCH
from substrate.rewrite.capture import Captured
from substrate.rewrite.sweep import Asked
from substrate.rewrite.working_copy import WorkingCopy
from substrate.system.clock import iso
from substrate.system.files import fsync_dir, write_atomic


def artifacts_dir(copy: WorkingCopy, name: str) -> Path:
    return copy.own_dir / "artifacts" / "rewrite" / name


def recovery_command(name: str) -> str:
    return f"substrate recover restore {name} --with-git"


def write_artifacts(copy: WorkingCopy, captured: Captured) -> Path:
    """``meta.json``, ``index.patch``, ``worktree.patch``, ``untracked.json``; durable."""
    place = artifacts_dir(copy, captured.name)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    meta = captured.meta
    base = meta.base
    index, tracked = captured.index_tree.hex(), captured.tracked_tree.hex()
    diff = ("diff-tree", "-r", *PATCH)
    staged = Asked(lambda: copy.git.run(*diff, base, index))
    unstaged = Asked(lambda: copy.git.run(*diff, index, tracked))
    write_atomic(place / "index.patch", staged.answer())
    write_atomic(place / "worktree.patch", unstaged.answer())
    write_atomic(place / "untracked.json", _json({"untracked": _names(meta.untracked)}))
    document = {
        "operation": meta.operation,
        "operation_id": meta.operation_id,
        "workspace": meta.workspace,
        "captured": iso(meta.when_ns),
        "base_epoch": base,
        "target_ref": meta.target,
        "target_commit": meta.target_commit,
        "head": meta.head_ref or meta.head_commit,
        "snapshot_ref": captured.ref,
        "snapshot_oid": captured.commit.hex(),
        "recovery_commands": [
            recovery_command(captured.name),
            f"substrate recover show {captured.name}",
            f"substrate recover restore {captured.name} PATH…",
            f"git show {captured.commit.hex()}:PATH",
        ],
        "skipped": list(captured.skipped),
    }
    write_atomic(place / "meta.json", _json(document))
    fsync_dir(place.parent)
    return place


def _names(paths: tuple[RelPath, ...]) -> list[object]:
    """Strings; a name that is not UTF-8 also with its exact bytes."""
    out: list[object] = []
    for path in paths:
        try:
            out.append(path.decode("utf-8"))
        except UnicodeDecodeError:
            exact = base64.b64encode(path).decode("ascii")
            out.append({"path": display(path), "encoded": True, "path_b64": exact})
    return out


def _json(document: object) -> bytes:
    return json.dumps(document, indent=2).encode() + b"\n"
