"""Files beside a snapshot that people and programs can read without its commit."""

from __future__ import annotations

import base64
import json
import shlex
from pathlib import Path

from substrate.model import RelPath, display
from substrate.objects.git import PATCH
from substrate.rewrite.execute import WorkingCopy
from substrate.rewrite.snapshots.capture_snapshot import Captured
from substrate.system import iso
from substrate.system.files import fsync_dir, write_atomic
from substrate.system.process import Asked

#: How many paths to try to find an example for the recovery commands.
_TRIED = 20


def artifacts_dir(copy: WorkingCopy, name: str) -> Path:
    return copy.own_dir / "artifacts" / "rewrite" / name


def recovery_command(name: str) -> str:
    return f"substrate recover restore {shlex.quote(name)} --with-git"


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
        "recovery_commands": _recovery_commands(copy, captured),
        "skipped": list(captured.skipped),
    }
    write_atomic(place / "meta.json", _json(document))
    fsync_dir(place.parent)
    return place


def _recovery_commands(copy: WorkingCopy, captured: Captured) -> list[str]:
    """Four commands that run unchanged from any directory: two of them for one path."""
    name, commit = shlex.quote(captured.name), captured.commit.hex()
    there = shlex.quote(str(copy.root))
    ours, gits = f"substrate -C {there} recover", f"git -C {there}"
    commands = [f"{ours} restore {name} --with-git", f"{ours} show {name}"]
    path = _one_path(copy, captured)
    if not path:  # none can be typed: list the names, and archive everything
        return [
            *commands,
            f"{gits} ls-tree -r -t {commit}",
            f"{gits} archive {commit} > {commit[:12]}.tar",
        ]
    quoted = shlex.quote(path)
    word = f"-- {quoted}" if path.startswith("-") else quoted
    shown = shlex.quote(f"{commit}:{path}")
    return [*commands, f"{ours} restore {name} {word}", f"{gits} show {shown}"]


def _one_path(copy: WorkingCopy, captured: Captured) -> str:
    """A path that the snapshot holds, as an example for the others; "" if none can be typed."""
    meta, commit = captured.meta, captured.commit.hex()
    for path in (*meta.dirty, *meta.untracked, *meta.planned)[:_TRIED]:
        try:
            text = path.decode("utf-8")
        except UnicodeDecodeError:
            continue
        asked = ("cat-file", "-e", f"{commit}:{text}")
        if text.isprintable() and copy.git.ask(*asked) is not None:
            return text
    return ""


def _names(paths: tuple[RelPath, ...]) -> list[object]:
    """The paths as strings; a name that is not UTF-8 also with its exact bytes."""
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
